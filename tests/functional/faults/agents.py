"""Agents without a data plane, many in one program: ``python -m tests.functional.faults.agents PREFIX NUMBER``.

Each has the watches, the loop and the status of a real agent, and a connection pool of its own. Prints ``begun``
when all have programmed what there is, logs to standard error, and runs until it is killed.
"""

import asyncio
import os
import resource
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from kube_nftlb import logs
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.health.probes import AgentHealth
from kube_nftlb.agent.informers import watch_farms, watch_policies, watch_slices
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.node_watch import NodeWatch
from kube_nftlb.agent.status.node_reporter import NodeReporter
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.settings import AgentSettings
from tests.fakes.conntrack import no_connections
from tests.fakes.engine import FakeEngine
from tests.fakes.nft import FakeNft, FakeTableReader
from tests.fakes.pod_links import FakePodLinks

_USER_AGENT = "kube-nftlb-agent"
# What an agent asks its own kernel, and how often, is nobody else's load.
_TIMING = Timing(poll_s=30, maintain_every_s=30)
_APART_S = 0.02
"""Between the starts of two agents: nodes do not start at once either."""


class Agent:
    """One agent, until it is cancelled."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.reconciler: Reconciler | None = None

    @property
    def settled(self) -> bool:
        """True once it has programmed all that it was told of."""
        return self.reconciler is not None and self.reconciler.settled and not self.reconciler.progress.pending

    async def run(self) -> None:
        """Run until cancelled."""
        settings = AgentSettings.from_environment({**os.environ, "KUBE_NFTLB_NODE_NAME": self._node})
        async with AsyncExitStack() as stack:
            kube = await stack.enter_async_context(await Kube.connect(user_agent=_USER_AGENT))
            reporter = NodeReporter(kube, self._node)
            clock, nft = MonotonicClock(), FakeNft()
            table = AgentTable(nft)
            engine = FakeEngine()
            engines = Engines(FakeEngine(), engine, clock)
            reader = FakeTableReader(nft, lambda: engine.writes)
            latency = ProgrammingLatency(datetime.now(UTC))
            state = LoopState(engines, FeatureProbe(nft), latency, no_connections(clock), clock, settings.limits)
            reconciler = Reconciler(
                state,
                engines,
                table,
                reader,
                reader,
                FakePodLinks(),
                clock,
                on_progress=reporter.changed,
                timing=_TIMING,
            )
            own_node = OwnNode(self._node)
            events = Events(kube, Source(_USER_AGENT, self._node))
            health = AgentHealth(reconciler.progress, state.has_failed, own_node, settings.sync_overdue_s)
            # Not run: all would listen on the same ports.
            health_checks = HealthCheckPorts(self._node, health, events)
            self.reconciler = reconciler
            async with asyncio.TaskGroup() as group:
                group.create_task(reconciler.run())
                group.create_task(NodeWatch(kube, state, own_node, settings).run())
                group.create_task(watch_farms(kube, state, health_checks, settings.limits))
                group.create_task(watch_slices(kube, state, health_checks))
                group.create_task(watch_policies(kube, state, settings.limits))
                group.create_task(reporter.run(reconciler))


async def _run(prefix: str, number: int) -> None:
    agents = [Agent(f"{prefix}-{index}") for index in range(number)]
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.run())
            await asyncio.sleep(_APART_S)
        while not all(agent.settled for agent in agents):
            await asyncio.sleep(0.2)
        print("begun", flush=True)


def main() -> None:
    """Run the agents."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logs.configure("WARNING", "json")
    asyncio.run(_run(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
