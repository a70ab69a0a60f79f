"""An engine without a data plane, for tests of the loop."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from kube_nftlb import errors
from kube_nftlb.agent.engine.base import Applied, FarmChange
from kube_nftlb.agent.model import Blocker, NodeFarm, Programmed
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import layout, policies, traffic_policy
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.transaction import Contents
from tests.fakes.nft import FakeNft


class FakeEngine:
    """Programs farms into ``farms``, each change in a transaction of its own, and records what it was called for."""

    name: ClassVar[str] = "fake"

    def __init__(self, table: AgentTable, nft: FakeNft, farms: Mapping[str, NodeFarm] | None = None) -> None:
        """``farms`` are those that an earlier agent has left."""
        self._table = table
        self._nft = nft
        self.farms = dict(farms or {})
        self.reachable = True
        self.hangs = False
        """True if it does not answer, where it is not reachable."""
        self.asks_seldom = False
        """True if ``maintain`` does not notice that it is not reachable."""
        self.was_restarted = False
        self.refused: dict[str, str] = {}
        """Farms that the data plane refuses, and why."""
        self.deviations: dict[str | None, str] = {}
        """Deviations of the kernel, by farm or of what all share (None), until it is repaired."""
        self.irreparable: set[str] = set()
        """Farms whose deviation stays."""
        self.blockers: dict[str, Blocker] = {}
        self.changes: list[FarmChange] = []
        """The changes that made a difference."""
        self.compared: list[str | None] = []
        self.repaired: list[str | None] = []
        self.reverted: list[str] = []
        """Farms that stay as they were before a change that was refused."""
        self.error: Exception | None = None
        """Raised by the next ``apply``."""
        self.trouble: str | None = None
        """Returned by ``maintain``."""
        self.closed = False
        self.begun: list[int] = []
        """The numbers of changes in calls of ``begin``."""
        self.missing = False
        """True if the data plane has lost everything."""
        self.writes = 0
        self._verified: set[str] = set()
        self._before: dict[str, NodeFarm] = {}
        """The farms as they were when they last did not deviate."""
        self._refused: dict[str, str] = {}
        """Reasons that the last changes of farms were refused."""

    @property
    def unreachable(self) -> str:
        return ""

    @property
    def programmed(self) -> Mapping[str, Programmed]:
        return {
            name: Programmed(
                farm.spec.engine,
                frozenset(farm.listeners),
                len(farm.endpoints),
                sum(each.schedulable for each in farm.endpoints),
                farm.spec.mode == "local",
            )
            for name, farm in self.farms.items()
        }

    @property
    def suspects(self) -> Collection[str]:
        return ()

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        return self.blockers.get(farm.name)

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        return {name for name, has in self.programmed.items() if not has.listeners.isdisjoint(listeners)}

    def overlay(self, farm: NodeFarm) -> Contents:
        return traffic_policy.contents(farm)

    async def restore(self) -> None:
        pass

    async def set_node(self, node: NodeFacts) -> None:
        pass

    def rules(self, changes: Sequence[FarmChange]) -> dict[str, Contents]:
        rules = {}
        for change in changes:
            before = self.programmed.get(change.name)
            has = before.listeners if before is not None and change.farm is None and not change.keep else ()
            rules[change.name] = layout.refused(has) | (change.overlay or Contents())
            rules[policies.rules_owner(change.name)] = change.policies
        return rules

    def restarted(self) -> bool:
        return self.was_restarted

    async def blank(self) -> bool:
        return not self.farms

    async def load(self) -> bool:
        self._answer()
        self.was_restarted = False
        return not self._verified <= self.farms.keys()

    async def begin(self, changes: Callable[[], Sequence[FarmChange]]) -> Collection[str]:
        self.begun.append(len(changes()))
        return ()

    async def is_missing(self) -> bool:
        return self.missing

    async def apply(self, changes: Sequence[FarmChange]) -> Applied:
        self._answer()
        if (error := self.error) is not None:
            self.error = None
            raise error
        before = {policies.rules_owner(each.name): each.policies for each in changes}
        before |= {each.name: each.overlay for each in changes if each.overlay is not None}
        before = {owner: self._table.owned(owner) | contents for owner, contents in before.items()}
        if rules_refused := await self._table.update(before):
            return Applied(rules_refused=rules_refused, nothing_done=True)
        changed = {each.name for each in changes if self._apply(each)}
        done = [each for each in changes if each.name not in self.refused]
        after = {policies.rules_owner(each.name): each.policies_after for each in done}
        after |= {each.name: each.overlay for each in done if each.overlay is not None}
        rules_refused = await self._table.update(after)
        listeners = [listener for farm in self.farms.values() for listener in farm.listeners]
        assert len(listeners) == len(set(listeners)), "two farms have one listener"
        for each in changes:
            self._refused.pop(each.name, None)
        concerned = (each for each in changes if not each.keep and self.farms.get(each.name) != each.farm)
        refused = {each.name: why for each in concerned if (why := self.refused.get(each.name))}
        self._refused |= refused
        return Applied(refused, rules_refused, changed=changed)

    def _apply(self, change: FarmChange) -> bool:
        if change.keep or self.farms.get(change.name) == change.farm or change.name in self.refused:
            return False
        self.writes += 1
        self.changes.append(change)
        self._verified.discard(change.name)
        if change.farm is None:
            del self.farms[change.name]
            self._before.pop(change.name, None)
        else:
            self.farms[change.name] = change.farm
        return True

    async def drift(self, name: str | None = None) -> str | None:
        self._answer()
        self.compared.append(name)
        if name is not None and name not in self.farms:
            return "it is not there"
        refusal = self._refused.get(name) if name is not None else None
        if (drift := refusal or self.deviations.get(name)) is None and name is not None:
            self._verified.add(name)
            self._before[name] = self.farms[name]
        return drift

    async def repair(self, name: str | None = None) -> None:
        self._answer()
        self.repaired.append(name)
        self.writes += 1
        self.missing = self.missing and name is not None
        if name not in self.irreparable:
            self.deviations.pop(name, None)

    async def revert(self, name: str) -> bool:
        self._answer()
        if name not in self._before or name in self.irreparable:
            return False
        self.reverted.append(name)
        self.farms[name] = self._before[name]
        self._refused.pop(name, None)
        return self.deviations.get(name) is None

    async def forget_stale(self, name: str) -> None:
        return

    async def maintain(self, *, busy: bool) -> str | None:
        if not self.asks_seldom:
            self._answer()
        return self.trouble

    async def aclose(self) -> str | None:
        self.closed = True
        return None

    def _answer(self) -> None:
        if not self.reachable:
            if self.hangs:
                raise errors.NftlbHangsError("no answer")
            raise errors.EngineUnreachableError("connection refused")
