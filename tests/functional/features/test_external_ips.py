"""The addresses that a Service may have, and what it keeps if it does not get all that it asks for."""

from typing import Any

import pytest

from lab.addresses import API_HOST
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import accepted, backends, node_port, unique


def told(cluster: Cluster, name: str, namespace: str, reason: str) -> str:
    """The messages of the Events of a Service for a reason."""
    events = cluster.events("Service", name, namespace)
    return "; ".join(event["message"] for event in events if event["reason"] == reason)


def younger(cluster: Cluster, than: str, namespace: str, body: dict[str, Any]) -> None:
    """Create a Service that is younger than another by a second at least: times are whole seconds."""
    created = cluster.get("service", than, namespace)["metadata"]["creationTimestamp"]
    name = body["metadata"]["name"]

    def is_so() -> bool:
        cluster.apply(body)
        if cluster.get("service", name, namespace)["metadata"]["creationTimestamp"] != created:
            return True
        cluster.delete("service", name, namespace)
        return False

    eventually(is_so, f"{name} is younger than {than}")


@pytest.mark.engines
@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_a_service_keeps_what_nobody_else_has(cluster: Cluster, namespace: str, client: str, affinity: str) -> None:
    external, balancer = unique(), unique()
    for app in ("first", "second"):
        cluster.serve(app, 1, namespace)
    first, second = (cluster.pods(app, namespace) for app in ("first", "second"))
    cluster.apply(service("first", namespace, externalIPs=[external]))
    asked: dict[str, Any] = {"type": "LoadBalancer", "externalIPs": [external], "sessionAffinity": affinity}
    younger(cluster, "first", namespace, service("second", namespace, **asked))
    path = f"/api/v1/namespaces/{namespace}/services/second/status"
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": balancer}]}}}
    cluster.api.request("PATCH", path, ingress, "application/merge-patch+json")
    spec = cluster.get("service", "second", namespace)["spec"]
    own = [
        (spec["clusterIP"], 80),
        (balancer, 80),
        (str(cluster.lab.nodes[0].addresses[0].ip), spec["ports"][0]["nodePort"]),
    ]
    for host, port in own:
        cluster.reaches(client, second, host, port)
    cluster.reaches(client, first, external)
    message = f"{namespace}/first--http has {external}:80/TCP; the rest is served; give one of the two another"
    eventually(
        lambda: accepted(cluster, "second--http", namespace)[:2] == ("True", "AddressConflict"), "it is accepted"
    )
    assert accepted(cluster, "second--http", namespace)[2].startswith(message)
    eventually(lambda: cluster.reason("second--http", namespace).startswith("AddressConflict"), "its status shows it")
    eventually(
        lambda: f"farm second--http: {message}" in told(cluster, "second", namespace, "AddressConflict"),
        "so does an Event of the Service",
    )
    cluster.delete("service", "first", namespace)
    cluster.reaches(client, second, external)
    for host, port in own:
        cluster.reaches(client, second, host, port)
    eventually(lambda: accepted(cluster, "second--http", namespace)[1] == "Valid", "it has everything")


def test_no_service_gets_an_address_of_the_cluster(cluster: Cluster, namespace: str, client: str) -> None:
    external = unique()
    for app in ("victim", "thief"):
        cluster.serve(app, 1, namespace)
    cluster.apply(service("victim", namespace))
    victim, thief = (cluster.pods(app, namespace) for app in ("victim", "thief"))
    pod_ip = backends(cluster, "victim", namespace)[0]["ip"]
    cluster_ip, node_ip = cluster.vip("victim", namespace), str(cluster.lab.nodes[1].addresses[0].ip)
    refused = {
        node_ip: f"it is an address of the node {cluster.nodes[1]}",
        API_HOST: "it is an address of the API server",
        pod_ip: "the range of the pods of the node",
        cluster_ip: "the range of cluster IPs",
    }
    ports = [{"name": "http", "port": 80}, {"name": "more", "port": 8081, "targetPort": 80}]
    cluster.apply(service("thief", namespace, externalIPs=[*refused, external], ports=ports))
    for port in (80, 8081):
        cluster.reaches(client, thief, external, port)
    for ip in (pod_ip, cluster_ip):
        assert cluster.answers(client, ip) == set(victim)
    for ip in refused:
        assert cluster.answers(client, ip, 8081, "--timeout", "0.3", number=1) == set()
    eventually(lambda: len(told(cluster, "thief", namespace, "ExternalIPRefused").split("; ")) == 4, "all are told")
    events = told(cluster, "thief", namespace, "ExternalIPRefused").split("; ")
    eventually(lambda: accepted(cluster, "thief--http", namespace)[1] == "ExternalIPRefused", "the farm tells it too")
    status, _, message = accepted(cluster, "thief--http", namespace)
    assert status == "True"
    for ip, why in refused.items():
        for text in (message, *[event for event in events if f"'{ip}'" in event]):
            assert f"spec.externalIPs: '{ip}' is not served: " in text
            assert why in text
    cluster.api.patch("service", "thief", namespace, {"spec": {"externalIPs": [external]}})
    eventually(lambda: accepted(cluster, "thief--http", namespace)[1] == "Valid", "nothing is refused any more")


def test_who_wins_is_not_changed_by_a_farm_that_is_made_anew(cluster: Cluster, namespace: str, client: str) -> None:
    external = unique()
    for app in ("first", "second"):
        cluster.serve(app, 1, namespace)
    cluster.apply(service("first", namespace, externalIPs=[external]))
    younger(cluster, "first", namespace, service("second", namespace, externalIPs=[external]))
    cluster.farm_has("second--http", namespace, 1)
    before = cluster.farm("first--http", namespace)["metadata"]["uid"]
    cluster.delete("farm", "first--http", namespace)
    eventually(
        lambda: (cluster.farm("first--http", namespace) or {"metadata": {"uid": before}})["metadata"]["uid"] != before,
        "it is made anew",
    )
    cluster.reaches(client, cluster.pods("first", namespace), external)
    eventually(lambda: accepted(cluster, "second--http", namespace)[1] == "AddressConflict", "the younger one waits")
    eventually(lambda: accepted(cluster, "first--http", namespace)[1] == "Valid", "the older one has it")


@pytest.mark.parametrize("number", [0, 1], ids=["the client's node", "another node"])
def test_a_node_port_is_not_taken_by_a_farm_on_the_address_of_a_node(
    cluster: Cluster, namespace: str, client: str, number: int
) -> None:
    """The client is on the first node; of another only the agent's knowledge of nodes keeps the farm from it."""
    there, port, other = str(cluster.lab.nodes[number].addresses[0].ip), node_port(), node_port() - 10_000
    for app in ("web", "thief"):
        cluster.serve(app, 1, namespace)
    mine = [{"ip": there, "ports": f"{port},{other}"}]
    cluster.apply(farm("thief", namespace, addresses=mine, backends=backends(cluster, "thief", namespace)))
    thief, web = (cluster.pods(app, namespace) for app in ("thief", "web"))
    cluster.reaches(client, thief, there, port)
    ports = [{"name": "http", "port": 80, "nodePort": port}]
    cluster.apply(service("web", namespace, type="NodePort", ports=ports))
    cluster.reaches(client, web, there, port)
    cluster.reaches(client, thief, there, other)
    message = f"{namespace}/web--http has node port {port}/TCP, which includes {there}:{port}/TCP; the rest is served;"
    eventually(lambda: accepted(cluster, "thief", namespace)[2].startswith(message), "it says what it lost")
    cluster.delete("service", "web", namespace)
    cluster.reaches(client, thief, there, port)
