"""Numbers that change as little as possible when what they stand for comes or goes. Pure: no I/O."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from kube_nftlb.agent.engine.nftables.layout import Target

_T = TypeVar("_T")


def renumber(before: Sequence[_T], wanted: Iterable[_T]) -> list[_T]:
    """Return what is wanted in an order in which as little as possible has another position than before."""
    missing = Counter(wanted)
    order: list[_T | None] = []
    for each in before:
        stays = missing[each] > 0
        missing[each] -= stays
        order.append(each if stays else None)
    new = [each for each, count in missing.items() for _ in range(count)]
    holes = [position for position, each in enumerate(order) if each is None]
    for position in holes:
        if not new:
            break
        order[position] = new.pop(0)
    order.extend(new)
    # What is left of the holes is filled from the end.
    for position in holes:
        while order and order[-1] is None:
            order.pop()
        if position < len(order) and order[position] is None:
            order[position] = order.pop()
    return [each for each in order if each is not None]


def stable_numbers(
    before: Iterable[tuple[int, Target]], wanted: Iterable[Target], last: int, end: int
) -> tuple[dict[Target, int], int]:
    """Return a number below ``end`` for each endpoint, and which was given last; ``last`` was so before.

    An endpoint keeps its own. A free number stays free as long as possible: clients may be remembered with it.
    """
    wanted = set(wanted)
    numbers = {to: number for number, to in before if to in wanted}
    taken = set(numbers.values())
    cycle = itertools.chain(range(last + 1, end), range(1, last + 1))
    free = (number for number in cycle if number not in taken)
    for to in sorted(wanted - numbers.keys()):
        numbers[to] = last = next(free)
    return numbers, last
