from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kube_nftlb.kube.resources import JsonObject
from lab.addresses import NodePlan
from lab.kubelet import objects

NOW = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
NODE = NodePlan(1, "a")
IPS = ["10.244.1.2", "fd00:244:1::2"]


def pod(*ports: dict[str, Any], **status: Any) -> JsonObject:
    container = {"name": "web", "image": "nginx", "ports": list(ports)}
    metadata = {"name": "web-1", "namespace": "default", "uid": "u"}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": status}


def conditions(status: JsonObject) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in status["conditions"]}


def test_a_node_has_its_zone_and_both_families() -> None:
    assert objects.node(NODE)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "a"
    assert objects.node(NODE)["spec"]["podCIDRs"] == ["10.244.1.0/24", "fd00:244:1::/64"]
    assert [entry["address"] for entry in objects.node_status(NODE, "v1.36.3", NOW)["addresses"]] == [
        "172.31.0.11",
        "fd00:31::b",
        "node-1",
    ]


def test_a_running_pod_has_addresses_and_is_ready() -> None:
    status = objects.pod_status(pod(), NODE, IPS, ready=True, now=NOW)
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", IPS[0], "172.31.0.11")
    assert status["podIPs"] == [{"ip": ip} for ip in IPS]
    assert set(conditions(status)) == {"PodScheduled", "Initialized", "ContainersReady", "Ready"}
    assert set(conditions(status).values()) == {"True"}
    assert status["containerStatuses"][0]["ready"] is True


def test_a_pod_waits_for_its_readiness_gates() -> None:
    gated = pod(conditions=[{"type": "example.com/gate", "status": "False"}])
    gated["spec"]["readinessGates"] = [{"conditionType": "example.com/gate"}]
    status = objects.pod_status(gated, NODE, IPS, ready=True, now=NOW)
    assert (conditions(status)["ContainersReady"], conditions(status)["Ready"]) == ("True", "False")
    assert not objects.was_made_unready(pod(**status))
    gated["status"]["conditions"][0]["status"] = "True"
    assert conditions(objects.pod_status(gated, NODE, IPS, ready=True, now=NOW))["Ready"] == "True"


def test_a_pod_made_unready_is_recognized_afterwards() -> None:
    status = objects.pod_status(pod(), NODE, IPS, ready=False, now=NOW)
    assert conditions(status)["Ready"] == conditions(status)["ContainersReady"] == "False"
    assert conditions(status)["Initialized"] == "True"
    assert objects.was_made_unready(pod(**status))
    assert not objects.was_made_unready(pod())


def test_unchanged_conditions_keep_their_transition_time() -> None:
    first = objects.pod_status(pod(), NODE, IPS, ready=True, now=NOW)
    second = objects.pod_status(pod(**first), NODE, IPS, ready=False, now=NOW + timedelta(hours=1))
    times = {entry["type"]: entry["lastTransitionTime"] for entry in second["conditions"]}
    assert times["Initialized"] == "2026-01-02T03:04:05Z"
    assert times["Ready"] == "2026-01-02T04:04:05Z"
    assert second["startTime"] == first["startTime"]


def test_ports_default_to_80() -> None:
    assert objects.ports(pod()) == [(80, "TCP")]
    dns = pod({"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}, {"containerPort": 53})
    assert objects.ports(dns) == [(53, "UDP"), (53, "TCP")]


@pytest.mark.parametrize(
    ("deadline", "left_s"),
    [
        ("2026-01-02T03:04:15Z", 10.0),  # just asked for: the whole grace
        ("2026-01-02T03:04:07Z", 2.4),
        ("2026-01-02T03:00:00Z", 0.0),
    ],
)
def test_grace_left(deadline: str, left_s: float) -> None:
    metadata = {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": 10}
    assert objects.grace_left_s(metadata, NOW) == pytest.approx(left_s)


def test_a_pod_without_deletion_has_no_deadline() -> None:
    assert objects.grace_left_s({}, NOW) is None
