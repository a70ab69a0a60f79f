"""What was written to the table: the placement of each farm, its elements, and the chains that they lead to.

All in memory; it waits only to let others have their turn.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kube_nftlb.agent.engine.nftables import affinity, elements, encoded, reading, scheduling
from kube_nftlb.agent.engine.nftables.elements import Element
from kube_nftlb.agent.engine.nftables.layout import TableFamily
from kube_nftlb.agent.engine.nftables.placement import Placement

_FARMS_AT_ONCE = 64
"""The number of farms whose elements are made before others get their turn."""

KEY_BYTES = reading.key_bytes()
"""The bytes of a key of each map and set with elements of farms."""

Dump = dict[str, dict[bytes, bytes]]
"""The elements of each map and set, by name: data as attributes, by key."""

_T = TypeVar("_T")


class Change(NamedTuple):
    """What changes in the table with the placements of some farms."""

    placements: dict[str, Placement | None]
    """The farms that change: None for one that is removed."""
    gone: list[Element]
    fresh: list[Element]
    uses: dict[Element, int]
    """The number of farms that have each shared element afterwards."""
    chains: set[str]
    """The chains that the farms lead to afterwards."""


class Unused(NamedTuple):
    """What no farm uses any more."""

    chains: list[str]
    """In an order in which they can be deleted."""
    affinity_maps: set[tuple[TableFamily, str]]
    elements: list[Element]


class Written:
    """Holds what the table has, once each change is recorded that the kernel has acknowledged."""

    def __init__(self) -> None:
        self.placements: dict[str, Placement] = {}
        self.revision = 0
        """Higher after each change of a placement."""
        self.chains: set[str] = set()
        """The names of the chains that elements lead to."""
        self._uses: Counter[str] = Counter()
        """Number of farms that lead to each chain."""
        self._shared: dict[Element, int] = {}
        """Number of farms that have each element that farms share."""
        self._sums: dict[str, tuple[int, int]] = {}
        """The number of elements of each map and set, and the sum of their hashes."""
        self._encoded = encoded.EncodedFarms()
        self._unprepared: dict[str, None] = {}
        """Farms whose elements were not encoded yet."""

    def clear(self) -> None:
        """Forget everything: there is no table."""
        self.placements.clear()
        self.chains.clear()
        self._uses.clear()
        self._shared.clear()
        self._sums.clear()

    def adopt(self, placements: Iterable[Placement], chains: Iterable[str], hairpin: Iterable[Element]) -> None:
        """Take over what was read from a table, where farms may have none of the elements ``hairpin``."""
        for placement in placements:
            self._replace(placement.name, placement)
        self.chains = set(chains)
        self._shared.update(dict.fromkeys(hairpin, 0))
        self._shared.update(Counter(each for placement in self.placements.values() for each in _shared(placement)))
        self._sums = {name: sum_of(data.items()) for name, data in self.elements().items()}

    def gives_up_listeners(self, name: str, wanted: Placement | None) -> bool:
        """Return True if a farm leaves listeners, which another one may get."""
        return not _listeners(self.placements.get(name)) <= _listeners(wanted)

    async def change(self, wanted: Mapping[str, Placement | None]) -> Change:
        """Return what changes if farms get these placements."""
        changed = {name: placement for name, placement in wanted.items() if placement != self.placements.get(name)}
        old = await _by_key(self.placements.get(name) for name in changed)
        new = await _by_key(changed.values())
        gone = [each for key, each in old.items() if new.get(key) != each]
        fresh = [each for key, each in new.items() if old.get(key) != each]
        uses = self._uses_of_shared(changed)
        gone += [each for each, number in uses.items() if not number and each in self._shared]
        fresh += [each for each, number in uses.items() if number and each not in self._shared]
        chains = {name for placement in changed.values() if placement for name in elements.chains(placement)}
        return Change(changed, gone, fresh, uses, chains)

    def record(self, change: Change) -> None:
        """Record a change that was written."""
        self.chains |= change.chains
        for each, number in change.uses.items():
            if number:
                self._shared[each] = number
            else:
                self._shared.pop(each, None)
        for name, placement in change.placements.items():
            self._replace(name, placement)
        self._count(change.gone, -1)
        self._count(change.fresh, 1)

    def unused(self) -> Unused:
        """Return what no farm uses any more."""
        chains = sorted((name for name in self.chains if self._uses[name] <= 0), key=scheduling.rank, reverse=True)
        maps = affinity.maps(chains) - affinity.maps(self.chains.difference(chains))
        return Unused(chains, maps, [each for each, number in self._shared.items() if not number])

    def forget_unused(self, unused: Unused) -> None:
        """Forget what was deleted, as no farm uses it."""
        self.chains.difference_update(unused.chains)
        for name in unused.chains:
            del self._uses[name]
        for each in unused.elements:
            del self._shared[each]
        self._count(unused.elements, -1)

    def record_rewrite(self) -> None:
        """Record that all was written anew, so that the table has only what farms use."""
        self.forget_unused(self.unused())
        self.chains = self.used_chains()

    def elements(self) -> Dump:
        """Return all elements."""
        found: Dump = {name: {} for name in KEY_BYTES}
        for placement in self.placements.values():
            for name, key, data in elements.elements(placement):
                found[name][key] = data
        for name, key, data in self._shared:
            found[name][key] = data
        return found

    def sum(self, name: str) -> tuple[int, int]:
        """Return the number of elements of a map or set, and the sum of their hashes (see ``sum_of``)."""
        return self._sums.get(name, (0, 0))

    def used_chains(self) -> set[str]:
        """Return the names of the chains that farms lead to."""
        return {name for name, number in self._uses.items() if number > 0}

    def shared(self) -> list[Element]:
        """Return the elements that farms share."""
        return [each for each, number in self._shared.items() if number]

    async def encoded(self) -> list[encoded.Encoded]:
        """Return the elements of all farms as they are sent, but for the shared ones."""
        return [self._encoded.of(placement) async for placement in _in_turns(self.placements.values())]

    def prepare(self) -> None:
        """Make ready what ``encoded`` returns, of some farms that have changed."""
        for name in list(self._unprepared)[:_FARMS_AT_ONCE]:
            self._unprepared.pop(name)
            if (placement := self.placements.get(name)) is not None:
                self._encoded.keep(placement)

    def _uses_of_shared(self, changed: Mapping[str, Placement | None]) -> dict[Element, int]:
        change: Counter[Element] = Counter()
        for name, placement in changed.items():
            change.subtract(_shared(self.placements.get(name)))
            change.update(_shared(placement))
        return {each: self._shared.get(each, 0) + difference for each, difference in change.items()}

    def _replace(self, name: str, placement: Placement | None) -> None:
        self.revision += 1
        self._encoded.forget(name)
        self._unprepared[name] = None
        if (before := self.placements.pop(name, None)) is not None:
            self._uses.subtract(elements.chains(before))
        if placement is not None:
            self._uses.update(elements.chains(placement))
            self.placements[name] = placement

    def _count(self, changed: Iterable[Element], sign: int) -> None:
        for each in changed:
            number, total = self.sum(each.map)
            self._sums[each.map] = number + sign, total + sign * hash((each.key, each.data))


def sum_of(found: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
    """Return the number of elements, and the sum of their hashes."""
    hashes = [hash(each) for each in found]
    return len(hashes), sum(hashes)


def _shared(placement: Placement | None) -> Iterable[Element]:
    return elements.shared(placement) if placement is not None else ()


def _listeners(placement: Placement | None) -> set[bytes]:
    return {entry.key for entry in placement.entries} if placement is not None else set()


async def _by_key(placements: Iterable[Placement | None]) -> dict[tuple[str, bytes], Element]:
    found = {}
    async for placement in _in_turns(placements):
        if placement is not None:
            found.update({(each.map, each.key): each for each in elements.elements(placement)})
    return found


async def _in_turns(some: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield all, and let others have their turn: the whole table may be written at once."""
    for number, each in enumerate(list(some)):
        yield each
        if number % _FARMS_AT_ONCE == _FARMS_AT_ONCE - 1:
            await asyncio.sleep(0)
