"""Events about problems: on the Service, the Node and the farm."""

import time
from functools import partial
from typing import Any

import pytest

from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = [pytest.mark.timeout(180), pytest.mark.once("what is told of farms and nodes")]

VIP = "10.99.96.1"
LATE_S = 30
"""The default of operator.notProgrammedSeconds."""


def told(cluster: Cluster, kind: str, name: str, namespace: str) -> dict[str, dict[str, Any]]:
    """The newest Event of each reason about an object."""
    return {event["reason"]: event for event in cluster.events(kind, name, namespace)}


def has_event(cluster: Cluster, kind: str, name: str, namespace: str, reason: str) -> bool:
    return reason in told(cluster, kind, name, namespace)


def test_a_service_tells_of_its_farm_that_no_node_can_program(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace, {"policies": "nowhere"}))
    for kind, name in (("Service", "web"), ("NftlbFarm", "web--http")):
        eventually(partial(has_event, cluster, kind, name, namespace, "FarmFailed"), f"{kind} has the Event")
    event = told(cluster, "Service", "web", namespace)["FarmFailed"]
    assert event["type"] == "Warning"
    assert event["message"].startswith("farm web--http: node ")
    assert "PolicyMissing: an NftlbPolicy that it refers to does not exist" in event["message"]
    assert "PolicyMissing" in cluster.kubectl("describe", "service", "web", "-n", namespace)


def test_a_service_tells_that_another_has_its_address(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("first", namespace, externalIPs=[VIP]))
    cluster.wait("farm", "first--http", "Programmed", namespace)
    # Of two Services the older has the address; times are whole seconds.
    created = cluster.get("service", "first", namespace)["metadata"]["creationTimestamp"]

    def younger() -> bool:
        cluster.apply(service("second", namespace, externalIPs=[VIP]))
        if cluster.get("service", "second", namespace)["metadata"]["creationTimestamp"] != created:
            return True
        cluster.kubectl("delete", "service", "second", "-n", namespace)
        return False

    eventually(younger, "the second Service is a second younger")
    eventually(lambda: "AddressConflict" in told(cluster, "Service", "second", namespace), "the Service tells")
    message = told(cluster, "Service", "second", namespace)["AddressConflict"]["message"]
    assert message.startswith(
        f"farm second--http: {namespace}/first--http has {VIP}:80/TCP; the rest is served; give one"
    )
    cluster.wait("farm", "second--http", "Programmed", namespace)
    assert "AddressConflict" not in told(cluster, "Service", "first", namespace)


def test_a_service_tells_of_a_node_that_is_late_and_of_its_return(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[1]
    cluster.lab.stop("agent", node)
    try:
        cluster.apply(service("web", namespace))
        begun = time.monotonic()
        eventually(
            lambda: "NotProgrammed" in told(cluster, "Service", "web", namespace), "the Service tells", LATE_S + 30
        )
        assert time.monotonic() - begun > LATE_S - 1, "a node may take its time"
    finally:
        cluster.lab.start("agent", node)
    eventually(lambda: "Programmed" in told(cluster, "Service", "web", namespace), "the Service tells of the end", 40)
    for kind, name in (("Service", "web"), ("NftlbFarm", "web--http")):
        events = told(cluster, kind, name, namespace)
        assert (events["NotProgrammed"]["type"], events["Programmed"]["type"]) == ("Warning", "Normal")
        assert f"has not been programmed on {node} for more than 30 s" in events["NotProgrammed"]["message"]


def test_a_service_tells_that_another_engine_serves_it(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace, {"engine": "nftables"}))
    cluster.wait("farm", "web--http", "Programmed", namespace)
    assert "EngineChanged" not in told(cluster, "Service", "web", namespace)
    cluster.apply(service("web", namespace, {"engine": "nftlb"}))
    eventually(lambda: "EngineChanged" in told(cluster, "Service", "web", namespace), "the Service tells")
    event = told(cluster, "Service", "web", namespace)["EngineChanged"]
    assert event["type"] == "Normal"
    assert event["message"] == (
        "farm web--http: the engine nftlb serves it instead of nftables; open connections go on"
    )


def test_a_node_tells_that_its_nftlb_is_away_and_that_it_is_back(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    cluster.lab.stop("nftlb", node)
    try:
        eventually(lambda: "NftlbUnreachable" in told(cluster, "Node", node, "default"), "the Node tells", 40)
        nftlbnode = cluster.get("nftlbnode", node)["status"]["conditions"]
        ready = next(each for each in nftlbnode if each["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "NftlbUnreachable")
        assert "see its logs on this node" in ready["message"]
    finally:
        cluster.lab.start("nftlb", node)
    eventually(lambda: "NftlbReachable" in told(cluster, "Node", node, "default"), "the Node tells that it is over", 40)
    events = told(cluster, "Node", node, "default")
    assert (events["NftlbUnreachable"]["type"], events["NftlbReachable"]["type"]) == ("Warning", "Normal")
    assert events["NftlbUnreachable"]["source"] == {"component": "kube-nftlb-agent", "host": node}
    described = cluster.kubectl("describe", "node", node)
    assert "NftlbUnreachable" in described
    assert "NftlbReachable" in described
    assert "NftlbUnreachable" not in told(cluster, "Node", cluster.nodes[0], "default")


def test_a_node_tells_of_farms_that_fail_on_it_and_that_they_do_no_longer(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[0]
    guarded = farm("guarded", namespace, addresses=[{"ip": VIP, "ports": "80"}], policies=["nowhere"])
    cluster.apply(guarded)
    eventually(
        lambda: (
            f"{namespace}/guarded" in told(cluster, "Node", node, "default").get("FarmsFailed", {}).get("message", "")
        ),
        "the Node names the farm",
        40,
    )
    message = told(cluster, "Node", node, "default")["FarmsFailed"]["message"]
    assert "PolicyMissing" in message
    assert message.endswith(f"kubectl describe nftlbnode {node}")
    cluster.delete("farm", "guarded", namespace)
    eventually(
        lambda: "FarmsProgrammed" in told(cluster, "Node", node, "default"), "the Node tells that it is over", 40
    )
