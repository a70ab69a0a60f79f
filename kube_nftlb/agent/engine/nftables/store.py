"""The table in the kernel: what each farm has there, and the transactions that change it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables import adoption, affinity, elements, layout, reading, scheduling, skeleton
from kube_nftlb.agent.engine.nftables.elements import Element
from kube_nftlb.agent.engine.nftables.layout import TABLE, TableFamily
from kube_nftlb.agent.engine.nftables.placement import Placement
from kube_nftlb.agent.engine.nftables.reading import ElementReader
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import Transactions

_FARMS_AT_ONCE = 64
"""The number of farms whose elements are made before others get their turn."""

_LISTENERS_CHECKED = 16
"""The number of a farm's listeners that are looked up after each change; all are compared after one by others."""

_KEY_BYTES = reading.key_bytes()

_Dump = dict[str, dict[bytes, bytes]]
"""The elements of each map and set, by name: data as attributes, by key."""


class Store:
    """Holds the placement of each farm, and writes the differences to the kernel."""

    def __init__(self, nft: Nftables, netfilter: Transactions, reader: ElementReader) -> None:
        self._nft = nft
        self._netfilter = netfilter
        self._reader = reader
        self.placements: dict[str, Placement] = {}
        self._chains: set[str] = set()
        """The names of the chains that elements lead to."""
        self._uses: Counter[str] = Counter()
        """Number of farms that lead to each chain."""
        self._shared: dict[Element, int] = {}
        """Number of farms that have each element that farms share."""
        self._sums: dict[str, tuple[int, int]] = {}
        """The number of elements of each map and set, and the sum of their hashes."""
        self._local_pods: dict[TableFamily, tuple[str, ...]] = {}
        self.revision = 0
        """Higher after each change of a placement."""
        self._created = False
        """True while there is a table: without a farm, packets should not pay for it."""

    async def load(self) -> None:
        """Read the table, if there is one and it is not another version's."""
        self._forget()
        self._created = await self._reader.has_chain(skeleton.seal())
        if not self._created:
            return
        dump = await self._dump()
        for placement in adoption.placements(dump).values():
            self._replace(placement.name, None, placement)
        self._chains = set(await self._reader.rule_counts()) - skeleton.rule_counts().keys()
        for name in (layout.name(layout.HAIRPIN, family) for family in layout.FAMILIES):
            self._shared.update({Element(name, key): 0 for key in dump[name]})
        wanted = self._wanted()
        self._sums = {name: _sum(there.items()) for name, there in wanted.items()}
        await self._settle(dump, wanted)

    def _forget(self) -> None:
        self.placements.clear()
        self._chains.clear()
        self._uses.clear()
        self._shared.clear()
        self._sums.clear()

    async def _create(self) -> None:
        await self._nft.run(skeleton.creation() + skeleton.local_pods(self._local_pods))
        self._created = True

    async def set_local_pods(self, ranges: Mapping[TableFamily, tuple[str, ...]]) -> None:
        """Set the ranges of this node's pods."""
        if ranges != self._local_pods:
            if self._created:
                await self._nft.run(skeleton.local_pods(ranges))
            self._local_pods = dict(ranges)

    async def put(self, wanted: Mapping[str, Placement | None]) -> dict[str, str]:
        """Bring farms to these placements in one transaction; None removes one.

        Return the farms that the kernel refuses, which stay as they were, and why.
        """
        try:
            await self._commit(wanted)
        except errors.KernelError:
            # Somebody has changed the table: it is not as the differences take it to be.
            await self.repair()
            return await self._put_one_by_one(wanted)
        return {}

    async def _put_one_by_one(self, wanted: Mapping[str, Placement | None]) -> dict[str, str]:
        refused = {}
        for name, placement in wanted.items():
            try:
                await self._commit({name: placement})
            except errors.KernelError as error:
                refused[name] = str(error)
        return refused

    async def _commit(self, wanted: Mapping[str, Placement | None]) -> None:
        before = {name: self.placements.get(name) for name in wanted}
        changed = {name: placement for name, placement in wanted.items() if placement != before[name]}
        if not changed:
            return
        if not self._created:
            await self._create()
        old = _by_key(each for name in changed for each in _elements(before[name]))
        new = _by_key(each for placement in changed.values() for each in _elements(placement))
        gone = [each for key, each in old.items() if new.get(key) != each]
        fresh = [each for key, each in new.items() if old.get(key) != each]
        shared = self._uses_of_shared(before, changed)
        gone += [each for each, uses in shared.items() if not uses and each in self._shared]
        fresh += [each for each, uses in shared.items() if uses and each not in self._shared]
        needed = {name for placement in changed.values() if placement for name in elements.chains(placement)}
        await self._netfilter.commit([*self._new_chains(needed), *elements.deleted(gone), *elements.added(fresh)])
        self._chains |= needed
        for each, uses in shared.items():
            if uses:
                self._shared[each] = uses
            else:
                self._shared.pop(each, None)
        for name, placement in changed.items():
            self._replace(name, before[name], placement)
        self._count(gone, -1)
        self._count(fresh, 1)

    def _uses_of_shared(
        self, before: Mapping[str, Placement | None], changed: Mapping[str, Placement | None]
    ) -> dict[Element, int]:
        """Return how many farms have each shared element of farms that change, once they have."""
        change: Counter[Element] = Counter()
        for name, placement in changed.items():
            change.subtract(_shared(before[name]))
            change.update(_shared(placement))
        return {each: self._shared.get(each, 0) + difference for each, difference in change.items()}

    def _new_chains(self, needed: set[str]) -> Iterator[Message]:
        if not (new := needed - self._chains):
            return
        for family, namespace in sorted(affinity.maps(new) - affinity.maps(self._chains)):
            yield affinity.new_map(family, namespace)
        for name in sorted(new):
            yield from messages.new_chain(TABLE, name, scheduling.parse(name).rules())

    def _replace(self, name: str, before: Placement | None, after: Placement | None) -> None:
        self.revision += 1
        if before is not None:
            self._uses.subtract(elements.chains(before))
            del self.placements[name]
        if after is not None:
            self._uses.update(elements.chains(after))
            self.placements[name] = after

    def _count(self, changed: Iterable[Element], sign: int) -> None:
        for each in changed:
            number, total = self._sums.get(each.map, (0, 0))
            self._sums[each.map] = number + sign, total + sign * hash((each.key, each.data))

    async def sweep(self) -> None:
        """Delete what no farm uses any more."""
        if not self.placements:
            if self._created:
                await self._nft.run(skeleton.deletion())
                self._created = False
                self._forget()
            return
        chains = sorted(name for name in self._chains if self._uses[name] <= 0)
        unused = [each for each, uses in self._shared.items() if not uses]
        maps = affinity.maps(chains) - affinity.maps(self._chains.difference(chains))
        await self._netfilter.commit(
            [
                *elements.deleted(unused),
                *(messages.delete_chain(TABLE, name) for name in chains),
                *(messages.delete_set(TABLE, layout.affinity_map(*each)) for each in sorted(maps)),
            ]
        )
        self._chains.difference_update(chains)
        for name in chains:
            del self._uses[name]
        for each in unused:
            del self._shared[each]
        self._count(unused, -1)

    async def has(self, name: str) -> bool:
        """Return True if the kernel has the listeners of a farm."""
        placement = self.placements[name]
        for entry in placement.entries[:_LISTENERS_CHECKED]:
            map_ = layout.name(layout.SERVICES, placement.family, all_ports=entry.all_ports)
            if not await self._reader.has_element(map_, entry.key):
                return False
        return True

    @property
    def affinity_maps(self) -> set[tuple[TableFamily, str]]:
        """The families and namespaces that have a map of remembered clients."""
        return affinity.maps(self._chains)

    async def drift(self) -> str | None:
        """Return how the kernel deviates from what was written, or None. Rules are counted, elements hashed."""
        if not self._created:
            return None
        if not await self._reader.has_chain(skeleton.seal()):
            return f"the table inet {TABLE} was deleted"
        if (name := await self._changed_chain()) is not None:
            return f"the chain {name} of the table inet {TABLE} was changed"
        for name, length in _KEY_BYTES.items():
            if _sum(await self._reader.dump(name, length)) != self._sums.get(name, (0, 0)):
                return f"the map {name} of the table inet {TABLE} was changed"
        return None

    async def repair(self) -> None:
        """Write what the kernel lacks, and delete what it should not have; where rules are gone, write all anew."""
        if await self._reader.has_chain(skeleton.seal()) and await self._changed_chain() is None:
            await self._settle(await self._dump(), self._wanted())
            return
        placements = dict(self.placements)
        self._forget()
        await self._create()
        names = list(placements)
        for first in range(0, len(names), _FARMS_AT_ONCE):
            await self._commit({name: placements[name] for name in names[first : first + _FARMS_AT_ONCE]})

    async def _changed_chain(self) -> str | None:
        """Return a chain that has more or fewer rules than it should, or None."""
        rules = skeleton.rule_counts() | {name: len(list(scheduling.parse(name).rules())) for name in self._chains}
        found = await self._reader.rule_counts()
        return next((name for name in rules.keys() | found.keys() if found[name] != rules.get(name, 0)), None)

    async def _dump(self) -> _Dump:
        return {name: dict(await self._reader.dump(name, length)) for name, length in _KEY_BYTES.items()}

    def _wanted(self) -> _Dump:
        """Return the elements of all farms."""
        wanted: _Dump = {name: {} for name in _KEY_BYTES}
        for placement in self.placements.values():
            for name, key, data in elements.elements(placement):
                wanted[name][key] = data
        for name, key, data in self._shared:
            wanted[name][key] = data
        return wanted

    async def _settle(self, dump: _Dump, wanted: _Dump) -> None:
        """Bring the elements that the kernel has to those of all farms."""
        gone: list[Element] = []
        fresh: list[Element] = []
        for name, there in dump.items():
            # Mostly nothing differs, and there are hundreds of thousands.
            if there != wanted[name]:
                here = wanted[name]
                gone += (Element(name, key) for key, data in there.items() if here.get(key) != data)
                fresh += (Element(name, key, data) for key, data in here.items() if there.get(key) != data)
        if gone or fresh:
            await self._netfilter.commit([*elements.deleted(gone), *elements.added(fresh)])


def _elements(placement: Placement | None) -> Iterable[Element]:
    return elements.elements(placement) if placement is not None else ()


def _shared(placement: Placement | None) -> Iterable[Element]:
    return elements.shared(placement) if placement is not None else ()


def _by_key(found: Iterable[Element]) -> dict[tuple[str, bytes], Element]:
    return {(each.map, each.key): each for each in found}


def _sum(found: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
    hashes = [hash(each) for each in found]
    return len(hashes), sum(hashes)
