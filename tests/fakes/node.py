"""An agent's loop on a node without a kernel; time passes as fast as the loop waits."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.engine.base import DaemonEngine
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.endpointslices.slices import Slice
from kube_nftlb.limits import NamespaceLimits
from tests.fakes.clock import FakeClock
from tests.fakes.conntrack import FakeConntrack
from tests.fakes.engine import FakeEngine
from tests.fakes.nft import FakeNft, FakeTableReader
from tests.fakes.pod_links import FakePodLinks

E = TypeVar("E", bound=DaemonEngine)
WEB = FarmKey("default", "web--http")


class FakeNode(Generic[E]):
    """Subclasses make the engine nftlb. ``start`` begins an agent, which finds what earlier ones have left."""

    engine: E
    nftables: FakeEngine
    reader: FakeTableReader
    state: LoopState
    loop: Reconciler
    task: "asyncio.Task[None]"

    def __init__(self, timing: Timing | None = None, limits: NamespaceLimits | None = None) -> None:
        self.limits = limits or NamespaceLimits()
        self.timing = timing or Timing()
        self.nft, self.clock, self.conntrack = FakeNft(), FakeClock(), FakeConntrack()
        self.pod_links = FakePodLinks()
        self.reports: list[tuple[int, int]] = []
        """The watermark and the number of programmed farms at each report."""
        self.errors: list[str] = []
        """``last_error`` at each report."""

    def make_engine(self) -> E:
        raise NotImplementedError

    def start(self, policies: list[dict[str, Any]] | None, slices: Iterable[Slice] | None = ()) -> None:
        """None: the policies or slices are not listed yet."""
        table = AgentTable(self.nft)
        self.nftables = FakeEngine(self.nftables.farms if hasattr(self, "nftables") else None)
        self.connections = Connections(self.conntrack, self.conntrack, self.clock)
        self.engine = self.make_engine()
        engines = Engines(self.nftables, self.engine, self.clock)
        latency = ProgrammingLatency(datetime.now(UTC))
        self.state = LoopState(
            engines, FeatureProbe(self.nft, self.clock), latency, self.connections, self.clock, self.limits
        )
        self.loop = Reconciler(
            self.state,
            engines,
            table,
            self.reader,
            self.reader,
            self.pod_links,
            self.clock,
            on_progress=self._reported,
            timing=self.timing,
        )
        self.state.set_node(NodeFacts("node-1"), {})
        self.state.set_node_ips(())
        if policies is not None:
            self.state.replace_policies(policies, 1)
        if slices is not None:
            self.list_slices(slices, 1)
        self.task = asyncio.create_task(self.loop.run())

    def _reported(self) -> None:
        self.reports.append((self.loop.progress.watermark, len(self.loop.sent)))
        self.errors.append(self.loop.progress.last_error or "")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def restart_agent(
        self, policies: list[dict[str, Any]] | None = None, slices: Iterable[Slice] | None = ()
    ) -> None:
        await self.stop()
        self.start(policies or [], slices)

    # What the watches report.

    def list(self, farms: Iterable[Farm], version: int) -> None:
        self.state.replace_all(farms, version)

    def put(self, *farms: Farm) -> None:
        for farm in farms:
            self.state.put(farm)
            self.state.seen(int(farm.metadata.resource_version or 0))

    async def program(self, farms: Iterable[Farm], version: int) -> None:
        """List these farms at a resourceVersion, and wait until they are programmed."""
        self.list(farms, version)
        await self.settle(version)

    async def change(self, *farms: Farm) -> None:
        """Add or update farms, and wait until they are programmed."""
        self.put(*farms)
        await self.settle(max(int(farm.metadata.resource_version or 0) for farm in farms))

    def list_slices(self, slices: Iterable[Slice], version: int) -> None:
        present = {(each.namespace, each.name): each for each in slices}
        for key, each in present.items():
            self.state.put_slice(key, each, version, None)
        self.state.slices_listed(present, version)

    def put_slice(self, each: Slice, version: int, made_at: datetime | None = None) -> None:
        self.state.put_slice((each.namespace, each.name), each, version, made_at)
        self.state.slices_seen(version)

    def put_unreadable(self, key: FarmKey, version: int, **more: Any) -> None:
        self.state.put_unreadable(key, Problem("Invalid", "spec.mode: what"), version, **more)
        self.state.seen(version)

    def remove(self, key: FarmKey, version: int) -> None:
        self.state.remove(key, version)
        self.state.seen(version)

    # Waiting.

    async def settle(self, version: int) -> None:
        """Wait until everything up to this resourceVersion is programmed."""
        await until(lambda: self.loop.progress.watermark >= version)

    async def passes(self, seconds: float) -> None:
        """Let time pass on the loop's clock."""
        end = self.clock.now() + seconds
        await until(lambda: self.clock.now() >= end)

    async def settle_slices(self, version: int) -> None:
        """Wait until all EndpointSlices up to this resourceVersion are programmed."""
        await until(lambda: self.loop.progress.slice_watermark >= version)

    def reason(self, name: str = "web--http") -> str | None:
        """The reason of a farm's problem."""
        problem = self.loop.progress.problems.get(FarmKey("default", name))
        return problem.reason if problem is not None else None


async def until(done: Callable[[], bool], seconds: float = 30) -> None:
    """Let the loop run. ``seconds`` of real time are the limit, and never waited for."""
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0)
