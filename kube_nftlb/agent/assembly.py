"""Put the loop, its engine and its sources together: for the agent, and for ``kube-nftlb render -o nft``."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from kube_nftlb import metrics
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.dsr.pod_addresses import PodAddresses
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.engine.nftables.engine import NftablesEngine
from kube_nftlb.agent.engine.nftables.reading import TableElements
from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.agent.table.base import nftlb_port
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.netfilter.challenge import Challenger
from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.notifications import Notifications
from kube_nftlb.netfilter.tracing import tracer
from kube_nftlb.nftlb import daemon
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.readback import NftlbReader
from kube_nftlb.nftlb.requests import Request
from kube_nftlb.settings import NftlbSettings

_log = structlog.get_logger()


class Assembly(NamedTuple):
    """The state that the watches fill, the loop, libnftables, and the connections of farms."""

    state: LoopState
    reconciler: Reconciler
    nft: Nft
    connections: Connections


@asynccontextmanager
async def assemble(
    settings: NftlbSettings,
    on_progress: Callable[[], None] = lambda: None,
    limits: NamespaceLimits = NamespaceLimits(),  # noqa: B008 - immutable
) -> AsyncIterator[Assembly]:
    """Open everything that the loop needs in this network namespace, and close it on exit."""
    reader, nft, clock = NftlbReader.open(), Nft.open(), MonotonicClock()
    conntrack, challenger = Conntrack.open(), Challenger()
    connections = Connections(conntrack, challenger, clock)

    def on_silence(message: str | None) -> None:
        state.progress.engine_error = message
        on_progress()

    def on_version(version: str) -> None:
        state.progress.nftlb_version = version
        on_progress()

    client = NftlbClient(
        settings.url, settings.key_file, on_request=_on_request, on_silence=on_silence, on_version=on_version
    )
    # The table of a trace is its own, and goes with it.
    table = AgentTable(nft, nftlb_port(settings.port))
    watch = Notifications.open(daemon.PROGRAM, tracer.PROGRAM)
    netfilter, elements = NftSocket.open(watch.muted), TableElements.open()
    nftables = NftablesEngine(nft, netfilter, elements, connections, table, settings.nftables_file, clock)
    nftlb = NftlbEngine(client, reader, conntrack, connections, nft, settings.startup_file, clock)
    engines = Engines(nftables, nftlb, clock)
    state = LoopState(
        engines, FeatureProbe(nft, clock), ProgrammingLatency(datetime.now(UTC)), connections, clock, limits
    )
    watch.call(state.wake.set)
    links = PodAddresses(settings.pods_file)
    try:
        yield Assembly(
            state,
            Reconciler(state, engines, table, reader, watch, links, clock, on_progress=on_progress),
            nft,
            connections,
        )
    finally:
        await client.close()
        reader.close()
        netfilter.close()
        elements.close()
        watch.close()
        conntrack.close()
        challenger.close()


def _on_request(request: Request, seconds: float) -> None:
    metrics.NFTLB_REQUEST_SECONDS.labels(request.method).observe(seconds)
    # Without its body, which may contain the clients of sessions.
    _log.debug("nftlb request", method=request.method, path=request.path, ms=round(seconds * 1000, 1))
