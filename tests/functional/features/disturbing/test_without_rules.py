"""Clients while the rules are away: their connections wait, and none is forgotten once the rules are back."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kube_nftlb import addresses
from tests.builders.manifests import service
from tests.functional.cluster import TRAFFIC, Cluster, eventually

# Ten clients, each a program.
pytestmark = pytest.mark.timeout(240)

PORTS = [{"name": name, "port": 80, "protocol": name.upper(), "targetPort": 8080} for name in ("tcp", "udp")]
TCP_PORT, UDP_PORT = 30180, 30181
FAMILIES = ("ipv4", "ipv6")
_SOURCE_PORT = 40180


class Way(NamedTuple):
    """The place of a client, and the address and the ports of TCP and UDP that it connects to."""

    where: str
    host: str
    tcp: int
    udp: int


@pytest.fixture
def ways(cluster: Cluster, namespace: str, client: str) -> list[Way]:
    """A Service's cluster IPs and node ports, with clients in a pod, on the first node and outside."""
    ports = [{**port, "nodePort": number} for port, number in zip(PORTS, (TCP_PORT, UDP_PORT), strict=True)]
    cluster.apply(service("web", namespace, type="NodePort", ipFamilyPolicy="RequireDualStack", ports=ports))
    cluster.serve("web", 2, namespace)
    node = cluster.nodes[0]
    found = []
    for family in FAMILIES:
        suffix = "" if family == "ipv4" else "--ipv6"
        for port in ("tcp", "udp"):
            cluster.farm_has(f"web--{port}{suffix}", namespace, 2)
        vip, own = cluster.vip("web", namespace, family), node_ip(cluster, node, family)
        found += [Way(where, vip, 80, 80) for where in (client, node)]
        found += [Way(where, own, TCP_PORT, UDP_PORT) for where in (client, node, "client")]
    return found


def node_ip(cluster: Cluster, node: str, family: str) -> str:
    plan = next(each for each in cluster.lab.nodes if each.name == node)
    return str(next(each.ip for each in plan.addresses if (each.version == 6) == (family == "ipv6")))


@contextlib.contextmanager
def asking(cluster: Cluster, ways: list[Way]) -> Iterator[dict[Way, subprocess.Popen[str]]]:
    """Connections that wait for long, begun before the block."""
    with contextlib.ExitStack() as stack:
        processes = {}
        for way in ways:
            arguments = ("count", "1", way.host, str(way.tcp), "--timeout", "40")
            processes[way] = stack.enter_context(cluster.lab.popen(way.where, *TRAFFIC, *arguments))
            stack.callback(processes[way].kill)
        eventually(
            lambda: all(waits(cluster, way) or process.poll() is not None for way, process in processes.items()),
            "all connections wait, or have failed",
        )
        yield processes


def waits(cluster: Cluster, way: Way) -> bool:
    host = addresses.bracketed(way.host)
    found = cluster.lab.exec(way.where, "ss", "-Htn", "state", "syn-sent", "dst", f"{host}:{way.tcp}")
    return bool(found.stdout.strip())


def outcome(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert out, err
    told = json.loads(out)
    return "answered" if told["answers"] else str(*told["failures"])


def udp_answered(cluster: Cluster, way: Way) -> bool:
    """Send a datagram as a client that keeps its port."""
    options = ("--udp", "--source-port", str(_SOURCE_PORT), "--timeout", "0.3")
    return bool(cluster.count(way.where, 1, way.host, way.udp, *options)["answers"])


def goes_on(cluster: Cluster, way: Way) -> bool:
    """Return True if a client that keeps its port is answered within seconds, and False if it never is."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: udp_answered(cluster, way), "it is answered", 4)
        return True
    return False


def test_connections_wait_until_nftlb_has_rules_again(cluster: Cluster, ways: list[Way]) -> None:
    node = cluster.nodes[0]
    with contextlib.ExitStack() as stack:
        with cluster.frozen("agent", node):
            for family in ("ip", "ip6"):
                cluster.nft(node, "delete", "table", family, "nftlb")
            processes = stack.enter_context(asking(cluster, ways))
            assert not [way for way in ways if udp_answered(cluster, way)], "there are no rules"
        assert {way: outcome(process) for way, process in processes.items()} == dict.fromkeys(ways, "answered")
    assert [way for way in ways if not goes_on(cluster, way)] == []


@pytest.mark.engines
def test_flows_from_while_all_rules_were_flushed_are_forgotten(cluster: Cluster, ways: list[Way]) -> None:
    node = cluster.nodes[0]
    # Of IPv6 a router tells at once that there is no such address.
    own = [way for way in ways if way.where == node and way.tcp == 80 and "." in way.host]
    with contextlib.ExitStack() as stack:
        with cluster.frozen("agent", node):
            cluster.nft(node, "flush", "ruleset")
            # Those of before go on.
            assert cluster.lab.exec(node, "conntrack", "-F").returncode == 0
            processes = stack.enter_context(asking(cluster, own))
            assert not [way for way in ways if udp_answered(cluster, way)], "there are no rules"
        assert [way for way in ways if not goes_on(cluster, way)] == []
        assert {way: outcome(process) for way, process in processes.items()} == dict.fromkeys(own, "answered")


def test_a_killed_nftlb_refuses_nobody(cluster: Cluster, ways: list[Way]) -> None:
    node = cluster.nodes[0]
    with contextlib.ExitStack() as stack:
        hammered = {way: stack.enter_context(cluster.hammer(way.where, way.host, way.tcp)) for way in ways}
        os.kill(cluster.lab.pid("nftlb", node), signal.SIGKILL)
        assert [way for way in ways if not goes_on(cluster, way)] == []
    assert {way: result["failures"] for way, result in hammered.items()} == {way: [] for way in ways}
