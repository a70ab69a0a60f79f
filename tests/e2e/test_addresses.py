"""Addresses that real nodes announce: an upgrade of all nodes, BIRD of the image, and what uninstalling leaves."""

from collections.abc import Iterator
from typing import Any

import pytest

from lab.places import CLIENT
from tests.e2e.real import RealCluster, until
from tests.e2e.test_walkthrough import my_service
from tests.functional.segment import POOL, cut, note, record

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

PORT = 8080
OPTIONS = [
    option
    for value in ("profile=kube-proxy", "addresses.enabled=true", "addresses.bgp.enabled=true")
    for option in ("--set", value)
]
PEER = {
    "apiVersion": "kube-nftlb.io/v1alpha1",
    "kind": "NftlbBGPPeer",
    "metadata": {"name": "nobody"},
    "spec": {"address": "172.31.0.250", "asn": 65000, "myAsn": 65001},
}
"""A router that is not there."""


@pytest.fixture
def served(bare_cluster: RealCluster) -> Iterator[tuple[str, str]]:
    """The namespace and the address of a Service with two containers behind it."""
    cluster = bare_cluster
    cluster.install(*OPTIONS)
    cluster.apply(POOL)
    with cluster.namespace() as namespace:
        cluster.serve("lower-prio", 2, namespace)
        made = my_service(namespace, type="LoadBalancer", loadBalancerClass="kube-nftlb.io/nftlb")
        cluster.apply(made)
        until(lambda: len(ingress(cluster, namespace)) == 1, "the Service has an address")
        ip = str(ingress(cluster, namespace)[0]["ip"])
        cluster.reaches(CLIENT, cluster.pods("lower-prio", namespace), ip, PORT)
        yield namespace, ip


def ingress(cluster: RealCluster, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("service", "my-service", namespace)["status"]["loadBalancer"].get(
        "ingress", []
    )
    return found


def test_no_new_connection_to_an_address_fails_while_the_release_is_upgraded(
    bare_cluster: RealCluster, served: tuple[str, str]
) -> None:
    _, ip = served
    before = {pod["metadata"]["uid"] for pod in bare_cluster.system_pods("agent")}
    moved = record(bare_cluster, ip).transitions
    with bare_cluster.hammer(CLIENT, ip, PORT) as met:
        bare_cluster.install(*OPTIONS, "--set", "log.level=DEBUG")
    moves = record(bare_cluster, ip).transitions - moved
    assert not before & {pod["metadata"]["uid"] for pod in bare_cluster.system_pods("agent")}
    print(f"{met['attempts']} connections, {moves} moves, failed {met['failed']}, gap {met['longest_gap_ms']} ms")
    # The engine of the profile, whatever other tests ask for.
    note(met, "helm upgrade of two nodes with kubelets", scenario="replaced", by="nftables")
    assert cut(met) <= 2 * moves, "those of the two threads that are open at a hand-over"
    assert met["failed"] == {}


def test_bird_of_the_image_runs_and_looks_for_its_router(bare_cluster: RealCluster, served: tuple[str, str]) -> None:
    assert served
    bare_cluster.apply(PEER)

    def sessions() -> list[dict[str, Any]]:
        nodes = bare_cluster.get("nftlbnode")["items"]
        return [each for node in nodes for each in node["status"].get("bgp", {}).get("sessions", [])]

    until(lambda: [each["peer"] for each in sessions()] == ["nobody", "nobody"], "both nodes tell of the router")
    until(lambda: all(each["state"] in ("Connect", "Active") for each in sessions()), "BIRD tries to connect")
    bare_cluster.delete("nftlbbgppeer", "nobody", "")
    for pod in bare_cluster.system_pods("agent"):
        states = {each["name"]: each for each in pod["status"]["containerStatuses"]}
        assert states["bird"]["restartCount"] == states["responder"]["restartCount"] == 0


def test_uninstalling_takes_addresses_back_and_nobody_answers_any_more(
    bare_cluster: RealCluster, served: tuple[str, str]
) -> None:
    namespace, ip = served
    bare_cluster.uninstall()
    assert ingress(bare_cluster, namespace) == []
    bare_cluster.lab.exec(CLIENT, "ip", "neigh", "flush", "all")
    bare_cluster.count(CLIENT, 1, ip, PORT, "--timeout", "5")
    said = bare_cluster.lab.exec(CLIENT, "ip", "neigh", "show", ip).stdout
    assert "FAILED" in said, said
