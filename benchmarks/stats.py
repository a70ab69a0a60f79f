"""Medians, spreads and ratios. Computation only."""

import random
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MIN_ROUNDS = 5

_RESAMPLES = 2000
_SEED = 1


class Interval(NamedTuple):
    """A value, and where it is with 95 % confidence."""

    value: float
    low: float
    high: float
    decides: bool
    """Whether it is of five rounds at least: that of three is of 75 %, although it has all of them."""


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values is, between two of them if need be. Raises ValueError for none.

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
    """The median of the ratios of values that were measured in one round each, in the same order.

    Raises ValueError where there are not as many of one as of the other.
    """
    return _bootstrap([our / their for our, their in _rounds(ours, theirs)])


def difference(ours: Sequence[float], theirs: Sequence[float], share: float) -> Interval:
    """The median of what ours are above a share of theirs, measured as for ``ratio``; also for negative values."""
    return _bootstrap([our - share * their for our, their in _rounds(ours, theirs)])


def _rounds(ours: Sequence[float], theirs: Sequence[float]) -> Iterable[tuple[float, float]]:
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} rounds of one, {len(theirs)} of the other")
    return zip(ours, theirs, strict=True)


def _bootstrap(values: Sequence[float]) -> Interval:
    value = statistics.median(values)
    # Reproducible: the same records make the same report.
    chance = random.Random(_SEED)  # noqa: S311
    medians = [statistics.median(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return Interval(value, quantile(medians, 0.025), quantile(medians, 0.975), len(values) >= _MIN_ROUNDS)
