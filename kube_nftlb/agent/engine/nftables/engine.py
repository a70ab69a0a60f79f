"""The engine of nftables maps. Everything that a farm needs is elements, and a batch of changes is one transaction.

See docs/dataplane.md.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import structlog

from kube_nftlb import metrics
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.engine.base import Applied, FarmChange
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.affinity_use import AffinityUse
from kube_nftlb.agent.engine.nftables.farm_numbers import FarmNumbers
from kube_nftlb.agent.engine.nftables.placement import Placement, place
from kube_nftlb.agent.engine.nftables.reading import ElementReader
from kube_nftlb.agent.engine.nftables.state_file import StateFile
from kube_nftlb.agent.engine.nftables.store import Store
from kube_nftlb.agent.engine.nftables.support import unsupported
from kube_nftlb.agent.engine.owners import ListenerOwners
from kube_nftlb.agent.model import Blocker, NodeFarm, Programmed
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import policies, source_ranges
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables.transaction import Transactions
from kube_nftlb.netfilter.transaction import Contents

_log = structlog.get_logger()


class NftablesEngine:
    """See ``Engine``."""

    name: ClassVar[str] = "nftables"

    def __init__(
        self,
        nft: Nftables,
        netfilter: Transactions,
        reader: ElementReader,
        connections: Connections,
        table: AgentTable,
        state_file: Path,
        clock: Clock,
    ) -> None:
        self._netfilter = netfilter
        self._table = table
        self._clock = clock
        self._store = Store(nft, netfilter, reader)
        self._connections = connections
        self._state_file = StateFile(state_file)
        self._programmed: dict[str, Programmed] = {}
        self._refused: dict[str, str] = {}
        """Reasons that the last changes of farms were refused: what was asked for is not what the kernel has."""
        self._owners = ListenerOwners()
        self._numbers = FarmNumbers()
        self._affinity_use = AffinityUse(reader)
        self._loaded = False
        self._has_begun = False
        """False until all farms are known."""
        self._swept = -1
        """The revision of the store after which it was last swept."""
        self._unsaved: str | None = None
        """Reason the state file was not written when last tried; None if it was."""

    @property
    def unreachable(self) -> str:
        """See ``Engine``."""
        return ""

    @property
    def programmed(self) -> Mapping[str, Programmed]:
        """See ``Engine``."""
        return self._programmed

    @property
    def suspects(self) -> Collection[str]:
        """See ``Engine``. The kernel is not brought down by what it refuses."""
        return ()

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """See ``Engine``."""
        return unsupported(farm)

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        """See ``Engine``."""
        return self._owners.of(listeners)

    def overlay(self, farm: NodeFarm) -> Contents:
        """See ``Engine``."""
        return source_ranges.contents(farm)

    def rules(self, changes: Sequence[FarmChange]) -> dict[str, Contents]:
        """See ``Engine``."""
        rules = {each.name: each.overlay for each in changes if each.overlay is not None}
        return rules | {policies.rules_owner(each.name): each.policies for each in changes}

    def restarted(self) -> bool:
        """See ``Engine``."""
        return False

    async def restore(self) -> None:
        """See ``Engine``."""
        await self.load()
        if not self._store.placements and (placed := self._state_file.read()):
            refused = await self._put(placed)
            _log.info("restored farms", farms=len(placed) - len(refused))

    async def set_node(self, node: NodeFacts) -> None:
        """See ``Engine``."""
        ranges = {"ip": node.pod_cidrs.get("ipv4", ()), "ip6": node.pod_cidrs.get("ipv6", ())}
        await self._store.set_local_pods({family: tuple(ranges[family]) for family in layout.FAMILIES})

    async def load(self) -> bool:
        """See ``Engine``. What it wrote itself it knows, whatever the kernel has now: that is for ``repair``."""
        if not self._loaded:
            await self._connections.rules_back(self._programmed)
            await self._store.load()
            for placement in self._store.placements.values():
                self._note(placement)
            # Not sooner: what could not be read has to be read again, or its chains would get their rules twice.
            self._loaded = True
        return False

    async def apply(self, changes: Sequence[FarmChange]) -> Applied:
        """See ``Engine``.

        Rules that keep clients out are added to the agent table before elements change, and removed afterwards.
        """
        overlays = {each.name: each.overlay for each in changes if each.overlay is not None}
        before = overlays | {policies.rules_owner(each.name): each.policies for each in changes}
        before = {owner: self._table.owned(owner) | contents for owner, contents in before.items()}
        if rules_refused := await self._table.update(before):
            return Applied(rules_refused=rules_refused, nothing_done=True)
        refused, changed = await self._apply(changes)
        # Those that are refused stay where they were: their clients are kept out there as before.
        after = {name: overlay for name, overlay in overlays.items() if name not in refused}
        after |= {policies.rules_owner(each.name): each.policies_after for each in changes if each.name not in refused}
        rules_refused = await self._table.update(after)
        return Applied(refused, rules_refused, changed=changed)

    async def begin(self, changes: Callable[[], Sequence[FarmChange]]) -> Collection[str]:
        """See ``Engine``. A table of another layout serves until then."""
        self._has_begun = True
        if self._store.is_complete and not self._store.is_held:
            return ()
        _, changed = await self._apply(changes())
        for name, why in (await self._store.release()).items():
            self._forget(name)
            self._refused[name] = why
        await self._connections.rules_back(self._programmed)
        return changed

    async def is_missing(self) -> bool:
        """See ``Engine``."""
        return await self._store.is_missing() or not (self._has_begun or self._store.is_complete)

    async def _apply(self, changes: Sequence[FarmChange]) -> tuple[dict[str, str], set[str]]:
        placed: dict[str, Placement | None] = {}
        refused: dict[str, str] = {}
        for change in changes:
            if change.keep:
                continue
            if change.farm is not None and self._number(change.farm) is None:
                refused[change.name] = f"a node can tell {layout.FARMS_MAX} farms with persistence apart, and has them"
                continue
            try:
                placed[change.name] = self._place(change.farm) if change.farm is not None else None
            except Exception as error:
                # One unexpected farm must not end the service of all others.
                _log.exception("cannot place a farm", farm=change.name)
                refused[change.name] = f"unexpected error: {error!r}"
        before = {name: self._store.placements.get(name) for name in placed}
        refused |= await self._put(placed)
        for change in changes:
            self._refused.pop(change.name, None)
        self._refused |= refused
        changed = {name for name in placed if before[name] != self._store.placements.get(name)}
        return refused, changed

    def _place(self, farm: NodeFarm) -> Placement:
        return place(farm, self._store.placements.get(farm.name), self._number(farm) or 0)

    def _number(self, farm: NodeFarm) -> int | None:
        """Return the number of a farm, 0 if it needs none; None if there is none left."""
        return self._numbers.of(farm.name) if farm.spec.persistence != "none" else 0

    async def _put(self, placed: Mapping[str, Placement | None]) -> dict[str, str]:
        refused = await self._store.put(placed)
        for name, placement in placed.items():
            if name not in refused:
                self._forget(name)
                if placement is not None:
                    self._note(placement)
                if placement is None or placement.sticky is None:
                    self._numbers.free(name)
        return refused

    def _note(self, placement: Placement) -> None:
        listeners = frozenset(layout.listener(placement.family, entry.key) for entry in placement.entries)
        # A weight of three is three numbers of one endpoint.
        reachable = {*placement.endpoints, *placement.inside}
        if placement.sticky is not None:
            reachable.update(to for _, to in placement.sticky.endpoints)
        refuses = all(entry.chain == layout.REFUSE for entry in placement.entries)
        scheduled = 0 if refuses else max(1, len(reachable))
        if placement.sticky is not None:
            self._numbers.set(placement.name, placement.sticky.farm)
        self._programmed[placement.name] = Programmed("nftables", listeners, len(reachable), scheduled)
        self._owners.add(placement.name, listeners)

    def _forget(self, name: str) -> None:
        if (before := self._programmed.pop(name, None)) is not None:
            self._owners.remove(name, before.listeners)

    async def drift(self, name: str | None = None) -> str | None:
        """See ``Engine``. The kernel has acknowledged what a farm has, so that only its listeners are looked up."""
        drift = await self._drift(name)
        metrics.KERNEL_COMPARISONS.labels("different" if drift else "same").inc()
        return drift

    async def _drift(self, name: str | None) -> str | None:
        if name is None:
            return await self._store.drift()
        if (refusal := self._refused.get(name)) is not None:
            return f"its last change was refused: {refusal}"
        if name not in self._store.placements:
            return "the table does not have it"
        return None if await self._store.has(name) else "the kernel lacks a listener of it"

    async def repair(self, name: str | None = None) -> None:
        """See ``Engine``."""
        del name
        await self._store.repair()
        await self._connections.rules_back(self._programmed)

    async def revert(self, name: str) -> bool:
        """See ``Engine``. A change that is refused has left nothing in the kernel."""
        self._refused.pop(name, None)
        return name in self._store.placements and await self._store.has(name)

    async def forget_stale(self, name: str) -> None:
        """See ``Engine``. Its sessions lead nowhere once their endpoint is gone."""

    async def maintain(self, *, busy: bool) -> str | None:
        """See ``Engine``."""
        now = self._clock.now()
        if not busy and self._store.revision != self._swept:
            await self._store.sweep()
            self._swept = self._store.revision
        if not busy:
            await self._affinity_use.check(self._store.affinity_maps, now)
        if self._state_file.due(self._revision, now, busy=busy):
            self._unsaved = self._save(now)
        return self._unsaved

    @property
    def _revision(self) -> tuple[int, int]:
        """A value that differs if the state file should."""
        return self._store.revision, self._table.digest

    def _save(self, now: float) -> str | None:
        # Those that need nothing of the agent table, which may be gone too when they are restored.
        savable = (
            placement
            for name, placement in self._store.placements.items()
            if not (self._table.owned(name) or self._table.owned(policies.rules_owner(name)))
        )
        try:
            self._state_file.save(savable, self._revision, now)
        except OSError as error:
            _log.warning("cannot write the state file of nftables", error=str(error))
            return f"cannot write the state file of the engine nftables: {error}"
        return None

    async def aclose(self) -> str | None:
        """See ``Engine``."""
        return self._save(self._clock.now())
