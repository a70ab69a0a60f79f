"""Agent and operator with other settings than the default: logs, late nodes, and more than one API server."""

import contextlib
import sys
import time
from collections.abc import Iterator

import pytest

from lab import addresses
from tests import engine
from tests.builders.manifests import service
from tests.functional import forwarder
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.features.test_events import told

PORT = 7443
LATE_S = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node whose agent knows a second address: a forwarder on the node, to the API server's IPv6 address."""
    agent = {
        "KUBE_NFTLB_API_SERVERS": f"127.0.0.1:{PORT}",
        "KUBE_NFTLB_LOG_FORMAT": "console",
        "KUBE_NFTLB_LOG_LEVEL": "DEBUG",
    }
    operator = {**engine.OPERATOR, "KUBE_NFTLB_LOG_LEVEL": "WARNING", "KUBE_NFTLB_NOT_PROGRAMMED_SECONDS": str(LATE_S)}
    with running("functional-settings", nodes=1, settings={"agent": agent, "operator": operator}) as cluster:
        yield cluster


@contextlib.contextmanager
def forwarding(cluster: Cluster, node: str) -> Iterator[None]:
    ipv6 = str(addresses.GATEWAY[1].ip)
    arguments = (sys.executable, forwarder.__file__, str(PORT), ipv6, str(addresses.API_PORT))
    process = cluster.lab.popen(node, *arguments)
    assert process.stderr
    assert "listening" in process.stderr.readline()
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def cut(cluster: Cluster, node: str) -> Iterator[None]:
    """Close and refuse the node's connections to the first address, as if that server had died."""
    cluster.nft(node, "add", "table", "ip", "cut")
    cluster.nft(node, "add chain ip cut output { type filter hook output priority 0; }")
    first = f"ip daddr {addresses.API_HOST} tcp dport {addresses.API_PORT}"
    cluster.nft(node, f"add rule ip cut output {first} reject with tcp reset")
    try:
        yield
    finally:
        cluster.nft(node, "delete", "table", "ip", "cut")


def test_an_agent_goes_on_with_another_server_and_comes_back(cluster: Cluster, own_namespace: str) -> None:
    node, namespace = cluster.nodes[0], own_namespace
    cluster.run("web", 2, namespace)

    def serves(name: str) -> None:
        cluster.apply(service(name, namespace, selector={"app": "web"}))
        cluster.farm_has(f"{name}--http", namespace, 2)

    serves("before")
    with forwarding(cluster, node):
        with cut(cluster, node):
            serves("during")
            cluster.scale("web", 3, namespace)
            cluster.farm_has("during--http", namespace, 3)
            cluster.scale("web", 2, namespace)
            cluster.farm_has("during--http", namespace, 2)
        serves("after")
    eventually(lambda: "API server failed" in cluster.lab.log_path("agent", node).read_text(), "it is logged")
    serves("again")


def test_format_and_level_are_settings(cluster: Cluster, own_namespace: str) -> None:
    """Without them it is JSON from INFO on, which test_log_lines reads."""
    cluster.apply(service("web", own_namespace))
    cluster.wait("farm", "web--http", "Programmed", own_namespace)
    log = cluster.lab.log_path("agent", cluster.nodes[0]).read_text()
    assert "nftlb request" in log
    assert "farm programmed" in log
    assert "info" not in cluster.lab.log_path("operator").read_text()
    first = log.splitlines()[0]
    assert first.startswith("20")
    assert f"node={cluster.nodes[0]}" in first
    assert cluster.nftlb_key(cluster.nodes[0]) not in log


def test_a_service_tells_of_a_node_that_is_late_and_of_its_return(cluster: Cluster, own_namespace: str) -> None:
    node, namespace = cluster.nodes[0], own_namespace
    cluster.lab.stop("agent", node)
    try:
        cluster.apply(service("web", namespace))
        begun = time.monotonic()
        eventually(lambda: "NotProgrammed" in told(cluster, "Service", "web", namespace), "the Service tells")
        assert time.monotonic() - begun > LATE_S - 1, "a node may take its time"
    finally:
        cluster.lab.start("agent", node)
    eventually(lambda: "Programmed" in told(cluster, "Service", "web", namespace), "the Service tells of the end")
    for kind, name in (("Service", "web"), ("NftlbFarm", "web--http")):
        events = told(cluster, kind, name, namespace)
        assert (events["NotProgrammed"]["type"], events["Programmed"]["type"]) == ("Warning", "Normal")
        assert f"has not been programmed on {node} for more than {LATE_S} s" in events["NotProgrammed"]["message"]
