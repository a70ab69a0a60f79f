"""The packets that the kernel logs, and their prefixes.

The kernel keeps the log lines of other network namespaces than the first to itself, so what is read is its trace of the
packets (nft monitor trace), which names each rule that a packet meets.
"""

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import backends, unique
from tests.functional.features.test_limits import FAMILIES, listening

pytestmark = pytest.mark.engines


_BEGUN, _ENDED = 7, 9
"""Ports of the node's loopback address on which nobody listens."""
_PORTS = re.compile(r" packet: .* tcp sport (\d+) tcp dport (\d+) ")
_PREFIX = re.compile(r' log prefix "([^"]+)"')


@contextlib.contextmanager
def traced(cluster: Cluster, node: str) -> Iterator[list[str]]:
    """The log rules that packets meet during the block; filled in after it."""
    found: list[str] = []
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(tempfile.NamedTemporaryFile("w"))
        command = cluster.lab.command(node, "nft", "monitor", "trace")
        monitor = subprocess.Popen(command, env=cluster.lab.environment(node), stdout=output.fileno())
        stack.callback(monitor.wait, 10)
        stack.callback(monitor.terminate)
        stack.callback(cluster.nft, node, "delete table inet test-trace")
        cluster.nft(node, "add table inet test-trace")
        cluster.nft(node, "add chain inet test-trace c { type filter hook prerouting priority -400; }")
        cluster.nft(node, "add rule inet test-trace c tcp flags & (syn|ack|rst) != ack meta nftrace set 1")

        def seen(port: int) -> bool:
            cluster.count(node, 1, "127.0.0.1", port)
            return f"tcp dport {port} " in Path(output.name).read_text()

        # The kernel tells of packets one after the other: the last one is read after all of the block.
        eventually(lambda: seen(_BEGUN), "nft reads the trace")
        yield found
        eventually(lambda: seen(_ENDED), "nft has read the trace")
        found.extend(prefixes(Path(output.name).read_text()))


def prefixes(trace: str) -> Iterator[str]:
    """Yield the prefixes of the first packet of each connection: a client sends it again if it must wait."""
    ports: dict[str, tuple[str, ...]] = {}
    first: dict[tuple[tuple[str, ...], str], str] = {}
    for line in trace.splitlines():
        packet = line.split()[2]
        if found := _PORTS.search(line):
            ports[packet] = found.groups()
        # A packet that is logged twice counts twice.
        if (prefix := _PREFIX.search(line)) and first.setdefault((ports[packet], prefix[1]), packet) == packet:
            yield prefix[1]


@FAMILIES
def test_each_new_connection_is_logged_where_the_farm_says(
    cluster: Cluster, namespace: str, client: str, family: str
) -> None:
    cluster.serve("web", 1, namespace)
    every = backends(cluster, "web", namespace, family)
    vip, other = unique(family), unique(family)
    cluster.apply(
        farm("plain", namespace, **listening(other, family), backends=every),
        farm("web", namespace, **listening(vip, family, "80", "81"), log="input forward output", backends=every),
    )
    for name in ("plain", "web"):
        cluster.farm_has(name, namespace, 1)
    with traced(cluster, cluster.nodes[0]) as lines:
        cluster.count(client, 2, vip)
        cluster.count(client, 1, vip, 81)
        cluster.count(client, 5, other)
    full = f"{namespace}.web "
    assert sorted(lines) == sorted(3 * [f"{kind}-{full}" for kind in ("IN", "FWD", "OUT")])
    cluster.api.patch("farm", "web", namespace, {"spec": {"log": "forward", "logPrefix": "shop: web"}})
    eventually(lambda: "shop: web" in cluster.nft(cluster.nodes[0], "list", "ruleset"), "the node has the new prefix")
    with traced(cluster, cluster.nodes[0]) as lines:
        cluster.count(client, 2, vip)
    assert lines == ["FWD-shop: web "] * 2


def test_what_a_limit_drops_is_logged_with_its_prefix(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 1, namespace)
    vip, every = unique(), backends(cluster, "web", namespace)
    limits = {"new": "1/hour", "newBurst": 2, "newLogPrefix": "too many:", "logRate": "1000/second"}
    cluster.apply(farm("web", namespace, **listening(vip, "ipv4"), limits=limits, backends=every))
    cluster.farm_has("web", namespace, 1)
    with traced(cluster, cluster.nodes[0]) as lines:
        counted = cluster.count(client, 4, vip, 80, "--timeout", "0.3")
    assert len(counted["answers"]) == 1
    assert lines
    assert set(lines) == {"too many: "}
