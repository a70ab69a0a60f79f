"""Service → NftlbFarm → engine → packets, where ``conformance`` has no such case: it knows no farms."""

import json
from typing import Any

import pytest

from kube_nftlb import names
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually

DUAL: dict[str, Any] = {"ipFamilyPolicy": "RequireDualStack"}


@pytest.mark.engines
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_three_backends_on_two_nodes_get_a_third_each(
    cluster: Cluster, namespace: str, client: str, far: str, family: str
) -> None:
    cluster.serve("web", 3, namespace)
    cluster.apply(service("web", namespace, **DUAL))
    farm_name = "web--http" if family == "ipv4" else "web--http--ipv6"
    cluster.farm_has(farm_name, namespace, 3)
    vip, pods = cluster.vip("web", namespace, family), cluster.pods("web", namespace)
    nodes = {backend["node"] for backend in cluster.listed(farm_name, namespace, 3)}
    assert nodes == set(cluster.nodes), "the pods are on both nodes"
    for where in (client, far, *cluster.nodes):
        counted = cluster.count(where, 300, vip)
        assert not any(counted["failures"].values()), (where, counted)
        assert set(counted["answers"]) == set(pods), (where, counted)
        assert all(99 <= number <= 101 for number in counted["answers"].values()), (where, counted)


def test_one_name_in_two_namespaces_is_two_services(
    cluster: Cluster, namespace: str, own_namespace: str, client: str
) -> None:
    for name in ("web", "other"):
        cluster.serve(name, 1, namespace)
    (mine,), (others,) = (cluster.pods(name, namespace) for name in ("web", "other"))
    cluster.apply(service("web", namespace), service("web", own_namespace, selector=None))
    ip = cluster.get("pod", others, namespace)["status"]["podIP"]
    cluster.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": own_namespace, "labels": {names.LABEL_SLICE_SERVICE: "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80}],
            "endpoints": [{"addresses": [ip]}],
        }
    )
    cluster.reaches(client, [mine], cluster.vip("web", namespace))
    cluster.reaches(client, [others], cluster.vip("web", own_namespace))
    cluster.reaches(client, [mine], cluster.vip("web", namespace))


def test_two_services_that_would_give_one_farm_name_both_work(cluster: Cluster, namespace: str, client: str) -> None:
    for app in ("one", "two"):
        cluster.serve(app, 1, namespace)
    cluster.apply(service("a--b", namespace, ports=[{"name": "c", "port": 80}], selector={"app": "one"}))
    eventually(lambda: cluster.farm("a--b--c", namespace) is not None, "the older one has its farm")
    cluster.apply(service("a", namespace, ports=[{"name": "b--c", "port": 80}], selector={"app": "two"}))
    cluster.reaches(client, cluster.pods("one", namespace), cluster.vip("a--b", namespace))
    cluster.reaches(client, cluster.pods("two", namespace), cluster.vip("a", namespace))
    farms = [item["metadata"]["name"] for item in cluster.get("farm", namespace=namespace)["items"]]
    assert len(farms) == 2
    assert "a--b--c" in farms


def test_annotations_are_followed(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 3, namespace)
    cluster.apply(service("web", namespace, {"persistence": "srcip"}))
    vip = cluster.vip("web", namespace)
    cluster.farm_has("web--http", namespace, 3)
    assert len(cluster.answers(client, vip)) == 1, "one client, one backend"
    cluster.apply(service("web", namespace, {"scheduler": "weight"}))
    eventually(lambda: len(cluster.answers(client, vip, number=60)) == 3, "each connection is scheduled")
    spec = cluster.farm("web--http", namespace)["spec"]
    assert (spec["scheduler"], spec["persistence"]) == ("weight", "none")


@pytest.mark.engines
@pytest.mark.parametrize(("mode", "sees_client"), [("snat", False), ("dnat", True)])
def test_the_mode_decides_which_address_the_backend_sees(
    cluster: Cluster, namespace: str, client: str, mode: str, sees_client: bool
) -> None:
    cluster.serve("web", 2, namespace)
    cluster.apply(service("web", namespace, {"mode": mode}))
    vip = cluster.vip("web", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), vip)
    client_ip = cluster.get("pod", "client", namespace)["status"]["podIP"]
    peers = set(cluster.count(client, 20, vip)["peers"])
    assert (peers == {client_ip}) == sees_client, peers


def test_nothing_is_written_to_the_users_objects(cluster: Cluster, namespace: str) -> None:
    cluster.serve("web", 2, namespace)
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    for kind in ("services", "endpointslices"):
        shown = cluster.kubectl("get", kind, "-n", namespace, "-o", "json", "--show-managed-fields")
        items = json.loads(shown)["items"]
        assert items
        for item in items:
            managers = {entry["manager"] for entry in item["metadata"]["managedFields"]}
            assert not any("nftlb" in manager or "kopf" in manager for manager in managers), managers
            assert "finalizers" not in item["metadata"]
