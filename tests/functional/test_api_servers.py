"""Several addresses of the API server: an agent goes on with another when one fails."""

import contextlib
import sys
from collections.abc import Iterator

import pytest

from lab import addresses
from tests import engine
from tests.builders.manifests import service
from tests.functional import forwarder
from tests.functional.cluster import Cluster, eventually, running

pytestmark = [pytest.mark.timeout(240), pytest.mark.once("connections to the API server")]

PORT = 7443


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node whose agent knows a second address: a forwarder on the node, to the API server's IPv6 address."""
    settings = {"agent": {"KUBE_NFTLB_API_SERVERS": f"127.0.0.1:{PORT}"}, "operator": engine.OPERATOR}
    with running("functional-servers", nodes=1, settings=settings) as cluster:
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


def test_an_agent_goes_on_with_another_server_and_comes_back(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[0]
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
