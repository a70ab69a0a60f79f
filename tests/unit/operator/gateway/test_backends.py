"""Where the connections of a route go, and the share that is refused."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.gateway.route import RouteKindName
from kube_nftlb.operator.gateway.objects import Options, RouteKey
from tests.unit.operator.gateway.objects import (
    admitting,
    backend,
    decided,
    gateway,
    grant,
    listener,
    of_route,
    route,
    service,
    specs,
)

ALL = listener(allowedRoutes=admitting("All"))
RESOLVED = ("True", "ResolvedRefs")
SERVICES = [
    service("web"),
    service("more", "infra", ("", 80, "TCP")),
    service("named", type="ExternalName", clusterIP=""),
    service("headless", clusterIP="None"),
    service("meshed"),
    service("web", "other"),
]
SERVICES[4].metadata.labels["service.kubernetes.io/service-proxy-name"] = "mesh"


def groups(found: Any) -> list[tuple[str, str, int]]:
    """Return namespace/Service, port and weight of each group of the only farm; without a Service it refuses."""
    (spec,) = specs(found)
    return [
        (f"{each['namespace']}/{each['service']}" if not each["refuse"] else "", each["port"], each["weight"])
        for each in spec["backendsFrom"]
    ]


@pytest.mark.parametrize(
    ("backends", "expected", "resolved"),
    [
        ([backend()], [("/web", "http", 1)], RESOLVED),
        ([backend("more")], [("/more", "", 1)], RESOLVED),
        ([backend(weight=30)], [("/web", "http", 1)], RESOLVED),
        (
            [backend(weight=70), backend("more", weight=30)],
            [("/web", "http", 70), ("/more", "", 30)],
            RESOLVED,
        ),
        ([backend(weight=1), backend("more", weight=0)], [("/web", "http", 1), ("/more", "", 0)], RESOLVED),
        ([backend(weight=2), backend(weight=3)], [("/web", "http", 1)], RESOLVED),
        (
            [backend(weight=2), backend("more", weight=9), backend(weight=3)],
            [("/web", "http", 5), ("/more", "", 9)],
            RESOLVED,
        ),
        # Nothing has a weight: everything is refused, and open connections go on.
        ([backend(weight=0)], [("/web", "http", 0), ("", "", 1)], RESOLVED),
        ([backend("gone")], [("", "", 1)], ("False", "BackendNotFound")),
        (
            [backend(weight=80), backend("gone", weight=20)],
            [("/web", "http", 80), ("", "", 20)],
            ("False", "BackendNotFound"),
        ),
        (
            [backend("gone", weight=5), backend(weight=80), backend("headless", weight=15)],
            [("", "", 20), ("/web", "http", 80)],
            ("False", "BackendNotFound"),
        ),
        ([backend(weight=1), backend("gone", weight=0)], [("/web", "http", 1)], ("False", "BackendNotFound")),
        ([backend(port=81)], [("", "", 1)], ("False", "BackendNotFound")),
        ([backend(port=53)], [("", "", 1)], ("False", "UnsupportedProtocol")),
        ([backend(port=None)], [("", "", 1)], ("False", "UnsupportedValue")),
        ([backend("named")], [("", "", 1)], ("False", "UnsupportedValue")),
        ([backend("headless")], [("", "", 1)], ("False", "UnsupportedValue")),
        ([backend("meshed")], [("", "", 1)], ("False", "UnsupportedValue")),
        ([backend(kind="Pod")], [("", "", 1)], ("False", "InvalidKind")),
        ([backend(kind="Service", group="example.com")], [("", "", 1)], ("False", "InvalidKind")),
        ([backend(namespace="infra")], [("/web", "http", 1)], RESOLVED),
        ([backend(namespace="other")], [("", "", 1)], ("False", "RefNotPermitted")),
        ([backend("gone", namespace="other")], [("", "", 1)], ("False", "RefNotPermitted")),
    ],
)
def test_references_become_groups(backends: Any, expected: Any, resolved: Any) -> None:
    found = decided([gateway()], [route(*backends)], SERVICES)
    assert groups(found) == expected
    assert of_route(found) == [{"Accepted": ("True", "Accepted"), "ResolvedRefs": resolved}]


@pytest.mark.parametrize(
    ("kind", "port", "name"), [("TCPRoute", 80, "http"), ("UDPRoute", 53, "dns"), ("UDPRoute", 80, "quic")]
)
def test_the_port_is_one_of_the_routes_protocol(kind: RouteKindName, port: int, name: str) -> None:
    services = [service("web", "infra", ("http", 80, "TCP"), ("quic", 80, "UDP"), ("dns", 53, "UDP"))]
    protocol = {"TCPRoute": "TCP", "UDPRoute": "UDP"}[kind]
    found = decided([gateway(listener(protocol=protocol))], [route(backend(port=port))], services, kind=kind)
    assert groups(found) == [("/web", name, 1)]


@pytest.mark.parametrize(
    ("grants", "permitted"),
    [
        ([], False),
        ([grant("other", "infra")], True),
        ([grant("other", "infra", name="web")], True),
        ([grant("other", "infra", name="db")], False),
        ([grant("other", "tenant")], False),
        ([grant("other", "infra", kind="UDPRoute")], False),
        # Only who has the Service can permit it.
        ([grant("infra", "infra")], False),
        ([grant("infra", "other")], False),
    ],
)
def test_a_service_of_another_namespace_takes_its_permission(grants: Any, permitted: bool) -> None:
    found = decided([gateway()], [route(backend(namespace="other"))], SERVICES, grants=grants)
    assert groups(found) == [("other/web", "http", 1) if permitted else ("", "", 1)]
    assert of_route(found)[0]["ResolvedRefs"] == (RESOLVED if permitted else ("False", "RefNotPermitted"))


def test_without_a_permission_nobody_learns_which_services_there_are() -> None:
    found = decided([gateway()], [route(backend(namespace="other"), backend("gone", namespace="other"))], SERVICES)
    message = found.routes[RouteKey("TCPRoute", "infra", "web")][0].conditions[1].message
    assert "Service web" in message
    assert "Service gone" in message
    assert "there is no" not in message


def test_many_problems_are_one_short_message() -> None:
    found = decided([gateway()], [route(*(backend(f"gone-{number}") for number in range(16)))])
    condition = found.routes[RouteKey("TCPRoute", "infra", "web")][0].conditions[1]
    assert condition.message.count("there is no Service") == 3
    assert "13 more" in condition.message


@pytest.mark.parametrize("weight", [0, 1, 1_000_000])
def test_a_route_may_have_as_many_backends_as_gateway_api_allows(weight: int) -> None:
    names = [f"web-{number}" for number in range(16)]
    services = [service(name) for name in names]
    found = decided([gateway()], [route(*(backend(name, weight=weight) for name in names))], services)
    farm = FarmSpec.model_validate(specs(found)[0])
    assert sum(each.weight for each in farm.backends_from if each.refuse) == (0 if weight else 1)
    assert len([each for each in farm.backends_from if not each.refuse]) == (16 if weight else 15)


def test_a_route_without_backends_refuses_everything() -> None:
    empty = route()
    empty = empty.model_copy(update={"spec": empty.spec.model_copy(update={"rules": ()})})
    assert groups(decided([gateway()], [empty])) == [("", "", 1)]


@given(
    st.lists(
        st.tuples(st.sampled_from(("web", "more", "gone", "headless")), st.integers(0, 1_000_000)),
        min_size=1,
        max_size=16,
    )
)
def test_shares_are_those_of_the_weights(weights: list[tuple[str, int]]) -> None:
    found = decided([gateway()], [route(*(backend(name, weight=weight) for name, weight in weights))], SERVICES)
    FarmSpec.model_validate(specs(found)[0])
    total = sum(weight for _, weight in weights)
    wanted: dict[str, Fraction] = {}
    for name, weight in weights:
        target = f"/{name}" if name in ("web", "more") else ""
        wanted[target] = wanted.get(target, Fraction(0)) + (Fraction(weight, total) if total else Fraction(0))
    if not total:
        wanted[""] = Fraction(1)
    given_total = sum(weight for _, _, weight in groups(found))
    shares = {target: Fraction(weight, given_total) for target, _, weight in groups(found)}
    assert shares.keys() | {""} == wanted.keys() | {""}
    assert all(abs(shares.get(target, 0) - share) < Fraction(1, 50_000) for target, share in wanted.items())
    assert all(shares[target] > 0 for target, share in wanted.items() if share)


@pytest.mark.parametrize(
    ("options", "engine", "mode"),
    [
        (Options(), "nftables", "dnat"),
        (Options(engine="nftlb"), "nftlb", "dnat"),
        (Options(engine="auto"), "nftables", "dnat"),
        (Options(engine="auto", mode="snat"), "nftables", "snat"),
    ],
)
def test_farms_have_the_engine_and_mode_of_the_administrator(options: Options, engine: str, mode: str) -> None:
    (spec,) = specs(decided([gateway()], [route()], options=options))
    assert (spec["engine"], spec["mode"]) == (engine, mode)


def test_farms_have_different_names_whatever_the_objects_are_called() -> None:
    long = "a" * 250 + ".b"
    names = ["a", "a--b", "a.b", "a-b", long, long + "c"]
    found = decided([gateway(ALL)], [route(name=name) for name in names])
    assert len(found.routes) == len(names)
    gateways = [gateway(listener("b--c"), listener("c", 81))]
    found = decided(gateways, [route(name=name) for name in names])
    assert all(len(key.name) <= 96 and "." not in key.name for key in found.farms)
    labels = [value for each in found.farms.values() if each is not None for value in each.metadata["labels"].values()]
    assert all(len(value) <= 63 for value in labels)
