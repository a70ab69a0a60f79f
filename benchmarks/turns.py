"""Who is measured when, so that none always comes after the same."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def turn(subjects: Sequence[_T], number: int) -> tuple[_T, ...]:
    """All subjects, another one first with each number."""
    first = number % len(subjects)
    return (*subjects[first:], *subjects[:first])


def turns(subjects: Sequence[_T], rounds: int) -> Iterator[tuple[int, _T]]:
    """All subjects in each round, with its number."""
    for number in range(rounds):
        for subject in turn(subjects, number):
            yield number, subject
