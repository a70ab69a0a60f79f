"""The table in the kernel: what each farm has there, and the transactions that change it."""

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TypeVar

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables import (
    adoption,
    affinity,
    elements,
    encoded,
    layout,
    reading,
    rules,
    scheduling,
    skeleton,
)
from kube_nftlb.agent.engine.nftables.elements import Element
from kube_nftlb.agent.engine.nftables.layout import TABLE, TableFamily
from kube_nftlb.agent.engine.nftables.placement import Placement
from kube_nftlb.agent.engine.nftables.reading import ElementReader
from kube_nftlb.agent.engine.nftables.rules import TableRules
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.contents import TableContents, difference
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import Transactions
from kube_nftlb.netfilter.readback import confirmed

_log = structlog.get_logger()

_FARMS_AT_ONCE = 64
"""The number of farms whose elements are made before others get their turn."""

_LISTENERS_CHECKED = 16
"""The number of a farm's listeners that are looked up after each change; all are compared after one by others."""

_CLASHES = (errno.ENOENT, errno.EEXIST, errno.EBUSY)
"""How the kernel refuses to delete what it does not have, and to add what it has otherwise."""

_KEY_BYTES = reading.key_bytes()

_T = TypeVar("_T")

_Dump = dict[str, dict[bytes, bytes]]
"""The elements of each map and set, by name: data as attributes, by key."""


class KernelTable:
    """Holds the placement of each farm, and writes the differences to the kernel."""

    def __init__(self, nft: Nftables, netfilter: Transactions, reader: ElementReader) -> None:
        self._nft = nft
        self._netfilter = netfilter
        self._reader = reader
        self._rules = TableRules(nft, netfilter, reader)
        self.placements: dict[str, Placement] = {}
        self._chains: set[str] = set()
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
        self.revision = 0
        """Higher after each change of a placement."""
        self._created = False
        """True while there is a table: without a farm, packets should not pay for it."""
        self._is_certain = True
        """False while the kernel has not acknowledged a transaction, so that it may have more than ``placements``."""
        self.is_held = False
        """True while the kernel has a table of another layout, which serves until all of this one is known."""

    @property
    def is_complete(self) -> bool:
        """True if the kernel has the table, as far as is known, or a whole one of another layout."""
        return self._created or self.is_held

    async def load(self) -> None:
        """Read the table, if there is one and it is not another version's."""
        self._forget()
        found = await self._rules.found()
        self._created = skeleton.seal() in found.chains
        self.is_held = bool(found) and not self._created
        if not self._created:
            return
        dump = await self._dump()
        for placement in adoption.placements(dump).values():
            self._replace(placement.name, None, placement)
        self._chains = {name for name in found.chains if rules.is_scheduling(name)}
        for name in (layout.name(layout.HAIRPIN, family) for family in layout.FAMILIES):
            self._shared.update({Element(name, key): 0 for key in dump[name]})
        self._shared.update(Counter(each for placement in self.placements.values() for each in _shared(placement)))
        wanted = self._wanted()
        self._sums = {name: _sum(data.items()) for name, data in wanted.items()}
        await self._settle(dump, wanted)

    def _forget(self) -> None:
        self.placements.clear()
        self._chains.clear()
        self._uses.clear()
        self._shared.clear()
        self._sums.clear()

    async def set_local_pods(self, ranges: Mapping[TableFamily, tuple[str, ...]]) -> None:
        """Set the ranges of this node's pods."""
        if ranges != self._rules.local_pods:
            if self._created:
                await self._nft.run(skeleton.local_pods(ranges))
            self._rules.set_local_pods(ranges)

    async def release(self) -> dict[str, str]:
        """Put this table in the place of one of another layout, in one transaction.

        Return the farms that the kernel refuses, which are not served, and why.
        """
        if not self.is_held:
            return {}
        wanted = dict(self.placements)
        self._forget()
        self.is_held = False
        return await self.put(wanted)

    async def put(self, wanted: Mapping[str, Placement | None]) -> dict[str, str]:
        """Bring farms to these placements, if possible in one transaction; None removes one.

        Return the farms that the kernel refuses, which stay as they were, and why.
        """
        if not self._is_certain or (self.placements and not self.is_complete):
            await self.repair()
        wanted = dict(sorted(wanted.items(), key=lambda each: not self._gives_up_listeners(*each)))
        try:
            refused = await self._bisect(wanted)
            if not any(error.code in _CLASHES for error in refused.values()):
                return _messages(refused)
        except errors.UnansweredError:
            self._is_certain = False
        # Somebody has changed the table, or the last transaction is lost: the table is not as the differences take it
        # to be.
        await self.repair()
        try:
            return _messages(await self._bisect(wanted))
        except errors.UnansweredError as error:
            self._is_certain = False
            return {name: str(error) for name, each in wanted.items() if each != self.placements.get(name)}

    def _gives_up_listeners(self, name: str, wanted: Placement | None) -> bool:
        """Return True if a farm leaves listeners, which another one of the same batch may get."""
        return not _listeners(self.placements.get(name)) <= _listeners(wanted)

    async def _bisect(self, wanted: Mapping[str, Placement | None]) -> dict[str, errors.KernelError]:
        """Bring farms to these placements, in as few transactions as refusals allow. Return those that are refused."""
        try:
            await self._commit(wanted)
        except errors.UnansweredError:
            raise
        except errors.KernelError as error:
            if len(wanted) == 1:
                return dict.fromkeys(wanted, error)
            names, half = list(wanted), len(wanted) // 2
            parts = (names[:half], names[half:])
            return {
                name: refusal
                for part in parts
                for name, refusal in (await self._bisect({name: wanted[name] for name in part})).items()
            }
        return {}

    async def _commit(self, wanted: Mapping[str, Placement | None]) -> None:
        before = {name: self.placements.get(name) for name in wanted}
        changed = {name: placement for name, placement in wanted.items() if placement != before[name]}
        if not changed:
            return
        creation = [] if self.is_complete else await self._rules.creation()
        old = await _by_key(before[name] for name in changed)
        new = await _by_key(changed.values())
        gone = [each for key, each in old.items() if new.get(key) != each]
        fresh = [each for key, each in new.items() if old.get(key) != each]
        shared = self._uses_of_shared(before, changed)
        gone += [each for each, uses in shared.items() if not uses and each in self._shared]
        fresh += [each for each, uses in shared.items() if uses and each not in self._shared]
        needed = {name for placement in changed.values() if placement for name in elements.chains(placement)}
        if not self.is_held:
            chains = list(rules.new_chains(needed, self._chains))
            if chains and self.is_complete:
                # A packet on its way finds new elements, but goes by the rules of before: a new chain has none for it.
                await self._netfilter.commit(chains)
                self._chains |= needed
                chains = []
            await self._netfilter.commit([*creation, *chains, *elements.deleted(gone), *elements.added(fresh)])
            self._created = True
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

    def _replace(self, name: str, before: Placement | None, after: Placement | None) -> None:
        self.revision += 1
        self._encoded.forget(name)
        self._unprepared[name] = None
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
        if self.is_held:
            return
        if not self.placements:
            if self._created:
                await self._nft.run(skeleton.deletion())
                self._created = False
                self._forget()
            return
        chains = sorted((name for name in self._chains if self._uses[name] <= 0), key=scheduling.rank, reverse=True)
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
        if self.is_held:
            return True
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
        """Return how the kernel deviates from what was written, or None: rules by content, elements by their hashes."""
        if self.is_held or not (self._created or self.placements):
            return None
        try:
            wanted = await self._rules.wanted(self._chains)
        except errors.KernelError as error:
            # Where there is no room for a blueprint, elements are compared all the same.
            _log.warning("cannot compare rules", error=str(error))
            wanted = None
        return await confirmed(self._reader, lambda: self._compare(wanted))

    async def _compare(self, wanted: TableContents | None) -> str | None:
        if not (found := await self._rules.found()):
            return f"the table inet {TABLE} was deleted"
        if wanted is not None and (drift := difference(wanted, found)) is not None:
            return f"{drift} in the table inet {TABLE}"
        for name, length in _KEY_BYTES.items():
            if _sum(await self._reader.dump(name, length)) != self._sums.get(name, (0, 0)):
                return f"the map {name} of the table inet {TABLE} was changed"
        return None

    async def is_missing(self) -> bool:
        """Return True if the kernel has nothing of what was written, so that no farm is served."""
        return not self.is_held and bool(self.placements) and not await self._reader.has_chain(skeleton.seal())

    async def repair(self) -> None:
        """Write what the kernel lacks, and delete what it should not have, in one transaction.

        Where sets are gone, or are not what they were, all is written anew.
        """
        if self.is_held or not (self._created or self.placements):
            return
        # Nobody waits for a comparison if there is nothing to compare.
        found = await self._rules.found()
        if not found or not rules.can_be_mended(wanted := await self._rules.wanted(self._chains), found):
            await self._rewrite()
        else:
            before, after = rules.mended(wanted, found)
            try:
                await self._settle(await self._dump(), self._wanted(), before, after)
            except errors.UnansweredError:
                raise
            except errors.KernelError as error:
                _log.warning("the table cannot be mended, writing it anew", error=str(error))
                await self._rewrite()
        self._is_certain = True

    async def _rewrite(self) -> None:
        """Write all anew. What clients are remembered for is lost. Raises KernelError: nothing has changed then."""
        if not self.placements:
            self._forget()
            self._created = False
            return
        needed = {name for name, uses in self._uses.items() if uses > 0}
        used = {each: uses for each, uses in self._shared.items() if uses}
        all_ = [self._encoded.of(placement) async for placement in _in_turns(self.placements.values())]
        creation = await self._rules.creation()
        chains = rules.new_chains(needed, ())
        await self._netfilter.commit([*creation, *chains, *encoded.added(all_), *elements.added(used)])
        self._count((each for each in self._shared if each not in used), -1)
        self._chains, self._shared, self._created = needed, used, True

    def prepare(self) -> None:
        """Make ready what ``repair`` sends if all is lost, of some farms that have changed."""
        for name in list(self._unprepared)[:_FARMS_AT_ONCE]:
            self._unprepared.pop(name)
            if (placement := self.placements.get(name)) is not None:
                self._encoded.keep(placement)

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

    async def _settle(
        self, dump: _Dump, wanted: _Dump, before: Iterable[Message] = (), after: Iterable[Message] = ()
    ) -> None:
        """Bring the elements that the kernel has to those of all farms, between other messages."""
        gone: list[Element] = []
        fresh: list[Element] = []
        for name, actual in dump.items():
            # Mostly nothing differs, and there are hundreds of thousands.
            if actual != wanted[name]:
                desired = wanted[name]
                gone += (Element(name, key) for key, data in actual.items() if desired.get(key) != data)
                fresh += (Element(name, key, data) for key, data in desired.items() if actual.get(key) != data)
        if mending := [*before, *elements.deleted(gone), *after, *elements.added(fresh)]:
            await self._netfilter.commit(mending)


def _shared(placement: Placement | None) -> Iterable[Element]:
    return elements.shared(placement) if placement is not None else ()


def _listeners(placement: Placement | None) -> set[bytes]:
    return {entry.key for entry in placement.entries} if placement is not None else set()


def _messages(refused: Mapping[str, errors.KernelError]) -> dict[str, str]:
    return {name: str(error) for name, error in refused.items()}


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


def _sum(found: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
    hashes = [hash(each) for each in found]
    return len(hashes), sum(hashes)
