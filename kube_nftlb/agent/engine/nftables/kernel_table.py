"""The table in the kernel: what each farm has there, and the transactions that change it."""

import errno
from collections.abc import Iterable, Mapping

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables import adoption, affinity, elements, encoded, layout, rules, skeleton, written
from kube_nftlb.agent.engine.nftables.elements import Element
from kube_nftlb.agent.engine.nftables.layout import TABLE, TableFamily
from kube_nftlb.agent.engine.nftables.placement import Placement
from kube_nftlb.agent.engine.nftables.reading import ElementReader
from kube_nftlb.agent.engine.nftables.rules import TableRules
from kube_nftlb.agent.engine.nftables.written import Dump, Written
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.contents import TableContents, difference
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import Transactions
from kube_nftlb.netfilter.readback import confirmed

_log = structlog.get_logger()

_LISTENERS_CHECKED = 16
"""The number of a farm's listeners that are looked up after each change; all are compared after one by others."""

_CLASHES = (errno.ENOENT, errno.EEXIST, errno.EBUSY)
"""How the kernel refuses to delete what it does not have, and to add what it has otherwise."""


class KernelTable:
    """Writes to the kernel how what farms want differs from what was written."""

    def __init__(self, nft: Nftables, netfilter: Transactions, reader: ElementReader) -> None:
        self._nft = nft
        self._netfilter = netfilter
        self._reader = reader
        self._rules = TableRules(nft, netfilter, reader)
        self.written = Written()
        self._created = False
        """True while there is a table: without a farm, packets should not pay for it."""
        self._is_certain = True
        """False while the kernel has not acknowledged a transaction, so that it may have what is not in ``written``."""
        self.is_held = False
        """True while the kernel has a table of another layout, which serves until all of this one is known."""

    @property
    def is_complete(self) -> bool:
        """True if the kernel has the table, as far as is known, or a whole one of another layout."""
        return self._created or self.is_held

    async def load(self) -> None:
        """Read the table, if there is one and it is not another version's."""
        self.written.clear()
        found = await self._rules.found()
        self._created = skeleton.seal() in found.chains
        self.is_held = bool(found) and not self._created
        if not self._created:
            return
        dump = await self._dump()
        hairpin = (layout.name(layout.HAIRPIN, family) for family in layout.FAMILIES)
        self.written.adopt(
            adoption.placements(dump).values(),
            (name for name in found.chains if rules.is_scheduling(name)),
            (Element(name, key) for name in hairpin for key in dump[name]),
        )
        await self._settle(dump, self.written.elements())

    async def set_local_pods(self, ranges: Mapping[TableFamily, tuple[str, ...]]) -> None:
        """Set the ranges of this node's pods. If somebody has deleted the table, ``repair`` writes them."""
        if ranges == self._rules.local_pods:
            return
        if self._created:
            try:
                await self._nft.run(skeleton.local_pods(ranges))
            except errors.KernelError:
                if await self._reader.has_chain(skeleton.seal()):
                    raise
        self._rules.set_local_pods(ranges)

    async def release(self) -> dict[str, str]:
        """Put this table in the place of one of another layout, in one transaction.

        Return the farms that the kernel refuses, which are not served, and why.
        """
        if not self.is_held:
            return {}
        wanted = dict(self.written.placements)
        self.written.clear()
        self.is_held = False
        return await self.put(wanted)

    async def put(self, wanted: Mapping[str, Placement | None]) -> dict[str, str]:
        """Bring farms to these placements, if possible in one transaction; None removes one.

        Return the farms that the kernel refuses, which stay as they were, and why.
        """
        if not self._is_certain or (self.written.placements and not self.is_complete):
            await self.repair()
        wanted = dict(sorted(wanted.items(), key=lambda each: not self.written.gives_up_listeners(*each)))
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
            return {name: str(error) for name, each in wanted.items() if each != self.written.placements.get(name)}

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
        change = await self.written.change(wanted)
        if not change.placements:
            return
        if not self.is_held:
            creation = [] if self.is_complete else await self._rules.creation()
            chains = list(rules.new_chains(change.chains, self.written.chains))
            if chains and self.is_complete:
                # A packet on its way finds new elements, but goes by the rules of before: a new chain has none for it.
                await self._netfilter.commit(chains)
                self.written.chains |= change.chains
                chains = []
            elements_ = (*elements.deleted(change.gone), *elements.added(change.fresh))
            await self._netfilter.commit([*creation, *chains, *elements_])
            self._created = True
        self.written.record(change)

    async def sweep(self) -> None:
        """Delete what no farm uses any more."""
        if self.is_held:
            return
        if not self.written.placements:
            if self._created:
                await self._nft.run(skeleton.deletion())
                self._created = False
                self.written.clear()
            return
        unused = self.written.unused()
        await self._netfilter.commit(
            [
                *elements.deleted(unused.elements),
                *(messages.delete_chain(TABLE, name) for name in unused.chains),
                *(messages.delete_set(TABLE, layout.affinity_map(*each)) for each in sorted(unused.affinity_maps)),
            ]
        )
        self.written.forget_unused(unused)

    async def has(self, name: str) -> bool:
        """Return True if the kernel has the listeners of a farm."""
        placement = self.written.placements[name]
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
        return affinity.maps(self.written.chains)

    async def drift(self) -> str | None:
        """Return how the kernel deviates from what was written, or None: rules by content, elements by their hashes."""
        if self.is_held or not (self._created or self.written.placements):
            return None
        try:
            wanted = await self._rules.wanted(self.written.chains)
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
        for name, length in written.KEY_BYTES.items():
            if written.sum_of(await self._reader.dump(name, length)) != self.written.sum(name):
                return f"the map {name} of the table inet {TABLE} was changed"
        return None

    async def is_missing(self) -> bool:
        """Return True if the kernel has nothing of what was written, so that no farm is served."""
        return not self.is_held and bool(self.written.placements) and not await self._reader.has_chain(skeleton.seal())

    async def repair(self) -> None:
        """Write what the kernel lacks, and delete what it should not have, in one transaction.

        Where sets are gone, or are not what they were, all is written anew.
        """
        if self.is_held or not (self._created or self.written.placements):
            return
        # Nobody waits for a comparison if there is nothing to compare.
        found = await self._rules.found()
        if not found or not rules.can_be_mended(wanted := await self._rules.wanted(self.written.chains), found):
            await self._rewrite()
        else:
            before, after = rules.mended(wanted, found)
            try:
                await self._settle(await self._dump(), self.written.elements(), before, after)
            except errors.UnansweredError:
                raise
            except errors.KernelError as error:
                _log.warning("the table cannot be mended, writing it anew", error=str(error))
                await self._rewrite()
        self._is_certain = True

    async def _rewrite(self) -> None:
        """Write all anew. What clients are remembered for is lost. Raises KernelError: nothing has changed then."""
        if not self.written.placements:
            self.written.clear()
            self._created = False
            return
        chains = rules.new_chains(self.written.used_chains(), ())
        all_ = await self.written.encoded()
        creation = await self._rules.creation()
        await self._netfilter.commit([*creation, *chains, *encoded.added(all_), *elements.added(self.written.shared())])
        self.written.record_rewrite()
        self._created = True

    def prepare(self) -> None:
        """Make ready what ``repair`` sends if all is lost, of some farms that have changed."""
        self.written.prepare()

    async def _dump(self) -> Dump:
        return {name: dict(await self._reader.dump(name, length)) for name, length in written.KEY_BYTES.items()}

    async def _settle(
        self, dump: Dump, wanted: Dump, before: Iterable[Message] = (), after: Iterable[Message] = ()
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


def _messages(refused: Mapping[str, errors.KernelError]) -> dict[str, str]:
    return {name: str(error) for name, error in refused.items()}
