"""Putting the agent's parts together, and running them until a signal."""

import asyncio
import signal
from pathlib import Path

import prometheus_client
import structlog

from kube_nftlb import logs, metrics
from kube_nftlb.agent.conntrack import Conntrack
from kube_nftlb.agent.engine import NftlbEngine
from kube_nftlb.agent.nft import Nft
from kube_nftlb.agent.own_node import OwnNode, watch_own_node
from kube_nftlb.agent.own_table import OwnTable
from kube_nftlb.agent.reconcile import Reconciler
from kube_nftlb.agent.status import NodeReporter
from kube_nftlb.agent.surroundings import Surroundings
from kube_nftlb.agent.watch import watch_farms
from kube_nftlb.kube import Kube
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.kernel import Kernel
from kube_nftlb.settings import AgentSettings

_BE_LIBERAL = Path("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")

_log = structlog.get_logger()


def main(settings: AgentSettings) -> None:
    """Run the agent until SIGTERM or SIGINT. What it has programmed stays, and goes on working."""
    logs.configure(settings.log_level, settings.log_format)
    if settings.tcp_be_liberal:
        _BE_LIBERAL.write_text("1")
    asyncio.run(_run(settings))


async def _run(settings: AgentSettings) -> None:
    prometheus_client.start_http_server(
        settings.metrics_address.port, settings.metrics_address.host, registry=metrics.REGISTRY
    )
    kernel, conntrack, nft = await Kernel.open(), await Conntrack.open(), Nft.open()
    client = NftlbClient(
        settings.nftlb.url,
        settings.nftlb.key_file,
        on_request=lambda method, seconds: metrics.NFTLB_REQUEST_SECONDS.labels(method).observe(seconds),
    )
    async with await Kube.connect(user_agent="kube-nftlb-agent") as kube:
        reporter = NodeReporter(kube, settings.node_name)
        own_node = OwnNode(settings.node_name)
        engine = NftlbEngine(client, kernel, conntrack, nft, settings.nftlb.startup_file)
        reconciler = Reconciler(engine, OwnTable(nft), reporter.changed)
        surroundings = Surroundings(kube, reconciler, OwnNode(settings.node_name), settings)
        tasks = [
            asyncio.create_task(surroundings.run(), name="surroundings"),
            asyncio.create_task(watch_own_node(kube, own_node), name="watch-own-node"),
            asyncio.create_task(watch_farms(kube, reconciler), name="watch"),
            asyncio.create_task(reconciler.run(), name="reconcile"),
            asyncio.create_task(reporter.run(reconciler), name="report"),
        ]
        _log.info("agent started", node=settings.node_name)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        stopped = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)
        await client.close()
        kernel.close()
        conntrack.close()
        for task in done - {stopped}:
            task.result()
    _log.info("agent stopped", node=settings.node_name)
