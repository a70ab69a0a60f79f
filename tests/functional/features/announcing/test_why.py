"""Whatever keeps clients from an address, ``kubectl nftlb why`` says it in a line, soon."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.agent.announcing.nodes import EXCLUDED
from lab.places import CLIENT
from tests.builders.manifests import endpoint_slice, farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.features.test_addresses import balanced, pool

Broken = Callable[[Cluster, str], contextlib.AbstractContextManager[None]]
_LONGEST_S = 20.0
"""It takes less than two on a quiet machine."""


@contextlib.contextmanager
def with_pool(cluster: Cluster, *ranges: str, **spec: Any) -> Iterator[None]:
    cluster.apply(pool("broken", *ranges, autoAssign=False, **spec))
    try:
        yield
    finally:
        cluster.delete("nftlbaddresspool", "broken")


def asks(cluster: Cluster, namespace: str, name: str = "web", **spec: Any) -> None:
    """Make a Service that asks for an address of the pool of the test, with an endpoint."""
    asked = {} if "loadBalancerIP" in spec else {"address-pool": "broken"}
    cluster.apply(balanced(name, namespace, asked, **spec))
    cluster.apply(endpoint_slice("web-1", namespace, "web", ("10.244.1.77", True)))


@contextlib.contextmanager
def no_pool(cluster: Cluster, namespace: str) -> Iterator[None]:
    asks(cluster, namespace, loadBalancerIP="203.0.113.9")
    yield


@contextlib.contextmanager
def refused_pool(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool(cluster, "10.96.7.0/24"):
        asks(cluster, namespace)
        yield


@contextlib.contextmanager
def exhausted(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool(cluster, "172.31.0.210/32"):
        asks(cluster, namespace, "first")
        eventually(lambda: bool(cluster.farm("first--http", namespace)), "the first has it")
        asks(cluster, namespace)
        yield


@contextlib.contextmanager
def taken(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool(cluster, "172.31.0.210/32"):
        asks(cluster, namespace, "first")
        eventually(lambda: bool(cluster.farm("first--http", namespace)), "the first has it")
        asks(cluster, namespace, loadBalancerIP="172.31.0.210")
        yield


@contextlib.contextmanager
def too_many(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool(cluster, "172.31.0.210/31", addressesPerNamespace=0):
        asks(cluster, namespace)
        yield


@contextlib.contextmanager
def all_excluded(cluster: Cluster, namespace: str) -> Iterator[None]:
    for node in cluster.nodes:
        cluster.api.patch("node", node, "", {"metadata": {"labels": {EXCLUDED: ""}}})
    try:
        with with_pool(cluster, "172.31.0.211/32"):
            asks(cluster, namespace)
            yield
    finally:
        for node in cluster.nodes:
            cluster.api.patch("node", node, "", {"metadata": {"labels": {EXCLUDED: None}}})


@contextlib.contextmanager
def not_selected(cluster: Cluster, namespace: str) -> Iterator[None]:
    nobody = {"nodeSelector": {"matchLabels": {"role": "edge"}}}
    with with_pool(cluster, "172.31.0.212/32", announce={"l2": nobody}):
        asks(cluster, namespace)
        yield


@contextlib.contextmanager
def no_link(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool(cluster, "198.51.100.8/32"):
        asks(cluster, namespace)
        yield


@contextlib.contextmanager
def no_endpoint(cluster: Cluster, namespace: str) -> Iterator[None]:
    with with_pool(cluster, "172.31.0.213/32", announce={"whenEmpty": "withdraw"}):
        asks(cluster, namespace)
        cluster.apply(endpoint_slice("web-1", namespace, "web", ("10.244.1.77", False)))
        yield


@contextlib.contextmanager
def foreign_host(cluster: Cluster, namespace: str) -> Iterator[None]:
    own = ("addr", "add", "172.31.0.214/32", "dev", "eth0")
    assert cluster.lab.exec(CLIENT, "ip", *own).returncode == 0
    try:
        with with_pool(cluster, "172.31.0.214/32"):
            asks(cluster, namespace)
            yield
    finally:
        cluster.lab.exec(CLIENT, "ip", "addr", "del", *own[2:])


@contextlib.contextmanager
def no_responder(cluster: Cluster, namespace: str) -> Iterator[None]:
    cluster.lab.stop("responder")
    try:
        with with_pool(cluster, "172.31.0.215/32"):
            asks(cluster, namespace)
            yield
    finally:
        cluster.lab.start("responder")


@contextlib.contextmanager
def all_drain(cluster: Cluster, namespace: str) -> Iterator[None]:
    for node in cluster.nodes:
        cluster.api.patch("node", node, "", {"metadata": {"annotations": {names.ANNOTATION_NODE_DRAINS: "true"}}})
    try:
        with with_pool(cluster, "172.31.0.216/32"):
            asks(cluster, namespace)
            yield
    finally:
        for node in cluster.nodes:
            cluster.api.patch("node", node, "", {"metadata": {"annotations": {names.ANNOTATION_NODE_DRAINS: None}}})


@contextlib.contextmanager
def another_farm(cluster: Cluster, namespace: str) -> Iterator[None]:
    cluster.apply(farm("thief", namespace, addresses=[{"ip": "172.31.0.217", "ports": "80"}]))
    with with_pool(cluster, "172.31.0.217/32"):
        asks(cluster, namespace)
        yield


BROKEN: dict[str, tuple[Broken, str]] = {
    "no pool": (no_pool, r"service .*/web .*NoPool: .*203\.0\.113\.9.* → create an NftlbAddressPool"),
    "pool refused": (refused_pool, r"address pool broken .*Invalid: .*10\.96\.7\.0/24.* → change spec.ranges"),
    "pool exhausted": (
        exhausted,
        r"service .*/web .*PoolExhausted: no IPv4 address is free in .* broken",
    ),
    "address taken": (taken, r"service .*/web .*AddressTaken: another Service has 172\.31\.0\.210"),
    "namespace has too many": (too_many, r"service .*/web .*NotAllowed: .*namespace"),
    "nodes excluded": (all_excluded, rf"172\.31\.0\.211: node-1, node-2, node-3: .*{EXCLUDED} \(NodeExcluded\)"),
    "nodes not selected": (not_selected, r"172\.31\.0\.212: node-1, node-2, node-3: .*nodeSelector .*\(NotSelected\)"),
    "not on the segment": (
        no_link,
        r"198\.51\.100\.8: node-1, node-2, node-3: no interface has .*\(NoLink\)",
    ),
    "no endpoint": (no_endpoint, r"172\.31\.0\.213: node-1, node-2, node-3: there is no serving .*\(NoEndpoint\)"),
    "foreign host": (
        foreign_host,
        r"172\.31\.0\.214: .*another host .*, at [0-9a-f:]{17} \(AddressInUse\)",
    ),
    "no responder": (no_responder, r"172\.31\.0\.215: node-1, node-2, node-3: the responder .*\(NoResponder\)"),
    "all nodes drain": (all_drain, r"172\.31\.0\.216: node-1, node-2, node-3: the node drains: .*\(NodeLeaves\)"),
    "another farm": (another_farm, r"farm .*/thief .*AddressConflict: .*/web--http has 172\.31\.0\.217:80/TCP"),
}


@pytest.mark.parametrize(("broken", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_what_keeps_clients_from_an_address_is_said_in_a_line(
    cluster: Cluster, namespace: str, broken: Broken, expected: str
) -> None:
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
        print(f"after {time.monotonic() - began:.2f} s: {found[0]}")
        assert len(found) == 1
