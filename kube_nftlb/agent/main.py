"""Putting the agent's parts together, and running them until a signal."""

import asyncio
import gc
import os
import signal
import time
from contextlib import AsyncExitStack

import structlog

from kube_nftlb import logs, metrics
from kube_nftlb.agent.assembly import assemble
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.connections.cutter import Cutter
from kube_nftlb.agent.departure import Departure, departure, take_away
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.health.probes import AgentHealth, proxy_mode, serve_when_free
from kube_nftlb.agent.informers import watch_farms, watch_policies, watch_slices
from kube_nftlb.agent.kube_proxy.ipvs import KernelIpvs
from kube_nftlb.agent.kube_proxy.ports import held_by_others
from kube_nftlb.agent.kube_proxy.rules import ProxyRules, has_legacy_nat
from kube_nftlb.agent.kube_proxy.takeover import Takeover
from kube_nftlb.agent.node import connection_tracking
from kube_nftlb.agent.node.daemonset import OwnDaemonSet
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.node.watch import NodeWatch
from kube_nftlb.agent.status.drains import Drains
from kube_nftlb.agent.status.gauges import Gauges
from kube_nftlb.agent.status.node_events import NodeEvents
from kube_nftlb.agent.status.writer import NodeReporter
from kube_nftlb.agent.traffic import process as traffic
from kube_nftlb.agent.traffic.series import TrafficSeries
from kube_nftlb.http_server import serve
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Source, Subject
from kube_nftlb.kube.resources import NODES
from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.netfilter.chains import KernelChains
from kube_nftlb.netfilter.challenge import Challenger
from kube_nftlb.netfilter.connection_count import ConnectionCounter
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.notifications import set_own_name
from kube_nftlb.netfilter.tcp_connections import TcpConnections
from kube_nftlb.settings import AgentSettings

_COMPONENT = "kube-nftlb-agent"
_PROGRAM = "nftlb-agent"
_GARBAGE_OBJECTS = 20_000
"""How many new objects the search for cycles waits for, instead of 700.

With thousands of farms an eighth of the processor time of a start was spent on it, and nothing was found.
"""
_LAST_PASS_S = 5
"""How long the loop may take to end what it is at: what is broken off half-way leaves connections to what has gone."""

_log = structlog.get_logger()


def main(settings: AgentSettings) -> None:
    """Run the agent until SIGTERM or SIGINT.

    What it has programmed stays, and goes on working. Only where its DaemonSet is deleted, or no longer selects the
    node and kube-proxy has taken over, all is taken away.

    Raises UsageError where the metrics or health address cannot be listened on.
    """
    gc.set_threshold(_GARBAGE_OBJECTS, *gc.get_threshold()[1:])
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(node=settings.node_name)
    connection_tracking.apply(settings.conntrack, settings.sysctl_dir, os.cpu_count() or 1)
    # Changes by this program are told from those by others, which may run on Python too.
    set_own_name(_PROGRAM)
    asyncio.run(_run(settings))


async def _run(settings: AgentSettings) -> None:
    servers = ApiServers(settings.api_servers)
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await Kube.connect(user_agent=_COMPONENT, servers=servers))
        reporter = NodeReporter(kube, settings.node_name)
        limits = settings.limits
        inputs, reconciler, nft = await stack.enter_async_context(assemble(settings.nftlb, reporter.changed, limits))
        own_node = OwnNode(settings.node_name)
        health = AgentHealth(reconciler.progress, own_node, settings.sync_overdue_s)
        events = Events(kube, Source(_COMPONENT, settings.node_name))
        page = metrics.Page("agent", Gauges(reconciler, settings.sysctl_dir).refresh)
        metrics_server = await serve(
            lambda path: health.answer_kubelet(path) or page.answer(path), settings.metrics_address, "metrics"
        )
        counter = ConnectionCounter.open()
        stack.callback(counter.close)
        connections, challenger = TcpConnections.open(), Challenger()
        stack.callback(connections.close)
        stack.callback(challenger.close)
        cutter = Cutter(inputs.cuts, connections, challenger, MonotonicClock())
        drains = Drains(inputs.draining, counter, reconciler.progress, reporter.changed)
        node_watch = NodeWatch(kube, inputs, own_node, settings)
        health_checks = HealthCheckPorts(settings.node_name, health, events, node_watch.health_check_hosts)
        reader, transactions, clock = KernelChains.open(), NftSocket.open(), MonotonicClock()
        stack.callback(reader.close)
        stack.callback(transactions.close)
        rules = ProxyRules(reader, transactions, KernelIpvs())

        takeover = Takeover(
            rules,
            reconciler.progress,
            clock,
            ports=held_by_others,
            legacy_nat=has_legacy_nat,
            cleanup=settings.kube_proxy_cleanup,
            on_change=reporter.changed,
            on_removed=lambda sentence: _tell_removed(events, own_node, sentence),
        )
        taking_over = asyncio.create_task(takeover.run(), name="kube-proxy")
        reconciling = asyncio.create_task(reconciler.run(), name="reconcile")
        reporting = [
            taking_over,
            asyncio.create_task(reporter.run(reconciler), name="report"),
            asyncio.create_task(NodeEvents(events, own_node, reconciler.progress).run(), name="node-events"),
        ]
        tasks = [
            reconciling,
            asyncio.create_task(node_watch.run(), name="node-watch"),
            asyncio.create_task(watch_farms(kube, inputs, health_checks, limits), name="watch"),
            asyncio.create_task(watch_slices(kube, inputs, health_checks), name="watch-slices"),
            asyncio.create_task(watch_policies(kube, inputs, limits), name="watch-policies"),
            asyncio.create_task(drains.run(), name="drains"),
            asyncio.create_task(cutter.run(), name="cut"),
            asyncio.create_task(serve_when_free(health.answer, settings.health_address), name="health"),
            asyncio.create_task(health_checks.run(), name="health-checks"),
            asyncio.create_task(events.run(), name="events"),
            *reporting,
        ]
        if settings.traffic is not None:
            series = TrafficSeries(inputs.index, settings.traffic, time.monotonic)
            tasks.append(asyncio.create_task(traffic.run(series.add), name="traffic"))
        if settings.proxy_mode_address is not None:
            serving = serve_when_free(proxy_mode, settings.proxy_mode_address, what="proxy mode")
            tasks.append(asyncio.create_task(serving, name="proxy-mode"))
        daemon_set = None
        if settings.daemon_set:
            daemon_set = OwnDaemonSet(kube, settings.namespace, settings.daemon_set)
            tasks.append(asyncio.create_task(daemon_set.run(), name="daemon-set"))
        _log.info("agent started")
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        stopped = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for reports in reporting:
            # nftlb ends at the same time, which is no news.
            reports.cancel()
        why = Departure.RESTART
        if done == {stopped}:
            # Changes are programmed until kube-proxy has taken over.
            why = await departure(daemon_set, own_node, rules, clock)
        reconciler.stop()
        await asyncio.wait([reconciling], timeout=_LAST_PASS_S)
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)
        metrics_server.close()
        for task in done - {stopped}:
            task.result()
        await take_away(why, kube, own_node, settings.nftlb, nft)
    _log.info("agent stopped")


def _tell_removed(events: Events, own_node: OwnNode, sentence: str) -> None:
    if (node := own_node.current) is not None:
        subject = Subject(NODES, "", node.metadata.name, node.metadata.uid)
        events.report_resolved(subject, "KubeProxyRulesRemoved", sentence)
