"""Statuses are merged: what others wrote stays, and nothing is written that is there already."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.operator.gateway.merge import merge_class, merge_conditions, merge_gateway, merge_route
from kube_nftlb.operator.gateway.wanted import ClassStatus, GatewayStatus, ListenerStatus, ParentStatus, WantedCondition

NOW, BEFORE = "2026-02-02T02:02:02Z", "2026-01-01T00:00:00Z"
OURS, THEIRS = "kube-nftlb.io/gateway", "example.com/gateway"


def wanted(
    kind: str = "Accepted", status: Any = "True", reason: Any = "Accepted", generation: int = 3
) -> WantedCondition:
    return WantedCondition(kind, status, reason, "a message", generation)


def raw(kind: str = "Accepted", status: str = "True", **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Accepted",
        "message": "a message",
        "observedGeneration": 3,
        "lastTransitionTime": BEFORE,
        **fields,
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [raw(lastTransitionTime=NOW)]),
        ("nonsense", [raw(lastTransitionTime=NOW)]),
        ([None, 5], [raw(lastTransitionTime=NOW)]),
        ([raw()], [raw()]),
        ([raw(reason="Pending", message="")], [raw()]),
        ([raw(observedGeneration=2)], [raw()]),
        ([raw(status="False")], [raw(lastTransitionTime=NOW)]),
        ([raw(status="Unknown")], [raw(lastTransitionTime=NOW)]),
        ([raw(lastTransitionTime="")], [raw(lastTransitionTime=NOW)]),
        # The object was restored from a backup, with its status.
        ([raw(observedGeneration=4, status="False")], [raw(lastTransitionTime=NOW)]),
        ([raw(observedGeneration=4)], [raw()]),
        ([raw("example.com/Other"), raw()], [raw("example.com/Other"), raw()]),
        ([raw(), raw("example.com/Other")], [raw(), raw("example.com/Other")]),
        ([{"type": "example.com/Odd"}], [{"type": "example.com/Odd"}, raw(lastTransitionTime=NOW)]),
        # Ours, but no longer wanted, and one that is there twice.
        ([raw("Conflicted"), raw()], [raw()]),
        ([raw(), raw(status="False")], [raw()]),
    ],
)
def test_conditions_are_merged(before: Any, after: Any) -> None:
    assert merge_conditions(before, [wanted()], NOW) == after


KINDS = ("Accepted", "Programmed", "ResolvedRefs", "example.com/A", "example.com/B")
conditions = st.lists(
    st.builds(raw, st.sampled_from(KINDS), st.sampled_from(("True", "False"))), unique_by=lambda each: each["type"]
)
decisions = st.lists(
    st.builds(wanted, st.sampled_from(KINDS[:3]), st.sampled_from(("True", "False"))), unique_by=lambda each: each.type
)


@given(conditions, decisions)
def test_others_conditions_stay_in_order_and_merging_again_changes_nothing(before: Any, ours: Any) -> None:
    merged = merge_conditions(before, ours, NOW)
    foreign = [each for each in before if each["type"].startswith("example.com/")]
    assert [each for each in merged if each["type"].startswith("example.com/")] == foreign
    assert {each["type"]: each["status"] for each in merged if each not in foreign} == {
        each.type: each.status for each in ours
    }
    assert merge_conditions(merged, ours, "2027-01-01T00:00:00Z") == merged
    had = {each["type"]: each["status"] for each in before}
    for each in merged:
        moved = had.get(each["type"]) != each["status"]
        assert each["lastTransitionTime"] == (NOW if moved else BEFORE)


def parent(**fields: Any) -> dict[str, Any]:
    reference = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}
    return {"parentRef": reference, "controllerName": OURS, "conditions": [raw()], **fields}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [parent(conditions=[raw(lastTransitionTime=NOW)])]),
        ([parent()], None),
        # Another controller says something about the same parent, or about another one.
        ([parent(controllerName=THEIRS), parent()], None),
        (
            [parent(controllerName=THEIRS)],
            [parent(controllerName=THEIRS), parent(conditions=[raw(lastTransitionTime=NOW)])],
        ),
        # Ours about a parent that the route no longer has.
        ([parent(parentRef={"name": "gone"}), parent()], [parent()]),
        ([parent(), parent(parentRef={"name": "public", "sectionName": "web"})], [parent()]),
        # An older version wrote it without the defaults.
        ([parent(parentRef={"name": "public"})], [parent()]),
        ([parent(), parent()], [parent()]),
        ([None, "x", parent()], [parent()]),
    ],
)
def test_parents_of_others_stay(before: Any, after: Any) -> None:
    ours = ParentStatus(parent()["parentRef"], (wanted(),))
    merged = merge_route({"parents": before}, [ours], NOW)
    assert merged == (None if after is None else {"parents": after})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, None),
        ({"parents": [parent(controllerName=THEIRS)]}, None),
        ({"parents": [parent()]}, {"parents": []}),
        (
            {"parents": [parent(controllerName=THEIRS), parent()]},
            {"parents": [parent(controllerName=THEIRS)]},
        ),
    ],
)
def test_a_route_that_has_no_parent_of_ours_loses_what_we_wrote(before: Any, after: Any) -> None:
    assert merge_route(before, [], NOW) == after


def status(**fields: Any) -> GatewayStatus:
    listener = ListenerStatus("web", ("TCPRoute",), 2, (wanted(),))
    return GatewayStatus((wanted(),), (listener,), **fields)


LISTENER = {
    "name": "web",
    "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "TCPRoute"}],
    "attachedRoutes": 2,
    "conditions": [raw()],
}


def test_a_gateway_gets_its_status_once() -> None:
    before = {"conditions": [raw("example.com/Other"), raw()], "listeners": [LISTENER], "other": 1}
    merged = merge_gateway(before, status(addresses=("192.0.2.1",), listener_sets=1), NOW)
    assert merged == {
        **before,
        "addresses": [{"type": "IPAddress", "value": "192.0.2.1"}],
        "attachedListenerSets": 1,
    }
    assert merge_gateway(merged, status(addresses=("192.0.2.1",), listener_sets=1), BEFORE) is None


def test_the_api_server_may_leave_out_what_is_empty() -> None:
    before = {"conditions": [raw()], "listeners": [LISTENER]}
    assert merge_gateway(before, status(listener_sets=0), NOW) is None
    assert merge_gateway(before, status(), NOW) is None


def test_a_listener_keeps_the_conditions_of_others_and_one_that_is_gone_goes() -> None:
    theirs = {**LISTENER, "conditions": [raw("example.com/Other"), raw(status="False")]}
    before = {"conditions": [raw()], "listeners": [{**LISTENER, "name": "gone"}, theirs]}
    merged = merge_gateway(before, status(), NOW)
    assert merged is not None
    assert merged["listeners"] == [{**LISTENER, "conditions": [raw("example.com/Other"), raw(lastTransitionTime=NOW)]}]


def test_a_listener_set_has_no_addresses() -> None:
    merged = merge_gateway({}, status(), NOW)
    assert merged is not None
    assert merged.keys() == {"conditions", "listeners"}


def test_a_class_gets_its_features() -> None:
    merged = merge_class({}, ClassStatus((wanted(),), ("Gateway", "TCPRoute")), NOW)
    assert merged == {
        "conditions": [raw(lastTransitionTime=NOW)],
        "supportedFeatures": [{"name": "Gateway"}, {"name": "TCPRoute"}],
    }
    assert merge_class(merged, ClassStatus((wanted(),), ("Gateway", "TCPRoute")), BEFORE) is None
