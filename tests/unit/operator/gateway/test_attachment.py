"""To which listeners routes are attached, and which of them serve."""

from typing import Any

import pytest

from kube_nftlb.api.gateway.route import RouteKindName
from kube_nftlb.operator.gateway import attached
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey
from tests.unit.operator.gateway.objects import (
    GATEWAY,
    admitting,
    backend,
    decided,
    gateway,
    gateway_class,
    listener,
    listeners_of,
    of_route,
    parent,
    route,
    service,
    specs,
)

ACCEPTED = ("True", "Accepted")
NO_PARENT = ("False", "NoMatchingParent")
NOT_ALLOWED = ("False", "NotAllowedByListeners")
RESOLVED = ("True", "ResolvedRefs")
FOUR = [listener("a", 80), listener("b", 81), listener("c", 82, "UDP"), listener("d", 83, "HTTP")]


def attachments(found: Any, key: ObjectKey = GATEWAY) -> dict[str, int]:
    return {name: each.attached for name, each in listeners_of(found, key).items()}


@pytest.mark.parametrize(
    ("fields", "accepted", "ports"),
    [
        ({}, ACCEPTED, {"80", "81"}),
        ({"sectionName": "a"}, ACCEPTED, {"80"}),
        ({"port": 81}, ACCEPTED, {"81"}),
        ({"sectionName": "a", "port": 80}, ACCEPTED, {"80"}),
        ({"sectionName": "a", "port": 81}, NO_PARENT, set()),
        ({"sectionName": "x"}, NO_PARENT, set()),
        ({"port": 1}, NO_PARENT, set()),
        ({"sectionName": "c"}, NOT_ALLOWED, set()),
        ({"sectionName": "d"}, NOT_ALLOWED, set()),
        ({"port": 83}, NOT_ALLOWED, set()),
        ({"group": "gateway.networking.k8s.io", "kind": "Gateway"}, ACCEPTED, {"80", "81"}),
    ],
)
def test_a_route_is_attached_by_section_and_port(fields: dict[str, Any], accepted: Any, ports: set[str]) -> None:
    found = decided([gateway(*FOUR)], [route(parents=[parent(**fields)])])
    assert [each["Accepted"] for each in of_route(found)] == [accepted]
    assert {each["addresses"][0]["ports"] for each in specs(found)} == ports
    serving = {"80": "a", "81": "b"}
    assert attachments(found) == {name: int(name in {serving[port] for port in ports}) for name in "abcd"}


@pytest.mark.parametrize(
    ("allowed", "labels", "admitted"),
    [
        (None, {}, {"infra"}),
        (admitting("Same"), {}, {"infra"}),
        (admitting("All"), {}, {"infra", "tenant"}),
        (admitting("Selector", matchLabels={"team": "a"}), {"team": "a"}, {"tenant"}),
        (admitting("Selector", matchLabels={"team": "a"}), {"team": "b"}, set()),
        (admitting("Selector", matchLabels={"team": "a"}), None, set()),
        (admitting("Selector"), {}, set()),
        (admitting("Selector", matchExpressions=[{"key": "team", "operator": "Exists"}]), {"team": "b"}, {"tenant"}),
        (admitting("Selector", matchExpressions=[{"key": "team", "operator": "Like", "values": ["b"]}]), {}, set()),
        (admitting("Everywhere"), {}, set()),
    ],
)
def test_a_listener_admits_routes_of_namespaces(allowed: Any, labels: Any, admitted: set[str]) -> None:
    routes = [route(namespace=namespace) for namespace in ("infra", "tenant")]
    namespaces = {"infra": {}, "tenant": labels} if labels is not None else {"infra": {}}
    found = decided(
        [gateway(listener(allowedRoutes=allowed))],
        routes,
        [service("web", "infra"), service("web", "tenant")],
        namespaces=namespaces,
    )
    for namespace in ("infra", "tenant"):
        (conditions,) = of_route(found, namespace=namespace)
        assert conditions["Accepted"] == (ACCEPTED if namespace in admitted else NOT_ALLOWED)
    assert attachments(found) == {"web": len(admitted)}
    # The older one serves, in the namespace of the route.
    assert {key.namespace for key in found.farms} == (admitted if len(admitted) < 2 else {"infra"})


@pytest.mark.parametrize(
    ("kind", "protocol", "accepted"),
    [
        ("TCPRoute", "TCP", ACCEPTED),
        ("UDPRoute", "UDP", ACCEPTED),
        ("TCPRoute", "UDP", NOT_ALLOWED),
        ("UDPRoute", "TCP", NOT_ALLOWED),
        ("UDPRoute", "TLS", NOT_ALLOWED),
    ],
)
def test_a_listener_admits_routes_of_its_protocol(kind: RouteKindName, protocol: str, accepted: Any) -> None:
    found = decided([gateway(listener(protocol=protocol))], [route(backend(port=53))], kind=kind)
    assert [each["Accepted"] for each in of_route(found, kind=kind)] == [accepted]


def test_of_several_routes_the_oldest_serves_and_all_are_accepted() -> None:
    routes = [route(name=name, age=age) for name, age in (("new", 0), ("old", 9), ("middle", 5))]
    found = decided([gateway()], routes)
    assert {key.name.split("--")[0] for key in found.farms} == {"old"}
    assert attachments(found) == {"web": 3}
    for name in ("new", "old", "middle"):
        assert of_route(found, name) == [{"Accepted": ACCEPTED, "ResolvedRefs": RESOLVED}]
    assert "older route" in found.routes[RouteKey("TCPRoute", "infra", "new")][0].conditions[0].message


@pytest.mark.parametrize(
    ("routes", "serves"),
    [
        ([("infra", "b"), ("infra", "a")], ("infra", "a")),
        ([("zone", "a"), ("infra", "b")], ("infra", "b")),
        # Gateway API compares them as texts with a slash between.
        ([("zone", "a"), ("zone-b", "a")], ("zone-b", "a")),
    ],
)
def test_of_routes_of_one_age_the_first_by_namespace_and_name_serves(routes: Any, serves: Any) -> None:
    found = decided(
        [gateway(listener(allowedRoutes=admitting("All")))],
        [route(namespace=namespace, name=name) for namespace, name in routes],
        [service("web", namespace) for namespace, _ in routes],
    )
    ((namespace, name),) = found.farms
    assert (namespace, name.split("--")[0]) == serves


def test_a_route_reads_what_becomes_of_it() -> None:
    routes = [route(name="old", age=9, parents=[parent(sectionName="a")]), route()]
    listeners = [listener("a"), listener("b", 81), listener("c", 82), listener("d", 83), listener("e", 83)]
    found = decided([gateway(*listeners)], routes)
    (status,) = found.routes[RouteKey("TCPRoute", "infra", "web")]
    assert status.conditions[0].message == (
        "serves the listeners b, c; an older route serves the listener a; not valid, and not served: the listeners d, e"
    )


def test_a_message_does_not_name_the_routes_of_others() -> None:
    routes = [route(namespace="secret", name="hidden", age=9), route()]
    found = decided([gateway(listener(allowedRoutes=admitting("All")))], routes)
    (status,) = found.routes[RouteKey("TCPRoute", "infra", "web")]
    assert not any(word in each.message for each in status.conditions for word in ("secret", "hidden"))


def test_two_parents_of_one_gateway_have_a_status_each() -> None:
    parents = [parent(sectionName="b"), parent(sectionName="x"), parent(sectionName="a")]
    found = decided([gateway(*FOUR)], [route(parents=parents)])
    statuses = found.routes[RouteKey("TCPRoute", "infra", "web")]
    assert [each.reference["sectionName"] for each in statuses] == ["b", "x", "a"]
    assert [each["Accepted"] for each in of_route(found)] == [ACCEPTED, NO_PARENT, ACCEPTED]


def test_a_route_that_names_a_listener_twice_counts_once() -> None:
    found = decided([gateway()], [route(parents=[parent(), parent(sectionName="web")])])
    assert attachments(found) == {"web": 1}
    assert len(found.farms) == 1


def test_a_reference_is_repeated_with_its_defaults() -> None:
    (status,) = decided([gateway()], [route(parents=[{"name": "public"}])]).routes.values()
    assert status[0].reference == {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"kind": "Service", "group": ""},
        {"kind": "Mesh"},
        {"group": "example.com"},
        {"namespace": "elsewhere"},
    ],
)
def test_a_parent_that_is_not_ours_gets_no_status(fields: dict[str, Any]) -> None:
    found = decided([gateway()], [route(parents=[parent(**fields)])])
    assert of_route(found) == []
    assert not found.farms


def test_a_gateway_of_another_controller_is_not_ours() -> None:
    found = decided([gateway()], [route()], classes=[gateway_class(controller="example.com/gateway")])
    assert (found.gateways, found.farms, found.classes) == ({}, {}, {"nftlb": None})
    assert of_route(found) == []


def test_a_route_may_serve_two_gateways() -> None:
    other = ObjectKey("infra", "internal")
    found = decided([gateway(), gateway(key=other)], [route(parents=[parent(), parent(name="internal")])])
    assert {each.gateway for each in found.farms.values() if each is not None} == {GATEWAY, other}
    assert of_route(found) == [{"Accepted": ACCEPTED, "ResolvedRefs": RESOLVED}] * 2


def test_a_namespace_has_so_many_routes_at_a_gateway_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "ROUTES_MAX", 2)
    routes = [route(name=name, age=age) for name, age in (("a", 9), ("b", 1), ("c", 5))]
    others = [route(name="d", namespace="tenant")]
    found = decided([gateway(listener(allowedRoutes=admitting("All")))], [*routes, *others])
    assert {name: of_route(found, name)[0]["Accepted"][1] for name in "abc"} == {
        "a": "Accepted",
        "b": "TooManyRoutes",
        "c": "Accepted",
    }
    assert of_route(found, "d", "tenant")[0]["Accepted"] == ACCEPTED
    assert attachments(found) == {"web": 3}


def test_routes_that_are_not_admitted_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "ROUTES_MAX", 1)
    found = decided([gateway()], [route(name="a", age=9, parents=[parent(sectionName="x")]), route(name="b")])
    assert of_route(found, "b")[0]["Accepted"] == ACCEPTED
