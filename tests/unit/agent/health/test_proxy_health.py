"""The agent's answers to probes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from kube_nftlb.agent.health.proxy_health import STUCK_AFTER_S, Health, alive, healthz, livez, node_eligible, readyz
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.http_server import Answer
from tests.builders import raw_node

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
STAMP = "2026-01-01T12:00:30.000000Z"


def health(**changes: Any) -> Health:
    good: dict[str, Any] = {
        "now": NOW,
        "overdue": False,
        "done_s_ago": 20.0,
        "node_eligible": True,
        "began_s_ago": 1.0,
        "nftlb_error": None,
    }
    return Health(**{**good, **changes})


def body_of(answer: Answer) -> Mapping[str, object]:
    assert isinstance(answer.body, Mapping)
    return answer.body


@pytest.mark.parametrize(
    ("changes", "healthz_status", "livez_status", "readyz_status"),
    [
        ({}, 200, 200, 200),
        ({"overdue": True}, 503, 503, 200),
        ({"node_eligible": False}, 503, 200, 200),
        ({"done_s_ago": None}, 200, 200, 503),
        ({"nftlb_error": "refused"}, 200, 200, 503),
    ],
)
def test_the_statuses(changes: dict[str, Any], healthz_status: int, livez_status: int, readyz_status: int) -> None:
    state = health(**changes)
    statuses = healthz(state).status, livez(state).status, readyz(state).status
    assert statuses == (healthz_status, livez_status, readyz_status)


def test_the_bodies_are_as_those_of_kube_proxy() -> None:
    body = {"lastUpdated": STAMP, "currentTime": STAMP, "healthy": True}
    assert healthz(health()).body == {**body, "nodeEligible": True}
    assert livez(health()).body == body


def test_a_node_that_goes_does_not_make_the_agent_unhealthy() -> None:
    body = body_of(healthz(health(node_eligible=False)))
    assert (body["healthy"], body["nodeEligible"]) == (True, False)


def test_who_is_late_tells_since_when() -> None:
    assert body_of(livez(health(overdue=True)))["lastUpdated"] == "2026-01-01T12:00:10.000000Z"
    assert body_of(livez(health(overdue=True, done_s_ago=None)))["lastUpdated"] is None


def test_readiness_tells_what_is_missing() -> None:
    body = readyz(health(nftlb_error="refused")).body
    assert body == {"currentTime": STAMP, "synced": True, "nftlbReachable": False, "ready": False}


def test_the_kubelet_ends_no_agent_that_is_only_late() -> None:
    late = health(overdue=True, done_s_ago=None, nftlb_error="refused", node_eligible=False)
    assert alive(late).status == 200
    assert alive(health(began_s_ago=STUCK_AFTER_S + 1)).status == 503


def node(deleted_at: str | None = None, **spec: Any) -> CoreNode:
    raw = raw_node(**spec)
    return CoreNode.model_validate({**raw, "metadata": {**raw["metadata"], "deletionTimestamp": deleted_at}})


@pytest.mark.parametrize(
    ("current", "eligible"),
    [
        (node(), True),
        (node(taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]), True),
        (node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]), False),
        (node(deleted_at="2026-01-01T00:00:00Z"), False),
        (None, False),
    ],
)
def test_which_nodes_load_balancers_may_send_to(current: CoreNode | None, eligible: bool) -> None:
    assert node_eligible(current, known=True) is eligible


def test_a_node_that_nothing_is_known_of_yet_is_not_taken_out() -> None:
    assert node_eligible(None, known=False)
