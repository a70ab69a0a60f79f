"""Events about problems of a farm: on the Service and on the farm."""

from functools import partial
from typing import Any

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually


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
    # An agent's words are shown once two say the same; before, there are the operator's.
    messages = ("NftlbPolicy 'nowhere' not found; all clients", "an NftlbPolicy that it refers to does not exist")
    assert any(f": PolicyMissing: {message}" in event["message"] for message in messages), event["message"]
    assert "PolicyMissing" in cluster.kubectl("describe", "service", "web", "-n", namespace)
