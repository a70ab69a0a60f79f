"""Limits on a client, and that other clients are not affected."""

import socket
import struct
import time
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import backends, unique

pytestmark = pytest.mark.engines

FAMILIES = pytest.mark.parametrize("family", ["ipv4", "ipv6"])


def listening(vip: str, family: str, *ports: str) -> dict[str, Any]:
    return {"family": family, "addresses": [{"ip": vip, "ports": port} for port in ports or ("80",)]}


@pytest.fixture
def other_client(namespace: str) -> str:
    """Another pod on the node of the client."""
    return f"{namespace}/server-5"


class Vips(NamedTuple):
    """The addresses of two farms before the same pod."""

    limited: str
    free: str


def two_farms(
    cluster: Cluster, namespace: str, family: str, limited: dict[str, Any] | None = None, **spec: Any
) -> Vips:
    """A farm with the options, on two ports, whose backend has those of ``limited``, and one without any."""
    cluster.serve("web", 1, namespace)
    vips = Vips(unique(family), unique(family))
    every = backends(cluster, "web", namespace, family, **(limited or {}))
    cluster.apply(
        farm("limited", namespace, **listening(vips.limited, family, "80", "81"), backends=every, **spec),
        farm("free", namespace, **listening(vips.free, family), backends=backends(cluster, "web", namespace, family)),
    )
    for name in ("limited", "free"):
        cluster.farm_has(name, namespace, 1)
    return vips


def failures(cluster: Cluster, where: str, number: int, host: str, port: int = 80) -> int:
    counted = cluster.count(where, number, host, port, "--timeout", "0.3")
    return sum(counted["failures"].values())


@FAMILIES
def test_new_connections_above_the_rate_are_dropped_for_that_client_alone(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    vip, free = two_farms(cluster, namespace, family, limits={"new": "1/minute", "newBurst": 10})
    assert failures(cluster, client, 8, vip) == 0, "below the burst"
    assert failures(cluster, client, 8, vip, 81) > 0, "the ports of a farm count together"
    assert failures(cluster, client, 3, vip) == 3
    assert failures(cluster, other_client, 8, vip) == 0, "another client has a rate of its own"
    assert failures(cluster, client, 20, free) == 0, "another farm has no limit"
    cluster.api.patch("farm", "limited", namespace, {"spec": {"limits": None}})
    eventually(lambda: failures(cluster, client, 20, vip) == 0, "without a limit nothing is dropped")


def test_a_rate_that_is_raised_counts_at_once(cluster: Cluster, namespace: str, client: str) -> None:
    vip = two_farms(cluster, namespace, "ipv4", limits={"new": "1/hour", "newBurst": 1}).limited
    eventually(lambda: failures(cluster, client, 2, vip) == 2, "the client has used up its burst")
    cluster.api.patch("farm", "limited", namespace, {"spec": {"limits": {"new": "1000/second", "newBurst": 100}}})
    eventually(lambda: failures(cluster, client, 20, vip) == 0, "the new rate counts")


@FAMILIES
def test_connections_at_once_are_limited_for_each_client(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    vip, free = two_farms(cluster, namespace, family, limits={"established": 2})
    with cluster.streams(2, client, vip) as streams:
        assert failures(cluster, client, 3, vip) == 3, "two are open"
        assert failures(cluster, other_client, 2, vip) == 0
        assert failures(cluster, client, 3, free) == 0
    assert all(stream["complete"] for stream in streams), streams


@FAMILIES
def test_connections_at_once_are_limited_for_one_backend(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    vip, free = two_farms(cluster, namespace, family, limited={"established": 2})
    with cluster.streams(3, client, vip) as streams:
        assert failures(cluster, other_client, 3, vip) == 3, "the backend has as many as it may have"
        assert failures(cluster, client, 3, free) == 0, "through another farm it has no limit"
    assert sum(stream["complete"] for stream in streams) == 2, streams


def test_a_limit_that_only_logs_drops_nothing(cluster: Cluster, namespace: str, client: str) -> None:
    vip = two_farms(cluster, namespace, "ipv4", limits={"new": "1/hour", "newBurst": 1, "verdict": "log"}).limited
    assert failures(cluster, client, 10, vip) == 0


def reset(cluster: Cluster, where: str, host: str, number: int) -> None:
    """Open connections, and reset each."""

    def run() -> None:
        for _ in range(number):
            with socket.create_connection((host, 80), timeout=5) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                time.sleep(0.05)

    cluster.lab.inside(where, run)


@FAMILIES
def test_resets_above_the_rate_do_not_reach_the_backend(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    vip, free = two_farms(cluster, namespace, family, limits={"reset": "1/hour", "resetBurst": 3})
    (pod,) = cluster.pods("web", namespace)

    def established() -> set[str]:
        """The ends of the connections that the backend takes for open."""
        lines = cluster.lab.exec(f"{namespace}/{pod}", "ss", "-Htn", "state", "established").stdout.splitlines()
        return {" ".join(line.split()[2:]) for line in lines}

    before = established()

    def left() -> int:
        """Connections that the backend takes for open since then; dropped resets of an earlier test left it some."""
        return len(established() - before)

    for where, host in ((client, free), (other_client, vip)):
        reset(cluster, where, host, 3)
    eventually(lambda: left() == 0, "resets of another farm, or below the rate, reach the backend")
    reset(cluster, client, vip, 6)
    eventually(lambda: 0 < left() <= 3, "those above the burst do not")


def own_address(host: str) -> str:
    """The address from which this place connects to a host."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 80))
        return str(probe.getsockname()[0])


def send_syn_fin(host: str) -> None:
    """Send a TCP packet that opens and closes a connection at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    source = socket.inet_pton(family, own_address(host))
    header = struct.pack("!HHIIBBHHH", 4321, 80, 1, 0, 5 << 4, 0x03, 1024, 0, 0)
    pseudo = source + socket.inet_pton(family, host) + struct.pack("!II", len(header), 6) + header
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.sendto(header[:16] + struct.pack("!H", ~total & 0xFFFF) + header[18:], (host, 0))


@FAMILIES
def test_a_strict_farm_drops_packets_that_no_honest_client_sends(
    cluster: Cluster, namespace: str, client: str, family: str
) -> None:
    vips = two_farms(cluster, namespace, family, limits={"tcpStrict": True})
    node, table = cluster.nodes[0], f"inet {namespace}"
    source = cluster.lab.inside(client, lambda: own_address(vips.free))
    match = f"{'ip6' if family == 'ipv6' else 'ip'} saddr {source} tcp flags & (syn|fin) == (syn|fin)"
    cluster.nft(node, f"add table {table}")
    try:
        cluster.nft(node, f"add chain {table} c {{ type filter hook prerouting priority 0; }}")
        cluster.nft(node, f"add rule {table} c {match} counter")
        passed = []
        for host in vips:
            cluster.lab.inside(client, partial(send_syn_fin, host))
            passed.append("packets 0 " not in cluster.nft(node, f"list table {table}"))
        assert passed == [False, True]
    finally:
        cluster.nft(node, f"delete table {table}")
    assert failures(cluster, client, 10, vips.limited) == 0, "honest clients notice nothing"
