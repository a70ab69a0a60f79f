"""Service → NftlbFarm → nftlb → packets."""

import json
import time
from typing import Any

import pytest

from tests.builders.manifests import client_pod, farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(180)

DUAL: dict[str, Any] = {"ipFamilyPolicy": "RequireDualStack"}


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_three_backends_on_two_nodes_get_a_third_each(
    cluster: Cluster, namespace: str, client: str, family: str
) -> None:
    cluster.apply(service("web", namespace, **DUAL))
    cluster.serve("web", 3, namespace)
    farm_name = "web--http" if family == "ipv4" else "web--http--ipv6"
    cluster.farm_has(farm_name, namespace, 3)
    vip, pods = cluster.vip("web", namespace, family), cluster.pods("web", namespace)
    nodes = {backend["node"] for backend in cluster.farm(farm_name, namespace)["status"]["backends"]}
    assert nodes == set(cluster.nodes), "the pods are on both nodes"
    cluster.apply(client_pod("far-client", namespace, cluster.nodes[1]))
    cluster.wait("pod", "far-client", "Ready", namespace)
    for where in (client, f"{namespace}/far-client", *cluster.nodes):
        counted = cluster.count(where, 300, vip)
        assert not any(counted["failures"].values()), (where, counted)
        assert set(counted["answers"]) == set(pods), (where, counted)
        assert all(99 <= number <= 101 for number in counted["answers"].values()), (where, counted)


def test_a_backend_may_be_the_client_itself(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 1, namespace)
    (pod,) = cluster.pods("web", namespace)
    cluster.reaches(f"{namespace}/{pod}", [pod], cluster.vip("web", namespace))


def test_udp_and_tcp_on_one_port_are_two_farms(cluster: Cluster, namespace: str, client: str) -> None:
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    cluster.apply(service("names", namespace, ports=ports))
    cluster.run("names", 2, namespace, ports=[{"containerPort": 53, "protocol": p} for p in ("UDP", "TCP")])
    vip, pods = cluster.vip("names", namespace), cluster.pods("names", namespace)
    cluster.reaches(client, pods, vip, 53)
    cluster.reaches(client, pods, vip, 53, "--udp")
    assert [each["metadata"]["name"] for each in cluster.get("farm", namespace=namespace)["items"]] == [
        "names--dns",
        "names--dns-tcp",
    ]


def test_a_port_changes_its_protocol(cluster: Cluster, namespace: str, client: str) -> None:
    port = {"name": "p", "port": 53}
    cluster.apply(service("web", namespace, ports=[port]))
    cluster.run("web", 2, namespace, ports=[{"containerPort": 53, "protocol": p} for p in ("UDP", "TCP")])
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    cluster.reaches(client, pods, vip, 53)
    cluster.apply(service("web", namespace, ports=[{**port, "protocol": "UDP"}]))
    cluster.reaches(client, pods, vip, 53, "--udp")
    eventually(lambda: cluster.answers(client, vip, 53, "--timeout", "0.3", number=1) == set(), "TCP is over")


def test_ports_are_added_renumbered_and_removed_under_a_service(cluster: Cluster, namespace: str, client: str) -> None:
    one = {"name": "one", "port": 80, "targetPort": 8001}
    two = {"name": "two", "port": 81, "targetPort": "second"}
    cluster.apply(service("web", namespace, ports=[one]))
    cluster.run("web", 2, namespace, ports=[{"containerPort": 8001}, {"name": "second", "containerPort": 8002}])
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    cluster.reaches(client, pods, vip, 80)
    with cluster.hammer(client, vip, 80) as untouched:
        cluster.apply(service("web", namespace, ports=[one, two]))
        cluster.reaches(client, pods, vip, 81)
        cluster.apply(service("web", namespace, ports=[one, {**two, "port": 82}]))
        cluster.reaches(client, pods, vip, 82)
        eventually(lambda: cluster.answers(client, vip, 81, number=1) == set(), "the old port is closed")
        cluster.apply(service("web", namespace, ports=[one]))
        eventually(lambda: cluster.farm("web--two", namespace) is None, "the farm of the port is gone")
    assert untouched["failures"] == [], "the first port never failed"


def test_a_service_without_endpoints_refuses_and_does_not_let_wait(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.apply(service("web", namespace, selector={"app": "nobody"}))
    vip = cluster.vip("web", namespace)
    cluster.farm_has("web--http", namespace, 0)
    for where in (client, cluster.nodes[0]):
        counted = cluster.count(where, 5, vip)
        assert counted["failures"]["refused"] == 5, (where, counted)


def test_an_unready_pod_gets_no_connections_until_it_is_ready_again(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 2, namespace)
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    cluster.reaches(client, pods, vip)
    cluster.lab.pod(False, f"{namespace}/{pods[0]}")
    cluster.reaches(client, pods[1:], vip)
    eventually(
        lambda: cluster.farm("web--http", namespace).get("status", {}).get("backendsReady") == "1/2", "kubectl shows it"
    )
    cluster.lab.pod(True, f"{namespace}/{pods[0]}")
    cluster.reaches(client, pods, vip)


def test_endpoints_of_several_slices_are_joined(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, selector=None))
    cluster.serve("behind", 3, namespace)
    pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=behind", "-n", namespace, "-o", "json"))["items"]
    for number, pod in enumerate(pods):
        cluster.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"web-{number}",
                    "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": "web"},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 80}],
                "endpoints": [{"addresses": [pod["status"]["podIP"]]}],
            }
        )
    names = [pod["metadata"]["name"] for pod in pods]
    cluster.reaches(client, names, cluster.vip("web", namespace))
    cluster.delete("endpointslice", "web-0", namespace)
    cluster.reaches(client, names[1:], cluster.vip("web", namespace))


def test_one_name_in_two_namespaces_is_two_services(cluster: Cluster, namespace: str, client: str) -> None:
    with cluster.namespace() as other:
        for space in (namespace, other):
            cluster.apply(service("web", space))
            cluster.run("web", 1, space)
        for space in (namespace, other):
            cluster.reaches(client, cluster.pods("web", space), cluster.vip("web", space))
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))


def test_two_services_that_would_give_one_farm_name_both_work(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("a--b", namespace, ports=[{"name": "c", "port": 80}], selector={"app": "one"}))
    eventually(lambda: cluster.farm("a--b--c", namespace) is not None, "the older one has its farm")
    cluster.apply(service("a", namespace, ports=[{"name": "b--c", "port": 80}], selector={"app": "two"}))
    for app in ("one", "two"):
        cluster.run(app, 1, namespace)
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


@pytest.mark.parametrize(("mode", "sees_client"), [("snat", False), ("dnat", True)])
def test_the_mode_decides_which_address_the_backend_sees(
    cluster: Cluster, namespace: str, client: str, mode: str, sees_client: bool
) -> None:
    cluster.apply(service("web", namespace, {"mode": mode}))
    cluster.serve("web", 2, namespace)
    vip = cluster.vip("web", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), vip)
    client_ip = cluster.get("pod", "client", namespace)["status"]["podIP"]
    peers = set(cluster.count(client, 20, vip)["peers"])
    assert (peers == {client_ip}) == sees_client, peers


def test_session_affinity_holds_a_client_and_ends_with_its_timeout(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.serve("web", 4, namespace)
    affinity: dict[str, Any] = {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
    }
    cluster.apply(service("web", namespace, **affinity))
    vip = cluster.vip("web", namespace)
    cluster.farm_has("web--http", namespace, 4)
    assert cluster.farm("web--http", namespace)["spec"]["persistTTL"] == 1
    assert len(cluster.answers(client, vip)) == 1

    seen: set[str] = set()

    def moved() -> bool:
        # Silence for longer than the timeout, then one connection.
        time.sleep(1.5)
        seen.update(cluster.answers(client, vip, number=1))
        return len(seen) > 1

    eventually(moved, "a client that was silent is scheduled again")
    cluster.apply(service("web", namespace, sessionAffinity="None", sessionAffinityConfig=None))
    eventually(lambda: len(cluster.answers(client, vip)) == 4, "without affinity all backends answer")


def test_a_client_is_not_held_to_a_backend_that_is_gone(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 3, namespace)
    cluster.apply(service("web", namespace, sessionAffinity="ClientIP"))
    vip = cluster.vip("web", namespace)
    cluster.farm_has("web--http", namespace, 3)
    (held,) = cluster.answers(client, vip)
    # An open connection to the backend writes the session anew with each of its packets.
    with cluster.streams(1, client, vip) as streams:
        cluster.lab.pod(False, f"{namespace}/{held}")
        cluster.farm_has("web--http", namespace, 2)
        eventually(
            lambda: held not in (cluster.answers(client, vip, 80, "--timeout", "0.5", number=3) or {held}),
            "it gets another backend",
            8,
        )
    assert streams[0]["pod"] == held
    assert streams[0]["complete"], "the open connection goes on"


def test_a_service_is_deleted_and_made_again(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 2, namespace)
    cluster.apply(service("web", namespace))
    pods = cluster.pods("web", namespace)
    first = cluster.vip("web", namespace)
    cluster.reaches(client, pods, first)
    cluster.delete("service", "web", namespace)
    eventually(lambda: cluster.node_farms(namespace) == [], "nftlb has no farm of it")
    for node in cluster.nodes:
        assert first not in cluster.nft(node, "list", "ruleset")
        assert f"{namespace}.web" not in cluster.nft(node, "list", "ruleset")
    cluster.apply(service("web", namespace))
    cluster.reaches(client, pods, cluster.vip("web", namespace))


def test_a_farm_written_by_hand_is_served_like_any_other(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 2, namespace)
    pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=web", "-n", namespace, "-o", "json"))["items"]
    backends = [{"name": p["metadata"]["name"], "ip": p["status"]["podIP"], "port": 80} for p in pods]
    cluster.apply(farm("mine", namespace, addresses=[{"ip": "10.99.0.1", "ports": "80,8000-8002"}], backends=backends))
    cluster.wait("farm", "mine", "Programmed", namespace)
    for port in (80, 8000, 8002):
        assert cluster.answers(client, "10.99.0.1", port) == {b["name"] for b in backends}
    counted = cluster.count(client, 3, "10.99.0.1", 8003, "--timeout", "0.5")
    assert sum(counted["failures"].values()) == 3


def test_nothing_is_written_to_the_users_objects(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    for kind in ("services", "endpointslices"):
        shown = cluster.kubectl("get", kind, "-n", namespace, "-o", "json", "--show-managed-fields")
        for item in json.loads(shown)["items"]:
            managers = {entry["manager"] for entry in item["metadata"]["managedFields"]}
            assert not any("nftlb" in manager or "kopf" in manager for manager in managers), managers
            assert "finalizers" not in item["metadata"]
