"""Medians, spreads and ratios. Computation only."""

import functools
import random
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MIN_ROUNDS = 5

_RESAMPLES = 2000
_SEED = 1


class Interval(NamedTuple):
    """A value and its 95 % confidence interval."""

    value: float
    low: float
    high: float
    decides: bool
    """True with five rounds or more: the whole range of three is an interval of only 75 %."""


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation. Raises ValueError if there are no values.

    >>> quantile([1, 2, 3, 4], 0.5)
    2.5
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the median of the ratios of values measured in the same rounds, in the same order.

    Raises ValueError if their numbers differ.
    """
    return _bootstrap(tuple(our / their for our, their in _rounds(ours, theirs)))


def share(ours: Sequence[float], theirs: Sequence[float], *, paired: bool) -> Interval | None:
    """Return our values as a share of theirs; None if there are none, or theirs are not positive.

    ``paired`` values, of the same rounds, give ``ratio``. Others give the ratio of the medians, and no interval: its
    ends are the value itself.
    """
    if not ours or not theirs or min(theirs) <= 0:
        return None
    if paired and len(ours) == len(theirs) > 1:
        return ratio(ours, theirs)
    value = statistics.median(ours) / statistics.median(theirs)
    return Interval(value, value, value, decides=False)


def difference(ours: Sequence[float], theirs: Sequence[float], share: float) -> Interval:
    """Return the median of our values minus a share of theirs, measured as for ``ratio``; also for negative values."""
    return _bootstrap(tuple(our - share * their for our, their in _rounds(ours, theirs)))


def _rounds(ours: Sequence[float], theirs: Sequence[float]) -> Iterable[tuple[float, float]]:
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} rounds of one subject, {len(theirs)} of the other")
    return zip(ours, theirs, strict=True)


@functools.cache  # a report asks several times for the same
def _bootstrap(values: tuple[float, ...]) -> Interval:
    value = statistics.median(values)
    # Seeded: the same records give the same report.
    chance = random.Random(_SEED)  # noqa: S311
    medians = [statistics.median(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return Interval(value, quantile(medians, 0.025), quantile(medians, 0.975), len(values) >= _MIN_ROUNDS)
