"""The engine of nftables maps. Everything that a farm needs is elements, and a batch of changes is one transaction.

See docs/dataplane.md.
"""

import random
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

import structlog

from kube_nftlb import metrics
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.affinity_use import AffinityUse
from kube_nftlb.agent.engine.nftables.farm_numbers import FarmNumbers
from kube_nftlb.agent.engine.nftables.kernel_table import KernelTable
from kube_nftlb.agent.engine.nftables.placement import Placement, place, remembers
from kube_nftlb.agent.engine.nftables.reading import ElementReader
from kube_nftlb.agent.engine.nftables.state_file import StateFile
from kube_nftlb.agent.engine.nftables.support import unsupported
from kube_nftlb.agent.engine.sent import SentFarms
from kube_nftlb.agent.model import Blocker, NodeFarm, SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import source_ranges
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables.transaction import Transactions
from kube_nftlb.netfilter.table_text import Contents

_log = structlog.get_logger()


class Restrictions(Protocol):
    """What keeps clients out of farms beside this engine."""

    @property
    def digest(self) -> int:
        """A digest of all of it."""

    def restricts(self, farm: str) -> bool:
        """Return True if a farm must not be served without it."""


class NftablesEngine:
    """See ``TableEngine``."""

    def __init__(
        self,
        nft: Nftables,
        netfilter: Transactions,
        reader: ElementReader,
        connections: Connections,
        restrictions: Restrictions,
        state_file: Path,
        clock: Clock,
    ) -> None:
        self._netfilter = netfilter
        self._restrictions = restrictions
        self._clock = clock
        self._table = KernelTable(nft, netfilter, reader)
        self._connections = connections
        self._state_file = StateFile(state_file)
        self.sent = SentFarms()
        """See ``Engine``."""
        self._refused: dict[str, str] = {}
        """Reasons that the last changes of farms were refused: what was asked for is not what the kernel has."""
        self._numbers = FarmNumbers(random.randint(1, layout.FARMS_MAX))  # noqa: S311 - no secret
        self._affinity_use = AffinityUse(reader)
        self._loaded = False
        self._has_begun = False
        """False until all farms are known."""
        self._swept = -1
        """The revision of the table after which it was last swept."""
        self._unsaved: str | None = None
        """Reason the state file was not written when last tried; None if it was."""

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """See ``Engine``."""
        return unsupported(farm)

    def contents(self, farm: NodeFarm) -> Contents:
        """See ``Engine``."""
        return source_ranges.contents(farm)

    async def restore(self) -> None:
        """See ``TableEngine``."""
        await self.load()
        if not self._table.written.placements and (placed := self._state_file.read()):
            refused = await self._put(placed)
            _log.info("restored farms", farms=len(placed) - len(refused))

    async def set_node(self, node: NodeFacts) -> None:
        """See ``TableEngine``."""
        ranges = {"ip": node.pod_cidrs.get("ipv4", ()), "ip6": node.pod_cidrs.get("ipv6", ())}
        await self._table.set_local_pods({family: tuple(ranges[family]) for family in layout.FAMILIES})

    async def load(self) -> bool:
        """See ``Engine``. What it wrote itself it knows, whatever the kernel has now: that is for ``repair``."""
        if not self._loaded:
            await self._connections.rules_back(self.sent)
            await self._table.load()
            for placement in self._table.written.placements.values():
                self._note(placement)
            # Not sooner: what could not be read has to be read again, or its chains would get their rules twice.
            self._loaded = True
        return False

    async def apply(self, changes: FarmChanges) -> Applied:
        """See ``Engine``."""
        placed: dict[str, Placement | None] = {}
        refused: dict[str, str] = {}
        for name, farm in changes.items():
            number = self._number(farm) if farm is not None else 0
            if number is None:
                refused[name] = f"a node can tell {layout.FARMS_MAX} farms with persistence apart, and has them"
                continue
            try:
                before = self._table.written.placements.get(name)
                placed[name] = place(farm, before, number) if farm is not None else None
            except Exception as error:
                # One unexpected farm must not end the service of all others.
                _log.exception("cannot place a farm", farm=name)
                refused[name] = f"unexpected error: {error!r}"
        earlier = {name: self._table.written.placements.get(name) for name in placed}
        refused |= await self._put(placed)
        for name in changes:
            self._refused.pop(name, None)
        self._refused |= refused
        changed = {name for name in placed if earlier[name] != self._table.written.placements.get(name)}
        return Applied(refused, changed=changed)

    async def begin(self, changes: Callable[[], FarmChanges]) -> Collection[str]:
        """See ``TableEngine``. A table of another layout serves until then."""
        self._has_begun = True
        if self._table.is_complete and not self._table.is_held:
            return ()
        applied = await self.apply(changes())
        for name, why in (await self._table.release()).items():
            self.sent.remove(name)
            self._refused[name] = why
        await self._connections.rules_back(self.sent)
        return applied.changed

    async def is_missing(self) -> bool:
        """See ``TableEngine``."""
        return await self._table.is_missing() or not (self._has_begun or self._table.is_complete)

    def _number(self, farm: NodeFarm) -> int | None:
        """Return the number of a farm, 0 if it needs none; None if there is none left."""
        return self._numbers.of(farm.name) if remembers(farm.spec) else 0

    async def _put(self, placed: Mapping[str, Placement | None]) -> dict[str, str]:
        refused = await self._table.put(placed)
        for name, placement in placed.items():
            if name not in refused:
                self.sent.remove(name)
                if placement is not None:
                    self._note(placement)
            present = self._table.written.placements.get(name)
            if present is None or present.sticky is None:
                self._numbers.free(name)
        return refused

    def _note(self, placement: Placement) -> None:
        listeners = frozenset(layout.listener(placement.family, entry.key) for entry in placement.entries)
        # A weight of three is three numbers of one endpoint.
        reachable = placement.reachable
        refuses = all(entry.chain == layout.REFUSE for entry in placement.entries)
        scheduled = 0 if refuses else max(1, len(reachable))
        if placement.sticky is not None:
            self._numbers.set(placement.name, placement.sticky.farm)
        self.sent.put(placement.name, SentFarm("nftables", listeners, len(reachable), scheduled))

    async def drift(self, name: str | None = None) -> str | None:
        """See ``Engine``. The kernel has acknowledged what a farm has, so that only its listeners are looked up."""
        if name is None:
            return await self._table.drift()
        drift = await self._drift(name)
        metrics.KERNEL_COMPARISONS.labels("different" if drift else "same").inc()
        return drift

    async def _drift(self, name: str) -> str | None:
        if (refusal := self._refused.get(name)) is not None:
            return f"its last change was refused: {refusal}"
        if name not in self._table.written.placements:
            return "the table does not have it"
        return None if await self._table.has(name) else "the kernel lacks a listener of it"

    async def repair(self, name: str | None = None) -> None:
        """See ``Engine``."""
        del name
        await self._table.repair()
        await self._connections.rules_back(self.sent)

    async def revert(self, name: str) -> bool:
        """See ``Engine``. A change that is refused has left nothing in the kernel."""
        self._refused.pop(name, None)
        return name in self._table.written.placements and await self._table.has(name)

    async def maintain(self, *, busy: bool) -> str | None:
        """See ``Engine``."""
        now = self._clock.now()
        if not busy and self._table.written.revision != self._swept:
            await self._table.sweep()
            self._swept = self._table.written.revision
        if not busy:
            self._table.prepare()
            await self._affinity_use.check(self._table.affinity_maps, now)
        if self._state_file.due(self._revision, now, busy=busy):
            self._unsaved = self._save(now)
        return self._unsaved

    @property
    def _revision(self) -> tuple[int, int]:
        """A value that differs if the state file should."""
        return self._table.written.revision, self._restrictions.digest

    def _save(self, now: float) -> str | None:
        # What restricts the others may be gone too when they are restored.
        placements = self._table.written.placements
        savable = (each for name, each in placements.items() if not self._restrictions.restricts(name))
        try:
            self._state_file.save(savable, self._revision, now)
        except OSError as error:
            _log.warning("cannot write the state file of nftables", error=str(error))
            return f"cannot write the state file of the engine nftables: {error}"
        return None

    async def aclose(self) -> str | None:
        """See ``Engine``. Before all farms are known, so is not what restricts them: the file stays as it is."""
        return self._save(self._clock.now()) if self._has_begun else None
