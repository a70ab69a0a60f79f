"""Connections by routers while nodes, agents and BIRD come and go."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kube_nftlb.announce.bird.control import BirdControl
from kube_nftlb.announce.bird.files import CONFIG
from lab.places import CLIENT
from lab.routing.plan import RouterPlan
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.faults import suite
from tests.functional.features.announcing.test_gate import rolling
from tests.functional.features.announcing_bgp.conftest import ROUTERS, has_sessions, router_peer
from tests.functional.routed import RouteWatch, hops, routed
from tests.functional.segment import announce, cut, note, served, unplugged

ROLLS = suite.by_form(4, 30)
THREADS = 8
ROUTER = ROUTERS[0].name

pytestmark = pytest.mark.timeout(suite.by_form(240, 1200))


def _kill_agent(cluster: Cluster, node: str) -> None:
    os.kill(cluster.lab.pid("agent", node), signal.SIGKILL)


def _restart_agent(cluster: Cluster, node: str) -> None:
    cluster.lab.restart("agent", node)


def _kill_bird(cluster: Cluster, node: str) -> None:
    # The component is what starts it again.
    (children,) = Path(f"/proc/{cluster.lab.pid('bird', node)}/task").glob("*/children")
    os.kill(int(children.read_text()), signal.SIGKILL)


def _replace_pod(cluster: Cluster, node: str) -> None:
    """As at an upgrade: both are told to end at the same time, and the next ones find nothing that only the pod had."""
    shared = Path(f"/proc/{cluster.lab.pid('responder', node)}/root/run/bird-{node}")
    os.kill(cluster.lab.pid("bird", node), signal.SIGTERM)
    cluster.lab.stop("agent", node)
    cluster.lab.stop("bird", node)
    for each in shared.iterdir():
        each.unlink()
    cluster.lab.start("bird", node)
    cluster.lab.start("agent", node)


@pytest.mark.parametrize("end", [_kill_agent, _kill_bird])
def test_a_crash_moves_nothing(
    cluster: Cluster, namespace: str, pair: tuple[str, str], end: Callable[[Cluster, str], None]
) -> None:
    ip, node = pair[0], cluster.nodes[0]
    cluster.serve("web", 3, namespace)
    announce(cluster, "web", namespace, ip)
    routed(cluster, ROUTER, ip, *cluster.nodes)
    with cluster.hammer(CLIENT, ip) as met:
        end(cluster, node)
        _keeps_its_route(cluster, ROUTER, ip, node, 8)
    note(met, f"BGP: {end.__name__[1:].replace('_', ' ')}")
    print(f"{met['attempts']} connections, failed {met['failed']}, longest gap {met['longest_gap_ms']} ms")
    assert met["failed"] == {}
    has_sessions(cluster, node)


@pytest.mark.parametrize("router", [ROUTERS[0], ROUTERS[2]], ids=["by its peer", "by the router"])
def test_a_crash_of_bird_moves_nothing_where_bfd_takes_longer_than_bird_to_start(
    cluster: Cluster, namespace: str, pair: tuple[str, str], router: RouterPlan
) -> None:
    ip, node, inside = pair[0], cluster.nodes[0], router.inside[0]
    cluster.serve("web", 3, namespace)
    announce(cluster, "web", namespace, ip)
    slow = {"intervalMs": 2000} if router == ROUTERS[0] else {}
    try:
        cluster.apply(router_peer(router, inside, **slow))
        eventually(lambda: _interval_ms(cluster, node, router) == 2000, "BFD is slow")
        config = _bird_dir(cluster, node) / CONFIG
        eventually(lambda: "6000" in config.read_text(), "BIRD is configured")
        routed(cluster, router.name, ip, *cluster.nodes)
        _kill_bird(cluster, node)
        _keeps_its_route(cluster, router.name, ip, node, 12)
    finally:
        cluster.apply(router_peer(router, inside))
    eventually(lambda: _interval_ms(cluster, node, ROUTERS[0]) == 300, "BFD is fast")
    has_sessions(cluster, node)


def _keeps_its_route(cluster: Cluster, router: str, ip: str, node: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert node in hops(cluster, router, ip)
        time.sleep(0.02)


def _bird_dir(cluster: Cluster, node: str) -> Path:
    return Path(f"/proc/{cluster.lab.pid('bird', node)}/root/run/bird-{node}")


def _interval_ms(cluster: Cluster, node: str, router: RouterPlan) -> int | None:
    """The interval of BFD between a node and a router; None if the session is not up, or BIRD is still starting."""
    try:
        intervals = asyncio.run(BirdControl(_bird_dir(cluster, node)).bfd_intervals_ms())
    except OSError:
        return None
    return intervals.get(str(router.inside[0].ip))


@pytest.mark.parametrize("restart", [_restart_agent, _replace_pod])
def test_a_restart_of_the_only_node_that_serves_loses_no_route(
    cluster: Cluster, namespace: str, pair: tuple[str, str], restart: Callable[[Cluster, str], None]
) -> None:
    ip, node = pair[0], cluster.nodes[1]
    cluster.serve("web", 1, namespace, node=node)
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local")
    routed(cluster, ROUTER, ip, node)
    with cluster.hammer(CLIENT, ip) as met:
        restart(cluster, node)
        time.sleep(5)
    note(met, f"BGP: {restart.__name__[1:].replace('_', ' ')}")
    print(f"{met['attempts']} connections, failed {met['failed']}, longest gap {met['longest_gap_ms']} ms")
    assert met["failed"] == {}
    has_sessions(cluster, node)


def test_a_pod_that_is_replaced_loses_no_route_where_the_router_has_bfd_take_longer(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip, node, router = pair[0], cluster.nodes[1], ROUTERS[2]
    cluster.serve("web", 1, namespace, node=node)
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local")
    eventually(lambda: _interval_ms(cluster, node, router) == 2000, "BFD is slow")
    routed(cluster, router.name, ip, node)
    _replace_pod(cluster, node)
    _keeps_its_route(cluster, router.name, ip, node, 12)
    has_sessions(cluster, node)


def test_a_dead_node_is_left_within_a_second_and_a_half(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip, node = pair[0], cluster.nodes[2]
    cluster.serve("web", 1, namespace, node=cluster.nodes[0])
    announce(cluster, "web", namespace, ip)
    routed(cluster, ROUTER, ip, *cluster.nodes)
    with cluster.hammer(CLIENT, ip, 80, "--timeout", "0.5") as met, contextlib.ExitStack() as stack:
        with RouteWatch(cluster, ROUTER, ip, lambda number: number == 2) as watch:
            stack.enter_context(unplugged(cluster, node))
        time.sleep(2)
    note(met, "BGP: a node dies")
    suite.record("routed", "followed after", "ms", watch.took_s * 1000, change="a node dies")
    print(f"left after {watch.took_s:.3f} s; {met['attempts']} connections, gap {met['longest_gap_ms']} ms")
    assert watch.took_s < 3
    has_sessions(cluster, node)
    routed(cluster, ROUTER, ip, *cluster.nodes)


def test_a_node_that_drains_is_left_first(cluster: Cluster, namespace: str, pair: tuple[str, str]) -> None:
    ip, node = pair[0], cluster.nodes[0]
    cluster.serve("web", 3, namespace)
    announce(cluster, "web", namespace, ip)
    routed(cluster, ROUTER, ip, *cluster.nodes)
    kubectl = Kubectl(cluster)
    with cluster.hammer(CLIENT, ip) as met:
        done = kubectl.run("drain", f"node/{node}", "--force", "--timeout", "60")
        assert f"node {node} announces no addresses" in done.stderr
        routed(cluster, ROUTER, ip, *cluster.nodes[1:])
        time.sleep(1)
    assert kubectl.run("undrain", f"node/{node}").returncode == 0
    note(met, "BGP: a node is drained")
    print(f"{met['attempts']} connections, failed {met['failed']}, longest gap {met['longest_gap_ms']} ms")
    assert cut(met) <= 4, "those of the two threads that are open as routers change their minds"
    assert met["failed"] == {}
    routed(cluster, ROUTER, ip, *cluster.nodes)


def test_rolling_updates_with_traffic_policy_local_fail_nobody(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip = pair[0]
    made = rolling("web", namespace)
    made["spec"]["replicas"] = 3
    cluster.apply(made)
    cluster.rolled_out("web", 3, namespace)
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local")
    served(cluster, ip)
    with cluster.hammer(CLIENT, ip, 80, "--timeout", "5", "--threads", str(THREADS)) as met:
        for number in range(1, ROLLS + 1):
            made["spec"]["template"]["metadata"]["annotations"] = {"number": str(number)}
            cluster.apply(made)
            cluster.rolled_out("web", 3, namespace)
    note(met, "BGP: rolling update on all nodes", ROLLS)
    print(f"{met['attempts']} connections, {ROLLS} rolling updates, failed {met['failed']}, {met['longest_gap_ms']} ms")
    # A connection that is open as routers change their minds may go to a node that does not know it.
    assert cut(met) <= THREADS * ROLLS
    assert met["failed"] == {}
