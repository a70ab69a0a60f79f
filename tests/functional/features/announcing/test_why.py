"""Whatever keeps clients from an address, ``kubectl nftlb why`` says it in a line, soon."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.announce.ownership.gate import EXCLUDED
from lab.places import CLIENT
from tests.builders.manifests import endpoint_slice, farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.faults import suite
from tests.functional.features.test_addresses import balanced, pool

Broken = Callable[[Cluster, str], contextlib.AbstractContextManager[None]]
_LONGEST_S = 20.0
"""It takes less than two on a quiet machine."""


def asks(cluster: Cluster, namespace: str, name: str = "web", **spec: Any) -> None:
    """Make a Service that asks for an address of the pool of the test, or for a certain one, with an endpoint."""
    asked = {} if "loadBalancerIP" in spec else {"address-pool": "broken"}
    cluster.apply(balanced(name, namespace, asked, **spec))
    cluster.apply(endpoint_slice("web-1", namespace, "web", ("10.244.1.77", True)))


def with_pool(*ranges: str, **spec: Any) -> Broken:
    """A pool, and a Service that asks for an address of it."""

    @contextlib.contextmanager
    def broken(cluster: Cluster, namespace: str) -> Iterator[None]:
        cluster.apply(pool("broken", *ranges, autoAssign=False, **spec))
        try:
            asks(cluster, namespace)
            yield
        finally:
            cluster.delete("nftlbaddresspool", "broken")

    return broken


def with_two(**spec: Any) -> Broken:
    """A pool of one address, which a Service has, and another Service."""

    @contextlib.contextmanager
    def broken(cluster: Cluster, namespace: str) -> Iterator[None]:
        with with_pool("172.31.0.210/32")(cluster, namespace):
            eventually(lambda: bool(cluster.farm("web--http", namespace)), "the first has it")
            asks(cluster, namespace, "second", **spec)
            yield

    return broken


def with_nodes(ip: str, **metadata: Any) -> Broken:
    """All nodes have these labels or annotations."""

    @contextlib.contextmanager
    def broken(cluster: Cluster, namespace: str) -> Iterator[None]:
        for node in cluster.nodes:
            cluster.api.patch("node", node, "", {"metadata": metadata})
        try:
            with with_pool(f"{ip}/32")(cluster, namespace):
                yield
        finally:
            gone = {kind: dict.fromkeys(entries) for kind, entries in metadata.items()}
            for node in cluster.nodes:
                cluster.api.patch("node", node, "", {"metadata": gone})

    return broken


@contextlib.contextmanager
def no_pool(cluster: Cluster, namespace: str) -> Iterator[None]:
    asks(cluster, namespace, loadBalancerIP="203.0.113.9")
    yield


@contextlib.contextmanager
def no_endpoint(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool("172.31.0.213/32", announce={"whenEmpty": "withdraw"})(cluster, namespace):
        cluster.apply(endpoint_slice("web-1", namespace, "web", ("10.244.1.77", False)))
        yield


@contextlib.contextmanager
def foreign_host(cluster: Cluster, namespace: str) -> Iterator[None]:
    own = ("172.31.0.214/32", "dev", "eth0")
    assert cluster.lab.exec(CLIENT, "ip", "addr", "add", *own).returncode == 0
    try:
        with with_pool("172.31.0.214/32")(cluster, namespace):
            yield
    finally:
        cluster.lab.exec(CLIENT, "ip", "addr", "del", *own)


@contextlib.contextmanager
def no_responder(cluster: Cluster, namespace: str) -> Iterator[None]:
    cluster.lab.stop("responder")
    try:
        with with_pool("172.31.0.215/32")(cluster, namespace):
            yield
    finally:
        cluster.lab.start("responder")


@contextlib.contextmanager
def another_farm(cluster: Cluster, namespace: str) -> Iterator[None]:
    cluster.apply(farm("thief", namespace, addresses=[{"ip": "172.31.0.217", "ports": "80"}]))
    with with_pool("172.31.0.217/32")(cluster, namespace):
        yield


NOBODY = {"l2": {"nodeSelector": {"matchLabels": {"role": "edge"}}}}
NODES = "node-1, node-2, node-3"
BROKEN: dict[str, tuple[Broken, str]] = {
    "no pool": (no_pool, r"service .*/web .*NoPool: .*203\.0\.113\.9.* → create an NftlbAddressPool"),
    "pool refused": (
        with_pool("10.96.7.0/24"),
        r"address pool broken .*Invalid: .*10\.96\.7\.0/24.* → change spec.ranges",
    ),
    "pool exhausted": (with_two(), r"service .*/second .*PoolExhausted: no IPv4 address is free in .* broken"),
    "address taken": (
        with_two(loadBalancerIP="172.31.0.210"),
        r"service .*/second .*AddressTaken: another Service has 172\.31\.0\.210",
    ),
    "namespace has too many": (
        with_pool("172.31.0.210/31", addressesPerNamespace=0),
        r"service .*/web .*NotAllowed: .*namespace",
    ),
    "nodes excluded": (
        with_nodes("172.31.0.211", labels={EXCLUDED: ""}),
        rf"172\.31\.0\.211: {NODES}: .*{EXCLUDED} \(NodeExcluded\)",
    ),
    "nodes not selected": (
        with_pool("172.31.0.212/32", announce=NOBODY),
        rf"172\.31\.0\.212: {NODES}: .*nodeSelector .*\(NotSelected\)",
    ),
    "not on the segment": (
        with_pool("198.51.100.8/32"),
        rf"198\.51\.100\.8: {NODES}: no interface has .*\(NoLink\)",
    ),
    "no endpoint": (no_endpoint, rf"172\.31\.0\.213: {NODES}: there is no serving .*\(NoEndpoint\)"),
    "foreign host": (foreign_host, r"172\.31\.0\.214: .*another host .*, at [0-9a-f:]{17} \(AddressInUse\)"),
    "no responder": (no_responder, rf"172\.31\.0\.215: {NODES}: the responder .*\(NoResponder\)"),
    "all nodes drain": (
        with_nodes("172.31.0.216", annotations={names.ANNOTATION_NODE_DRAINS: "true"}),
        rf"172\.31\.0\.216: {NODES}: the node drains: .*\(NodeLeaves\)",
    ),
    "another farm": (another_farm, r"farm .*/thief .*AddressConflict: .*/web--http has 172\.31\.0\.217:80/TCP"),
}


@pytest.mark.parametrize("wrong", BROKEN)
def test_what_keeps_clients_from_an_address_is_said_in_a_line(cluster: Cluster, namespace: str, wrong: str) -> None:
    broken, expected = BROKEN[wrong]
    kubectl, said = Kubectl(cluster), ""

    def lines() -> list[str]:
        nonlocal said
        said = kubectl.run("why", "-n", namespace).stdout
        return [line for line in said.splitlines() if re.search(expected, line)]

    with broken(cluster, namespace):
        began = time.monotonic()
        while not (found := lines()):
            assert time.monotonic() < began + _LONGEST_S, said
            time.sleep(0.05)
        took_s = time.monotonic() - began
        print(f"after {took_s:.2f} s: {found[0]}")
        suite.record("why", "said after", "ms", took_s * 1000, **{"what is wrong": wrong})
        assert len(found) == 1
