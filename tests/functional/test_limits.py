"""Limits on a client, and that other clients are not affected."""

import sys
from typing import Any

import pytest

from tests.builders.manifests import client_pod, farm
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(240)

VIP = {"ipv4": "10.96.200.1", "ipv6": "fd00:96::c8:1"}
OTHER_VIP = {"ipv4": "10.96.200.2", "ipv6": "fd00:96::c8:2"}
FAMILIES = pytest.mark.parametrize("family", ["ipv4", "ipv6"])


def backends(cluster: Cluster, namespace: str, family: str, app: str = "web", **changes: Any) -> list[dict[str, Any]]:
    found = []
    for name in cluster.pods(app, namespace):
        ips = [entry["ip"] for entry in cluster.get("pod", name, namespace)["status"]["podIPs"]]
        ip = next(ip for ip in ips if (":" in ip) == (family == "ipv6"))
        found.append({"name": name, "ip": ip, "port": 80, **changes})
    return found


def listening(vip: str, family: str, *ports: str) -> dict[str, Any]:
    return {"family": family, "addresses": [{"ip": vip, "ports": port} for port in ports or ("80",)]}


@pytest.fixture
def other_client(cluster: Cluster, namespace: str) -> str:
    cluster.apply(client_pod("other-client", namespace, cluster.nodes[0]))
    cluster.wait("pod", "other-client", "Ready", namespace)
    return f"{namespace}/other-client"


def two_farms(cluster: Cluster, namespace: str, family: str, **spec: Any) -> None:
    """A farm with the options, on two ports, and one without, in front of the same pods."""
    cluster.run("web", 1, namespace)
    every = backends(cluster, namespace, family)
    cluster.apply(
        farm("limited", namespace, **{**listening(VIP[family], family, "80", "81"), "backends": every, **spec}),
        farm("free", namespace, **listening(OTHER_VIP[family], family), backends=every),
    )
    for name in ("limited", "free"):
        cluster.farm_has(name, namespace, 1)


def failures(cluster: Cluster, where: str, number: int, host: str, port: int = 80) -> int:
    counted = cluster.count(where, number, host, port, "--timeout", "0.3")
    return sum(counted["failures"].values())


@FAMILIES
def test_new_connections_above_the_rate_are_dropped_for_that_client_alone(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    two_farms(cluster, namespace, family, limits={"new": "1/minute", "newBurst": 10})
    vip = VIP[family]
    assert failures(cluster, client, 8, vip) == 0, "below the burst"
    assert failures(cluster, client, 8, vip, 81) > 0, "the ports of a farm count together"
    assert failures(cluster, client, 3, vip) == 3
    assert failures(cluster, other_client, 8, vip) == 0, "another client has a rate of its own"
    assert failures(cluster, client, 20, OTHER_VIP[family]) == 0, "another farm has no limit"
    cluster.kubectl("patch", "farm", "limited", "-n", namespace, "--type=merge", "-p", '{"spec":{"limits":null}}')
    eventually(lambda: failures(cluster, client, 20, vip) == 0, "without a limit nothing is dropped")


def test_a_rate_that_is_raised_counts_at_once(cluster: Cluster, namespace: str, client: str) -> None:
    two_farms(cluster, namespace, "ipv4", limits={"new": "1/hour", "newBurst": 1})
    eventually(lambda: failures(cluster, client, 2, VIP["ipv4"]) == 2, "the client has used up its burst")
    patch = '{"spec":{"limits":{"new":"1000/second","newBurst":100}}}'
    cluster.kubectl("patch", "farm", "limited", "-n", namespace, "--type=merge", "-p", patch)
    eventually(lambda: failures(cluster, client, 20, VIP["ipv4"]) == 0, "the new rate counts")


@FAMILIES
def test_connections_at_once_are_limited_for_each_client(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    two_farms(cluster, namespace, family, limits={"established": 2})
    vip = VIP[family]
    with cluster.streams(2, client, vip) as streams:
        assert failures(cluster, client, 3, vip) == 3, "two are open"
        assert failures(cluster, other_client, 2, vip) == 0
        assert failures(cluster, client, 3, OTHER_VIP[family]) == 0
    assert all(stream["complete"] for stream in streams), streams


@FAMILIES
def test_connections_at_once_are_limited_for_one_backend(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    two_farms(cluster, namespace, family)
    limited = backends(cluster, namespace, family, established=2)
    cluster.apply(farm("limited", namespace, **listening(VIP[family], family, "80", "81"), backends=limited))
    vip = VIP[family]
    with cluster.streams(3, client, vip) as streams:
        assert failures(cluster, other_client, 3, vip) == 3, "the backend has as many as it may have"
        assert failures(cluster, client, 3, OTHER_VIP[family]) == 0, "through another farm it has no limit"
    assert sum(stream["complete"] for stream in streams) == 2, streams


def test_a_limit_that_only_logs_drops_nothing(cluster: Cluster, namespace: str, client: str) -> None:
    two_farms(cluster, namespace, "ipv4", limits={"new": "1/hour", "newBurst": 1, "verdict": "log"})
    assert failures(cluster, client, 10, VIP["ipv4"]) == 0


RESET = """
import socket, struct, sys, time
host, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(number):
    connection = socket.create_connection((host, port), timeout=5)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.05)
    connection.close()
"""


@FAMILIES
def test_resets_above_the_rate_do_not_reach_the_backend(
    cluster: Cluster, namespace: str, client: str, other_client: str, family: str
) -> None:
    two_farms(cluster, namespace, family, limits={"reset": "1/hour", "resetBurst": 3})
    (pod,) = cluster.pods("web", namespace)

    def left() -> int:
        """Connections that the backend takes for open."""
        return len(cluster.lab.exec(f"{namespace}/{pod}", "ss", "-Htn", "state", "established").stdout.splitlines())

    for where, host in ((client, OTHER_VIP[family]), (other_client, VIP[family])):
        assert cluster.lab.exec(where, sys.executable, "-c", RESET, host, "80", "3").returncode == 0
    eventually(lambda: left() == 0, "resets of another farm, or below the rate, reach the backend")
    assert cluster.lab.exec(client, sys.executable, "-c", RESET, VIP[family], "80", "6").returncode == 0
    eventually(lambda: 0 < left() <= 3, "those above the burst do not")


SYN_FIN = """
import socket, struct, sys
host = sys.argv[1]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
probe = socket.socket(family, socket.SOCK_DGRAM)
probe.connect((host, 80))
source = socket.inet_pton(family, probe.getsockname()[0])
target = socket.inet_pton(family, host)
header = struct.pack("!HHIIBBHHH", 4321, 80, 1, 0, 5 << 4, 0x03, 1024, 0, 0)
pseudo = source + target + struct.pack("!II", len(header), 6) + header
total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
while total >> 16:
    total = (total & 0xFFFF) + (total >> 16)
header = header[:16] + struct.pack("!H", ~total & 0xFFFF) + header[18:]
socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP).sendto(header, (host, 0))
"""


@FAMILIES
def test_a_strict_farm_drops_packets_that_no_honest_client_sends(
    cluster: Cluster, namespace: str, client: str, family: str
) -> None:
    two_farms(cluster, namespace, family, limits={"tcpStrict": True})
    node = cluster.nodes[0]
    cluster.nft(node, "add table inet test-strict")
    try:
        cluster.nft(node, "add chain inet test-strict c { type filter hook prerouting priority 0; }")
        cluster.nft(node, "add rule inet test-strict c tcp flags & (syn|fin) == (syn|fin) counter")
        passed = []
        for host in (VIP[family], OTHER_VIP[family]):
            done = cluster.lab.exec(client, sys.executable, "-c", SYN_FIN, host)
            assert done.returncode == 0, done.stderr
            passed.append("packets 0 " not in cluster.nft(node, "list table inet test-strict"))
        assert passed == [False, True]
    finally:
        cluster.nft(node, "delete table inet test-strict")
    assert failures(cluster, client, 10, VIP[family]) == 0, "honest clients notice nothing"
