"""The duties of an agent, each a task of its own, and the parts that they share."""

import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from kube_nftlb import metrics
from kube_nftlb.agent import keep_nat
from kube_nftlb.agent.announcing.announcing import Announcing
from kube_nftlb.agent.announcing.bird import Bird
from kube_nftlb.agent.announcing.leftovers import remove_earlier_routes
from kube_nftlb.agent.assembly import assemble
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.health.probes import AgentHealth, proxy_mode, serve_when_free
from kube_nftlb.agent.informers import watch_farms, watch_policies, watch_slices
from kube_nftlb.agent.kube_proxy.ipvs import KernelIpvs
from kube_nftlb.agent.kube_proxy.ports import held_by_others
from kube_nftlb.agent.kube_proxy.rules import ProxyRules, has_legacy_nat
from kube_nftlb.agent.kube_proxy.takeover import Takeover, unserved_by
from kube_nftlb.agent.node.connection_tracking import apply_once_loaded
from kube_nftlb.agent.node.daemonset import OwnDaemonSet
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.node_watch import NodeWatch
from kube_nftlb.agent.status.drains import Drains
from kube_nftlb.agent.status.gauges import Gauges
from kube_nftlb.agent.status.node_events import NodeEvents
from kube_nftlb.agent.status.node_reporter import NodeReporter
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.agent.traffic.series import TrafficSeries, count_traffic
from kube_nftlb.announce.bgp.table import RouteTable
from kube_nftlb.announce.bird.control import BirdControl
from kube_nftlb.announce.bird.intervals import IntervalsFile
from kube_nftlb.http_server import serve
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Source, Subject
from kube_nftlb.kube.resources import NODES
from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.netfilter.chains import KernelChains
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.settings import AgentSettings

_COMPONENT = "kube-nftlb-agent"

Duty = Callable[[], Coroutine[Any, Any, None]]
"""Runs until it is cancelled."""


class Agent(NamedTuple):
    """An agent that is put together, and does nothing yet."""

    kube: Kube
    own_node: OwnNode
    reconciler: Reconciler
    nft: Nft
    proxy_rules: ProxyRules
    daemon_set: OwnDaemonSet | None
    """The agent's own, or None if it is not known to belong to one."""
    stop_first: Mapping[str, Duty]
    """Duties that end before it is decided what becomes of the node: rules that kube-proxy writes now are to stay."""
    stop_after_handover: Mapping[str, Duty]
    """Duties that end once that is decided: until then changes are programmed, and others wait for their report."""
    on_proxy_ports: Mapping[str, Duty]
    """Duties that listen on ports of kube-proxy, which may need them first."""
    duties: Mapping[str, Duty]
    """All else but the reconciler's loop, which ends before them."""
    announcing: Announcing | None
    """None if no addresses are announced."""


async def open_agent(settings: AgentSettings, stack: AsyncExitStack) -> Agent:
    """Open all that an agent needs; ``stack`` closes it.

    Raises UsageError where the metrics or health address cannot be listened on.
    """
    servers = ApiServers(settings.api_servers)
    kube = await stack.enter_async_context(await Kube.connect(user_agent=_COMPONENT, servers=servers))
    reporter = NodeReporter(kube, settings.node_name, settings.report_s)
    assembly = await stack.enter_async_context(assemble(settings.nftlb, reporter.changed, settings.limits))
    state, reconciler, nft, connections = assembly
    own_node = OwnNode(settings.node_name)
    health = AgentHealth(reconciler.progress, state.has_failed, own_node, settings.sync_overdue_s)
    events = Events(kube, Source(_COMPONENT, settings.node_name))
    await remove_earlier_routes(settings)
    announcing = None
    if settings.addresses:
        announcing = Announcing(
            kube,
            settings.node_name,
            settings.namespace,
            settings.responder_socket,
            state,
            reporter.changed,
            RouteTable(settings.bgp_table) if settings.bgp else None,
            _bird(settings, kube, reporter.changed),
        )
        reporter.addresses = lambda: announcing.summary
        reporter.bgp = lambda: announcing.bgp
    of_addresses = (announcing.counts, lambda: announcing.bgp) if announcing is not None else ()
    gauges = Gauges(state, reconciler, settings.sysctl_dir, *of_addresses)
    page = metrics.Page("agent", gauges.refresh)
    listening = await serve(
        lambda path: health.answer_kubelet(path) or page.answer(path), settings.metrics_address, "metrics"
    )
    stack.callback(listening.close)
    if settings.probe_address is not None:
        probes = await serve(health.probe, settings.probe_address, "probe")
        stack.callback(probes.close)
    drains = Drains(state.draining, state.may_serve, connections, reconciler.progress, reporter.changed)
    node_watch = NodeWatch(kube, state, own_node, settings, reporter.set_nodes, announcing)
    health_checks = HealthCheckPorts(settings.node_name, health, events, node_watch.health_check_hosts)
    node_watch.on_facts = health_checks.hosts_changed
    rules = _proxy_rules(stack)
    takeover = _takeover(rules, state, reporter, events, own_node, cleanup=settings.kube_proxy_cleanup)
    # nftlb ends at the same time as the agent, which is no news for the Node's Events.
    node_events = NodeEvents(events, own_node, reconciler.progress)
    stop_first: dict[str, Duty] = {"kube-proxy": takeover.run, "node-events": node_events.run}
    stop_after_handover: dict[str, Duty] = {"report": partial(reporter.run, reconciler)}
    duties: dict[str, Duty] = {
        "node-watch": node_watch.run,
        "watch": partial(watch_farms, kube, state, health_checks, settings.limits),
        "watch-slices": partial(watch_slices, kube, state, health_checks),
        "watch-policies": partial(watch_policies, kube, state, settings.limits),
        "drains": drains.run,
        "connection-tracking": partial(
            apply_once_loaded, settings.conntrack, settings.sysctl_dir, os.cpu_count() or 1, MonotonicClock()
        ),
        "connections": connections.run,
        "health-checks": health_checks.run,
        "events": events.run,
        "keep-nat": keep_nat.run,
    }
    if announcing is not None:
        duties["announce"] = announcing.run
    if settings.traffic is not None:
        series = TrafficSeries(state.index, settings.traffic, time.monotonic)
        duties["traffic"] = partial(count_traffic, series.add)
    on_proxy_ports: dict[str, Duty] = {
        "health": partial(serve_when_free, health.answer, settings.health_address),
    }
    if settings.proxy_mode_address is not None:
        serve_mode = partial(serve_when_free, proxy_mode, settings.proxy_mode_address, what="proxy mode")
        on_proxy_ports["proxy-mode"] = serve_mode
    daemon_set = None
    if settings.daemon_set:
        daemon_set = OwnDaemonSet(kube, settings.namespace, settings.daemon_set)
        duties["daemon-set"] = daemon_set.run
    groups = stop_first, stop_after_handover, on_proxy_ports, duties
    return Agent(kube, own_node, reconciler, nft, rules, daemon_set, *groups, announcing)


def _bird(settings: AgentSettings, kube: Kube, on_change: Callable[[], None]) -> Bird | None:
    if not settings.bgp or settings.bird_dir is None:
        return None
    control, intervals = BirdControl(settings.bird_dir), IntervalsFile(settings.nftlb.intervals_file)
    return Bird(kube, settings.node_name, settings.bgp_table, control, intervals, on_change)


def _proxy_rules(stack: AsyncExitStack) -> ProxyRules:
    reader, transactions = KernelChains.open(), NftSocket.open()
    stack.callback(reader.close)
    stack.callback(transactions.close)
    return ProxyRules(reader, transactions, KernelIpvs())


def _takeover(
    rules: ProxyRules, state: LoopState, reporter: NodeReporter, events: Events, own_node: OwnNode, *, cleanup: bool
) -> Takeover:
    def tell(message: str) -> None:
        if (node := own_node.current) is not None:
            subject = Subject(NODES, "", node.metadata.name, node.metadata.uid)
            events.report_resolved(subject, "KubeProxyRulesRemoved", message)

    return Takeover(
        rules,
        state.progress,
        MonotonicClock(),
        ports=held_by_others,
        legacy_nat=has_legacy_nat,
        unserved=partial(unserved_by, state),
        cleanup=cleanup,
        on_change=reporter.changed,
        on_removed=tell,
    )
