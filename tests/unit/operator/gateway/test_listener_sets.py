"""ListenerSets, which add listeners to a Gateway."""

from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.operator.gateway import listeners as limits
from kube_nftlb.operator.gateway import sets as sets_of_namespace
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, ObjectKey
from kube_nftlb.operator.gateway.wanted import GatewayPlan
from tests.unit.operator.gateway.objects import (
    GATEWAY,
    admitting,
    backend,
    decided,
    gateway,
    listener,
    listener_set,
    listeners_of,
    of_gateway,
    of_route,
    outcomes,
    route,
    service,
    specs,
)

ACCEPTED = ("True", "Accepted")
PROGRAMMED = ("True", "Programmed")
SAME: dict[str, Any] = {"allowedListeners": {"namespaces": {"from": "Same"}}}
ALL: dict[str, Any] = {"allowedListeners": {"namespaces": {"from": "All"}}}
CONFLICT = ("False", "ListenerConflict")
GOOD = {
    "Accepted": ACCEPTED,
    "Programmed": PROGRAMMED,
    "ResolvedRefs": ("True", "ResolvedRefs"),
    "Conflicted": ("False", "NoConflicts"),
}
CONFLICTED = {**GOOD, "Accepted": CONFLICT, "Programmed": CONFLICT, "Conflicted": ("True", "ListenerConflict")}


def of_set(found: GatewayPlan, name: str, namespace: str = "infra") -> dict[str, tuple[str, str]]:
    status = found.listener_sets[ObjectKey(namespace, name)]
    assert status is not None
    return outcomes(status.conditions)


def entries(found: GatewayPlan, name: str, namespace: str = "infra") -> dict[str, dict[str, tuple[str, str]]]:
    status = found.listener_sets[ObjectKey(namespace, name)]
    assert status is not None
    return {each.name: outcomes(each.conditions) for each in status.listeners}


def attached_sets(found: GatewayPlan) -> int | None:
    status = found.gateways[GATEWAY]
    assert status is not None
    return status.listener_sets


@pytest.mark.parametrize(
    ("allowed", "namespace", "admitted"),
    [
        (None, "infra", False),
        ({}, "infra", False),
        ({"from": "None"}, "infra", False),
        ({"from": "Same"}, "infra", True),
        ({"from": "Same"}, "tenant", False),
        ({"from": "All"}, "tenant", True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}, "tenant", True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "b"}}}, "tenant", False),
    ],
)
def test_a_gateway_admits_listener_sets_of_namespaces(allowed: Any, namespace: str, admitted: bool) -> None:
    found = decided(
        [gateway(allowedListeners={"namespaces": allowed} if allowed is not None else None)],
        [route(namespace=namespace, parents=[{"kind": "ListenerSet", "name": "more"}])],
        [service(namespace=namespace)],
        sets=[listener_set("more", listener("extra", 90), namespace=namespace)],
        namespaces={"tenant": {"team": "a"}},
    )
    not_allowed = ("False", "NotAllowed")
    expected = (ACCEPTED, ("False", "Pending")) if admitted else (not_allowed, not_allowed)
    assert tuple(of_set(found, "more", namespace).values()) == expected
    assert attached_sets(found) == int(admitted)
    assert len(found.farms) == int(admitted)
    assert of_gateway(found)["Accepted"] == ACCEPTED
    (conditions,) = of_route(found, namespace=namespace)
    assert conditions["Accepted"] == (ACCEPTED if admitted else ("False", "NoMatchingParent"))


def test_routes_name_the_object_that_has_the_listener() -> None:
    of_gateway_, of_set_ = (
        route(parents=[{"kind": kind, "name": name}], name=kind.lower())
        for kind, name in (("Gateway", "public"), ("ListenerSet", "more"))
    )
    astray = route(parents=[{"name": "public", "sectionName": "extra"}], name="astray")
    sets = [listener_set("more", listener("extra", 90))]
    found = decided([gateway(**SAME)], [of_gateway_, of_set_, astray], sets=sets)
    assert {name: each.attached for name, each in listeners_of(found).items()} == {"web": 1}
    status = found.listener_sets[ObjectKey("infra", "more")]
    assert status is not None
    assert {each.name: each.attached for each in status.listeners} == {"extra": 1}
    assert sorted(each["addresses"][0]["ports"] for each in specs(found)) == ["80", "90"]
    assert of_route(found, "astray")[0]["Accepted"] == ("False", "NoMatchingParent")


def test_same_means_the_namespace_of_the_listener_set() -> None:
    parents = [{"kind": "ListenerSet", "name": "more", "namespace": "tenant"}]
    found = decided(
        [gateway(**ALL)],
        [route(parents=parents, namespace=namespace) for namespace in ("infra", "tenant")],
        sets=[listener_set("more", listener("extra", 90), namespace="tenant")],
    )
    assert of_route(found)[0]["Accepted"] == ("False", "NotAllowedByListeners")
    assert of_route(found, namespace="tenant")[0]["Accepted"] == ACCEPTED
    (farm,) = found.farms.values()
    assert farm is not None
    labels = farm.metadata["labels"]
    assert (labels[names.LABEL_LISTENER_SET_NAMESPACE], labels[names.LABEL_LISTENER_SET]) == ("tenant", "more")


def test_the_gateway_comes_first_then_the_oldest_listener_set() -> None:
    found = decided(
        [gateway(**SAME)],
        sets=[
            listener_set("young", listener("a", 80), listener("b", 90), listener("c", 91)),
            listener_set("old", listener("a", 90), age=9),
            listener_set("loser", listener("a", 90)),
        ],
    )
    assert entries(found, "young") == {"a": CONFLICTED, "b": CONFLICTED, "c": GOOD}
    assert entries(found, "old") == {"a": GOOD}
    assert entries(found, "loser") == {"a": CONFLICTED}
    assert of_set(found, "young") == {"Accepted": ("True", "ListenersNotValid"), "Programmed": PROGRAMMED}
    not_valid = ("False", "ListenersNotValid")
    assert of_set(found, "loser") == {"Accepted": not_valid, "Programmed": not_valid}
    assert attached_sets(found) == 2
    assert of_gateway(found) == {"Accepted": ACCEPTED, "Programmed": PROGRAMMED}


@pytest.mark.parametrize(("first", "second"), [(("a", "b"), ("b", "a")), (("shop-eu", "s"), ("shop", "s"))])
def test_of_listener_sets_of_one_age_the_first_by_name_wins(first: tuple[str, str], second: tuple[str, str]) -> None:
    sets = [listener_set(name, listener("a", 90), namespace=namespace) for namespace, name in (second, first)]
    found = decided([gateway(**ALL)], sets=sets)
    assert entries(found, first[1], first[0]) == {"a": GOOD}
    assert entries(found, second[1], second[0]) == {"a": CONFLICTED}


def test_a_listener_that_lost_keeps_its_ports_from_nobody() -> None:
    wide = listener_set("wide", listener("a", 80), age=9)
    wide.metadata.annotations["kube-nftlb.io/port-range.a"] = "80-1000"
    found = decided([gateway(**SAME)], sets=[wide, listener_set("other", listener("a", 90))])
    assert entries(found, "wide") == {"a": CONFLICTED}
    assert entries(found, "other") == {"a": GOOD}


def test_listeners_of_a_gateway_that_conflict_keep_their_port_from_listener_sets() -> None:
    found = decided(
        [gateway(listener("a"), listener("b"), listener("c", 81), **SAME)],
        sets=[listener_set("more", listener("x", 80))],
    )
    assert entries(found, "more") == {"x": CONFLICTED}


def test_tcp_and_udp_share_a_port_and_unsupported_protocols_have_none() -> None:
    found = decided(
        [gateway(listener("a", 53), listener("b", 80, "HTTP"), **SAME)],
        sets=[listener_set("more", listener("udp", 53, "UDP"), listener("tcp", 80))],
    )
    assert entries(found, "more") == {"udp": GOOD, "tcp": GOOD}


def test_the_parent_must_be_accepted_and_programmed() -> None:
    sets = [listener_set("more", listener("extra", 90))]
    found = decided([gateway(listener(protocol="HTTP"), **SAME)], sets=sets)
    not_accepted = ("False", "ParentNotAccepted")
    assert of_set(found, "more") == {"Accepted": not_accepted, "Programmed": not_accepted}
    assert attached_sets(found) == 0
    waiting = {GATEWAY: AddressState((), "AddressNotAssigned", "none is free")}
    found = decided([gateway(**SAME)], sets=sets, addresses=waiting)
    assert of_set(found, "more") == {"Accepted": ACCEPTED, "Programmed": ("False", "ParentNotProgrammed")}


def test_a_listener_set_is_programmed_once_its_own_farms_are() -> None:
    objects: dict[str, Any] = {
        "sets": [listener_set("more", listener("extra", 90))],
        "routes": [route(), route(name="more", parents=[{"kind": "ListenerSet", "name": "more"}])],
    }
    farms = decided([gateway(**SAME)], **objects).farms
    ours = next(key for key in farms if "--extra-" in key.name)
    states = {key: FarmState(2 if key == ours else 3, 3, "", farm.digest) for key, farm in farms.items() if farm}
    found = decided([gateway(**SAME)], **objects, farms=states)
    assert of_set(found, "more")["Programmed"] == ("False", "Pending")
    assert of_gateway(found)["Programmed"] == PROGRAMMED


@pytest.mark.parametrize("parent", [ObjectKey("infra", "gone"), ObjectKey("elsewhere", "public")])
def test_without_its_gateway_it_gets_no_status(parent: ObjectKey) -> None:
    found = decided([gateway(**ALL)], sets=[listener_set("more", listener("extra", 90), parent=parent)])
    assert found.listener_sets == {}


def test_a_gateway_has_so_many_listeners_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LISTENERS_MAX", 3)
    many = ("False", "TooManyListeners")
    found = decided(
        [gateway(**SAME)],
        sets=[
            listener_set("old", listener("a", 90), age=9),
            listener_set("young", listener("b", 91), listener("c", 92), age=5),
            listener_set("youngest", listener("d", 93)),
        ],
    )
    assert of_set(found, "youngest") == {"Accepted": many, "Programmed": many}
    assert entries(found, "youngest") == {}
    assert entries(found, "young") == {"b": GOOD, "c": {**GOOD, "Accepted": many, "Programmed": ("False", "Invalid")}}


@pytest.mark.parametrize("older", [["a", "b", "c", "d"], ["a", "b", "c"]], ids=["too many", "those that fit"])
def test_a_listener_set_that_grows_takes_no_place_of_other_namespaces(
    monkeypatch: pytest.MonkeyPatch, older: list[str]
) -> None:
    monkeypatch.setattr(limits, "LISTENERS_MAX", 5)
    sets = [
        listener_set("first", *(listener(name, 90 + n) for n, name in enumerate(older)), namespace="aaa", age=9),
        listener_set("more", listener("x", 93), namespace="tenant"),
    ]
    found = decided([gateway(**ALL)], sets=sets)
    assert entries(found, "more", "tenant") == {"x": GOOD}, "nor the port of one that is too many"
    accepted = {name: each["Accepted"] for name, each in entries(found, "first", "aaa").items()}
    assert accepted == {**dict.fromkeys("abc", ACCEPTED), **dict.fromkeys(older[3:], ("False", "TooManyListeners"))}


def test_what_cannot_be_divided_among_namespaces_goes_to_those_that_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LISTENERS_MAX", 4)
    spaces = ["tenant", "other", "next", "last"]
    sets = [listener_set("more", listener("x", 90 + n), namespace=each, age=9 - n) for n, each in enumerate(spaces)]
    found = decided([gateway(**ALL)], sets=sets)
    assert [each for each in spaces if entries(found, "more", each) == {"x": GOOD}] == spaces[:3]


@pytest.mark.parametrize("port", [80, 93], ids=["in conflict", "of another protocol"])
def test_listeners_that_cannot_be_served_take_no_place(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(limits, "LISTENERS_MAX", 4)
    bad = [listener(name, port, "TCP" if port == 80 else "HTTP") for name in "abc"]
    sets = [
        listener_set("old", *bad, age=9),
        listener_set("more", *(listener(f"x{each}", each) for each in range(90, 93)), namespace="tenant"),
    ]
    found = decided([gateway(**ALL)], sets=sets)
    assert entries(found, "more", "tenant") == {f"x{each}": GOOD for each in range(90, 93)}


def test_a_namespace_has_so_many_listener_sets_at_a_gateway_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets_of_namespace, "SETS_MAX", 1)
    sets = [
        listener_set("young", listener("a", 90)),
        listener_set("old", listener("a", 91), age=9),
        listener_set("other", listener("a", 92), namespace="tenant"),
    ]
    many = ("False", "TooManyListeners")
    for allowed in (ALL, {}):
        found = decided([gateway(**allowed)], sets=sets)
        assert of_set(found, "young") == {"Accepted": many, "Programmed": many}
        assert "TooManyListeners" not in {reason for _, reason in of_set(found, "old").values()}
        assert "TooManyListeners" not in {reason for _, reason in of_set(found, "other", "tenant").values()}


def test_a_conflict_does_not_tell_whose_port_it_is() -> None:
    sets = [
        listener_set("hidden", listener("secret", 90), namespace="secret", age=9),
        listener_set("more", listener("a", 90), namespace="tenant"),
    ]
    found = decided([gateway(**ALL)], sets=sets)
    status = found.listener_sets[ObjectKey("tenant", "more")]
    assert status is not None
    messages = [each.message for entry in status.listeners for each in entry.conditions]
    assert not any(word in message for message in messages for word in ("secret", "hidden"))


def test_a_route_of_a_listener_set_needs_no_grant_for_its_own_namespace() -> None:
    found = decided(
        [gateway(**ALL)],
        [route(backend(), parents=[{"kind": "ListenerSet", "name": "more"}], namespace="tenant")],
        [service(namespace="tenant")],
        sets=[listener_set("more", listener("a", 90, allowedRoutes=admitting("Same")), namespace="tenant")],
    )
    assert {key.namespace for key in found.farms} == {"tenant"}
    assert of_route(found, namespace="tenant")[0]["ResolvedRefs"] == ("True", "ResolvedRefs")
