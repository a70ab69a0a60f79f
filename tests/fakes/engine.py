"""An engine without a data plane, for tests of the loop."""

from collections.abc import Callable, Collection, Mapping

from kube_nftlb import errors
from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.engine.sent import SentFarms
from kube_nftlb.agent.model import Blocker, NodeFarm, SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import traffic_policy
from kube_nftlb.netfilter.table_text import Contents


class FakeEngine:
    """Programs farms into ``farms``, each change in a transaction of its own, and records what it was called for."""

    def __init__(self, farms: Mapping[str, NodeFarm] | None = None) -> None:
        """``farms`` are those that an earlier agent has left."""
        self.farms = dict(farms or {})
        self.reachable = True
        self.hangs = False
        """True if it does not answer, where it is not reachable."""
        self.asks_seldom = False
        """True if ``maintain`` does not notice that it is not reachable."""
        self.was_restarted = False
        """True if it has lost its farms since they were loaded."""
        self.refused: dict[str, str] = {}
        """Farms that the data plane refuses, and why."""
        self.deviations: dict[str | None, str] = {}
        """Deviations of the kernel, by farm or of what all share (None), until it is repaired."""
        self.leftovers: dict[str, str] = {}
        """What the data plane still has of farms that were withdrawn."""
        self.irreparable: set[str] = set()
        """Farms whose deviation stays."""
        self.blockers: dict[str, Blocker] = {}
        self.changes: list[tuple[str, NodeFarm | None]] = []
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
        self._sent, self._noted = SentFarms(), dict[str, int]()
        """What it has, and the farms of which that was made."""
        self._verified: set[str] = set()
        self._before: dict[str, NodeFarm] = {}
        """The farms as they were when they last did not deviate."""
        self._refused: dict[str, str] = {}
        """Reasons that the last changes of farms were refused."""

    @property
    def sent(self) -> SentFarms:
        now = {name: id(farm) for name, farm in self.farms.items()}
        if now != self._noted:
            self._noted, self._sent = now, self._as_sent()
        return self._sent

    def _as_sent(self) -> SentFarms:
        sent = SentFarms()
        for name, farm in self.farms.items():
            endpoints = len(farm.endpoints)
            scheduled = sum(each.schedulable for each in farm.endpoints)
            listeners, is_local = frozenset(farm.listeners), farm.spec.mode == "local"
            sent.put(name, SentFarm(farm.spec.engine, listeners, endpoints, scheduled, is_local))
        return sent

    @property
    def suspects(self) -> Collection[str]:
        return ()

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        return self.blockers.get(farm.name)

    def contents(self, farm: NodeFarm) -> Contents:
        return traffic_policy.contents(farm)

    async def restore(self) -> None:
        pass

    async def set_node(self, node: NodeFacts) -> None:
        pass

    def restarted(self) -> bool:
        return self.was_restarted

    async def blank(self) -> bool:
        return not self.farms

    async def load(self) -> bool:
        self._answer()
        if self.was_restarted:
            self.farms.clear()
        self.was_restarted = False
        return not self._verified <= self.farms.keys()

    async def begin(self, changes: Callable[[], FarmChanges]) -> Collection[str]:
        self.begun.append(len(changes()))
        return ()

    async def is_missing(self) -> bool:
        return self.missing

    async def apply(self, changes: FarmChanges) -> Applied:
        self._answer()
        if (error := self.error) is not None:
            self.error = None
            raise error
        changed = {name for name, farm in changes.items() if self._apply(name, farm)}
        listeners = [listener for farm in self.farms.values() for listener in farm.listeners]
        assert len(listeners) == len(set(listeners)), "two farms have one listener"
        for name in changes:
            self._refused.pop(name, None)
        concerned = (name for name, farm in changes.items() if self.farms.get(name) != farm)
        refused = {name: why for name in concerned if (why := self.refused.get(name))}
        self._refused |= refused
        return Applied(refused, changed=changed)

    def _apply(self, name: str, farm: NodeFarm | None) -> bool:
        if self.farms.get(name) == farm or name in self.refused:
            return False
        self.writes += 1
        self.changes.append((name, farm))
        self._verified.discard(name)
        if farm is None:
            del self.farms[name]
            self._before.pop(name, None)
        else:
            self.farms[name] = farm
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

    async def leftover(self, name: str) -> str | None:
        return self.leftovers.get(name)

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
