"""Interleave subjects, so that none is always measured after the same other one."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def rotated(subjects: Sequence[_T], number: int) -> tuple[_T, ...]:
    """Return the subjects, rotated by ``number``."""
    first = number % len(subjects)
    return (*subjects[first:], *subjects[:first])


def interleaved(subjects: Sequence[_T], rounds: int) -> Iterator[tuple[int, _T]]:
    """Yield all subjects in each round, rotated, with the round's number."""
    for number in range(rounds):
        for subject in rotated(subjects, number):
            yield number, subject
