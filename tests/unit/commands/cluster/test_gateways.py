"""What `why` says of Gateways and routes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.commands.cluster import gateways
from kube_nftlb.commands.cluster.finding import Finding
from tests.builders import raw_farm, raw_route_farm

Json = dict[str, Any]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CLASS = {"metadata": {"name": "ours"}, "spec": {"controllerName": "kube-nftlb.io/gateway"}}
OTHER_CLASS = {"metadata": {"name": "theirs"}, "spec": {"controllerName": "example.com/other"}}
OURS = gateways.Parents([CLASS, OTHER_CLASS])


def condition(kind: str, status: str = "False", reason: str = "Pending", message: str = "why") -> Json:
    since = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def obj(kind: str, name: str, status: Json, **spec: Any) -> Json:
    return {
        "kind": kind,
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": status,
    }


def lines(found: list[Finding]) -> list[str]:
    return [f"{each.subject}: {each.reason}: {each.message}" for each in found]


def test_each_condition_that_is_false_is_a_finding_once() -> None:
    listener = {"name": "tcp", "conditions": [condition("Programmed"), condition("Conflicted", reason="NoConflicts")]}
    status = {
        "conditions": [condition("Accepted", "True"), condition("Programmed"), condition("Programmed")],
        "listeners": [listener],
    }
    assert lines(gateways.of_object(obj("Gateway", "edge", status, gatewayClassName="ours"), OURS)) == [
        "gateway default/edge: Pending: why",
        "gateway default/edge: Pending: listener tcp: why",
    ]


def test_only_what_our_controller_says_of_a_route_counts() -> None:
    parents = [
        {
            "controllerName": name,
            "parentRef": {"name": "edge"},
            "conditions": [condition("ResolvedRefs", reason=reason)],
        }
        for name, reason in (("example.com/other", "Theirs"), ("kube-nftlb.io/gateway", "BackendNotFound"))
    ]
    found = gateways.of_all([obj("TCPRoute", "web", {"parents": parents})], OURS, NOW)
    assert lines(found) == ["tcproute default/web: BackendNotFound: parent edge: why"]


def test_gateways_and_listener_sets_of_other_classes_do_not_count() -> None:
    status = {"conditions": [condition("Accepted")]}
    objects = [
        obj("Gateway", "ours", status, gatewayClassName="ours"),
        obj("Gateway", "theirs", status, gatewayClassName="theirs"),
        obj("ListenerSet", "to-ours", status, parentRef={"name": "ours"}),
        obj("ListenerSet", "to-theirs", status, parentRef={"name": "theirs"}),
    ]
    parents = gateways.Parents([CLASS, OTHER_CLASS], objects[:2])
    assert [each.name for each in gateways.of_all(objects, parents, NOW)] == ["ours", "to-ours"]


def test_the_farms_of_an_object_are_found_by_labels_and_owners() -> None:
    made = raw_route_farm("made", namespace="other")
    made["metadata"]["labels"] |= {names.LABEL_GATEWAY: "edge", names.LABEL_GATEWAY_NAMESPACE: "default"}
    farms = [made, raw_farm("by-hand")]
    assert gateways.farms_of(obj("Gateway", "edge", {}), farms) == [made]
    assert gateways.farms_of(obj("TCPRoute", "web", {}), farms) == [made]
    assert gateways.farms_of(obj("Gateway", "next", {}), farms) == []
    assert gateways.farms_of(obj("ListenerSet", "edge", {}), farms) == []
    set_ = obj("ListenerSet", "more", {})
    for namespace, expected in (("", [made]), ("default", [made]), ("tenant", [])):
        of_namespace = {names.LABEL_LISTENER_SET_NAMESPACE: namespace} if namespace else {}
        made["metadata"]["labels"] |= {names.LABEL_LISTENER_SET: "more", **of_namespace}
        assert gateways.farms_of(set_, farms) == expected


def test_an_address_says_where_it_is_from() -> None:
    status = {
        "addresses": [{"value": "192.0.2.1", "routability": ""}, {"value": "10.96.0.9", "routability": "Cluster"}]
    }
    assert gateways.addresses_of(obj("Gateway", "edge", status)) == [
        "address 192.0.2.1: of an address pool",
        "address 10.96.0.9: a cluster IP, for clients inside the cluster (kubectl get ipaddress 10.96.0.9)",
    ]
    assert gateways.addresses_of(obj("ListenerSet", "more", {})) == []


def test_a_missing_address_is_told_once() -> None:
    conditions = [
        condition("Accepted", "True"),
        condition("Programmed", reason="AddressNotAssigned"),
        condition("AddressesAssigned", reason="NotAssigned"),
    ]
    found = gateways.of_object(obj("Gateway", "edge", {"conditions": conditions}, gatewayClassName="ours"), OURS)
    assert lines(found) == ["gateway default/edge: AddressNotAssigned: why"]


def unknown(kind: str) -> Json:
    """A condition as the API server itself writes it."""
    return condition(kind, "Unknown", "Pending", "Waiting for controller")


@pytest.mark.parametrize(
    ("class_name", "conditions", "expected"),
    [
        ("ours", [], "no controller has reconciled it"),
        ("ours", [unknown("Accepted"), unknown("Programmed")], "no controller has reconciled it"),
        ("typo", [unknown("Accepted")], "there is no GatewayClass typo"),
        ("ours", [condition("Accepted", "True")], ""),
        ("theirs", [unknown("Accepted")], ""),
    ],
)
def test_a_gateway_that_nobody_has_looked_at_is_not_well(
    class_name: str, conditions: list[Json], expected: str
) -> None:
    gateway = obj("Gateway", "edge", {"conditions": conditions}, gatewayClassName=class_name)
    found = gateways.of_object(gateway, OURS)
    assert [each.message for each in found] == ([expected] if expected else [])
    assert {each.reason for each in found} <= {"NotReconciled"}
    assert gateways.is_of_another(gateway, OURS) == (class_name == "theirs")


@pytest.mark.parametrize(
    ("parent", "told", "expected"),
    [
        ("edge", [], "parent edge: no controller has reconciled it"),
        ("edge", [unknown("Accepted")], "parent edge: no controller has reconciled it"),
        ("edge", [condition("Accepted", "True")], ""),
        ("theirs", [], ""),
        ("nowhere", [], "parent nowhere: it does not exist, or its class does not"),
    ],
)
def test_a_route_that_nobody_has_looked_at_is_not_well(parent: str, told: list[Json], expected: str) -> None:
    known = [obj("Gateway", name, {}, gatewayClassName=of) for name, of in (("edge", "ours"), ("theirs", "theirs"))]
    parents = gateways.Parents([CLASS, OTHER_CLASS], known)
    reference = {"name": parent}
    ours = {"controllerName": "kube-nftlb.io/gateway", "parentRef": reference, "conditions": told}
    route = obj("TCPRoute", "web", {"parents": [ours] if told else []}, parentRefs=[reference])
    assert [each.message for each in gateways.of_object(route, parents)] == ([expected] if expected else [])
    assert gateways.is_of_another(route, parents) == (parent == "theirs")
    nothing_known = gateways.Parents(None, None, None)
    assert gateways.of_object(route, nothing_known) == []


def test_a_new_gateway_may_wait_for_a_moment() -> None:
    gateway = obj("Gateway", "edge", {}, gatewayClassName="ours")
    gateway["metadata"]["creationTimestamp"] = "2029-12-31T23:59:55Z"
    assert gateways.of_all([gateway], OURS, NOW) == []
