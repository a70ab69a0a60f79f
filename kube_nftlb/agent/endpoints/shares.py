"""The shares of groups in a small number of numbers, of which one is drawn for each connection. Pure: no I/O."""

from collections.abc import Sequence
from functools import reduce
from math import gcd
from typing import Final

NUMBERS_MAX: Final = 1000
"""The maximum number of numbers: no share is further than a thousandth from what the weights ask for."""


def exact_shares(weights: Sequence[int]) -> list[int]:
    """Return how many numbers each of these weights gets if all get as few as they can. None may be 0."""
    common = reduce(gcd, weights, 0)
    return [weight // common for weight in weights]


def of_weights(weights: Sequence[int], most: int = NUMBERS_MAX) -> tuple[int, ...]:
    """Return how many numbers each of these weights gets: at least one, and exact ones if no more than ``most`` do.

    ``most`` must not be less than the number of weights, and none of these may be 0.
    """
    exact = exact_shares(weights)
    if (total := sum(exact)) <= most:
        return tuple(exact)
    found = [weight * most // total for weight in exact]
    by_remainder = sorted(range(len(exact)), key=lambda each: exact[each] * most % total, reverse=True)
    for each in by_remainder[: most - sum(found)]:
        found[each] += 1
    for each in [number for number, share in enumerate(found) if not share]:
        found[found.index(max(found))] -= 1
        found[each] = 1
    return tuple(found)
