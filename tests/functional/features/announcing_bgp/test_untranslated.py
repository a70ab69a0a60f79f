"""Packets to an address of a pool that no rule translates end at the first node; none goes to and fro."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.places import CLIENT
from tests.functional.cluster import Cluster
from tests.functional.features.announcing_bgp.conftest import ROUTERS
from tests.functional.segment import announce, served

STRAY = str(Path(__file__).with_name("stray.py"))
CONNECTIONS = 24
"""So many that one of them at least comes to each of three nodes, as routers choose by the client's port."""
CONNECT = f"""
import collections, errno, json, socket, sys
met = collections.Counter()
for _ in range({CONNECTIONS}):
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
        met["connected"] += 1
    except OSError as error:
        met[errno.errorcode.get(error.errno, "timeout") if error.errno else "timeout"] += 1
    if "timeout" in met:
        break
print(json.dumps(met))
"""
COUNTED = """
table inet counted {{
    chain arriving {{
        type filter hook prerouting priority -400
        tcp sport {{ 20000, 20001 }} {family} daddr {ip} counter
    }}
}}"""
"""Counts what ``stray.py`` sends."""
PATIENT = """
import socket, sys
print("begin", flush=True)
socket.create_connection((sys.argv[1], 80), timeout=20)
"""

pytestmark = pytest.mark.timeout(240)


@pytest.mark.engines
@pytest.mark.parametrize("family", ["ip", "ip6"])
@pytest.mark.parametrize("where", ["outside", "pod"])
def test_a_port_without_a_service_is_refused_and_what_is_of_no_connection_dropped(
    cluster: Cluster, namespace: str, pair: tuple[str, str], where: str, family: str
) -> None:
    ip = pair[family == "ip6"]
    announced(cluster, namespace, pair)
    client = CLIENT if where == "outside" else f"{namespace}/{cluster.pods('web', namespace)[0]}"
    with default_router(cluster, ip):
        assert met(cluster, client, ip, 80) == {"connected": CONNECTIONS}
        assert met(cluster, client, ip, 81) == {"ECONNREFUSED": CONNECTIONS}
        with counted(cluster, ip, family) as arrived:
            for port in ("80", "81"):
                said = cluster.lab.exec(client, sys.executable, STRAY, own(cluster, client, family), ip, port)
                assert (said.stdout, said.stderr) == ("", ""), "nothing comes back"
            # Two of each port, and each at one node.
            assert arrived() == 4


def test_connections_to_an_address_that_no_service_has_wait_until_one_has(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    other = "192.0.2.254"
    announced(cluster, namespace, pair)
    with static_route(cluster, other), default_router(cluster, other):
        trace = ("trace", own(cluster, CLIENT, "ip"), f"{other}:80", "--local", "-o", "json")
        with cluster.lab.popen(cluster.nodes[0], sys.executable, "-m", "kube_nftlb", *trace) as tracing:
            assert tracing.stderr
            assert tracing.stderr.readline().startswith("waiting")
            assert met(cluster, CLIENT, other, 80) == {"timeout": 1}
            outcome = json.loads(tracing.communicate(timeout=30)[0])["outcome"]
        assert (outcome["verdict"], outcome["reason"]) == ("Dropped", "NoSuchService"), outcome
        with cluster.lab.popen(CLIENT, sys.executable, "-c", PATIENT, other) as waiting:
            assert waiting.stdout
            assert waiting.stdout.readline() == "begin\n"
            time.sleep(0.5)
            announce(cluster, "late", namespace, other, selector={"app": "web"})
            assert waiting.wait(30) == 0, "a client that tries meanwhile is served"


def announced(cluster: Cluster, namespace: str, pair: tuple[str, str]) -> None:
    """Have a Service with a pod at the two addresses, which all nodes announce."""
    cluster.serve("web", 1, namespace, node=cluster.nodes[0])
    announce(cluster, "web", namespace, *pair, ipFamilyPolicy="RequireDualStack")
    for ip in pair:
        served(cluster, ip)
    cluster.farm_has("web--http", namespace, 1)


def met(cluster: Cluster, where: str, ip: str, port: int) -> dict[str, int]:
    """What a client meets, by the number of times; after a timeout it tries no more."""
    done = cluster.lab.exec(where, sys.executable, "-c", CONNECT, ip, str(port))
    assert done.stdout, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def own(cluster: Cluster, where: str, family: str) -> str:
    """An address of a place."""
    said = cluster.lab.exec(where, "ip", "-json", "address", "show", "scope", "global").stdout
    wanted = "inet6" if family == "ip6" else "inet"
    found: list[str] = [
        each["local"] for link in json.loads(said) for each in link.get("addr_info", ()) if each.get("family") == wanted
    ]
    return found[0]


@contextlib.contextmanager
def static_route(cluster: Cluster, ip: str) -> Iterator[None]:
    """Have routers send packets to an address to a node, as with static routes, or those of an aggregated prefix."""
    node = str(cluster.lab.nodes[0].addresses[0].ip)
    try:
        for router in ROUTERS:
            assert cluster.lab.exec(router.name, "ip", "route", "add", ip, "via", node, "metric", "1").returncode == 0
        yield
    finally:
        for router in ROUTERS:
            cluster.lab.exec(router.name, "ip", "route", "delete", ip, "via", node, "metric", "1")


@contextlib.contextmanager
def default_router(cluster: Cluster, ip: str) -> Iterator[None]:
    """Have all nodes send packets to an address to a router, as they do where it has their default route."""
    router = str(ROUTERS[0].inside[":" in ip].ip)
    try:
        for node in cluster.nodes:
            assert cluster.lab.exec(node, "ip", "route", "add", ip, "via", router).returncode == 0
        yield
    finally:
        for node in cluster.nodes:
            cluster.lab.exec(node, "ip", "route", "delete", ip, "via", router)


@contextlib.contextmanager
def counted(cluster: Cluster, ip: str, family: str) -> Iterator[Any]:
    """Yield a function: how often stray packets to an address have come to nodes."""

    def arrived() -> int:
        found = 0
        for node in cluster.nodes:
            said = json.loads(cluster.lab.exec(node, "nft", "-j", "list", "table", "inet", "counted").stdout)
            rules = [each["rule"]["expr"] for each in said["nftables"] if "rule" in each]
            found += sum(part["counter"]["packets"] for expr in rules for part in expr if "counter" in part)
        return found

    try:
        for node in cluster.nodes:
            done = cluster.lab.exec(node, "nft", COUNTED.format(family=family, ip=ip))
            assert done.returncode == 0, done.stderr
        yield arrived
    finally:
        for node in cluster.nodes:
            cluster.lab.exec(node, "nft", "delete", "table", "inet", "counted")
