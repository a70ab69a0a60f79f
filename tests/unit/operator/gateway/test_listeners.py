"""Which listeners of a Gateway are valid, and what its status says."""

from typing import Any

import pytest

from kube_nftlb.operator.gateway.objects import AddressState
from tests.unit.operator.gateway.objects import (
    GATEWAY,
    admitting,
    decided,
    gateway,
    listener,
    listeners_of,
    of_gateway,
    outcomes,
    route,
    specs,
)

ACCEPTED = ("True", "Accepted")
PROGRAMMED = ("True", "Programmed")
RESOLVED = ("True", "ResolvedRefs")
FREE = ("False", "NoConflicts")
GOOD = {"Accepted": ACCEPTED, "Programmed": PROGRAMMED, "ResolvedRefs": RESOLVED, "Conflicted": FREE}
BAD_KINDS = ("False", "InvalidRouteKinds")
UNSUPPORTED = {**GOOD, "Accepted": ("False", "UnsupportedProtocol"), "Programmed": ("False", "Invalid")}
CONFLICTED = {
    **GOOD,
    "Accepted": ("False", "ProtocolConflict"),
    "Programmed": ("False", "ProtocolConflict"),
    "Conflicted": ("True", "ProtocolConflict"),
}


@pytest.mark.parametrize(
    ("listeners", "conditions", "accepted"),
    [
        ([listener()], {"web": GOOD}, ACCEPTED),
        ([listener(protocol="UDP")], {"web": GOOD}, ACCEPTED),
        ([listener(protocol="HTTP")], {"web": UNSUPPORTED}, ("False", "ListenersNotValid")),
        (
            [listener(), listener("secure", 443, "HTTPS")],
            {"web": GOOD, "secure": UNSUPPORTED},
            ("True", "ListenersNotValid"),
        ),
        ([listener("a", 53), listener("b", 53, "UDP")], {"a": GOOD, "b": GOOD}, ACCEPTED),
        ([listener("a"), listener("b", 80, "HTTP")], {"a": GOOD, "b": UNSUPPORTED}, ("True", "ListenersNotValid")),
        ([listener("a"), listener("b")], {"a": CONFLICTED, "b": CONFLICTED}, ("False", "ListenersNotValid")),
        (
            [listener("a"), listener("b"), listener("c", 81)],
            {"a": CONFLICTED, "b": CONFLICTED, "c": GOOD},
            ("True", "ListenersNotValid"),
        ),
        (
            [listener(allowedRoutes=admitting("All", "HTTPRoute"))],
            {"web": {**GOOD, "Programmed": ("False", "Invalid"), "ResolvedRefs": BAD_KINDS}},
            ("False", "ListenersNotValid"),
        ),
        (
            [listener(allowedRoutes=admitting("All", "HTTPRoute", "TCPRoute"))],
            {"web": {**GOOD, "ResolvedRefs": BAD_KINDS}},
            ("True", "ListenersNotValid"),
        ),
        (
            [listener(allowedRoutes=admitting("All", "UDPRoute", "TCPRoute"))],
            {"web": {**GOOD, "ResolvedRefs": BAD_KINDS}},
            ("True", "ListenersNotValid"),
        ),
        ([listener(allowedRoutes=admitting("All", "TCPRoute"))], {"web": GOOD}, ACCEPTED),
    ],
)
def test_each_listener_is_judged(
    listeners: list[dict[str, Any]], conditions: dict[str, Any], accepted: tuple[str, str]
) -> None:
    found = decided([gateway(*listeners)])
    assert {name: outcomes(each.conditions) for name, each in listeners_of(found).items()} == conditions
    assert of_gateway(found)["Accepted"] == accepted


@pytest.mark.parametrize(
    ("protocol", "kinds", "supported"),
    [
        ("TCP", (), ("TCPRoute",)),
        ("UDP", (), ("UDPRoute",)),
        ("HTTP", (), ()),
        ("INVALID", ("TCPRoute",), ()),
        ("TCP", ("UDPRoute",), ()),
        ("TCP", ("TCPRoute", "UDPRoute"), ("TCPRoute",)),
    ],
)
def test_a_listener_tells_the_kinds_that_it_supports(
    protocol: str, kinds: tuple[str, ...], supported: tuple[str, ...]
) -> None:
    found = decided([gateway(listener(protocol=protocol, allowedRoutes=admitting("All", *kinds)))])
    assert listeners_of(found)["web"].kinds == supported


@pytest.mark.parametrize("group", ["example.com", ""])
def test_a_kind_of_another_group_is_not_supported(group: str) -> None:
    kinds = [{"kind": "TCPRoute", "group": group}]
    found = decided([gateway(listener(allowedRoutes={"kinds": kinds}))])
    assert outcomes(listeners_of(found)["web"].conditions)["ResolvedRefs"] == BAD_KINDS


@pytest.mark.parametrize(
    ("state", "gateway_is", "listener_is"),
    [
        (None, ("False", "AddressNotAssigned"), ("False", "Pending")),
        (AddressState((), "AddressNotAssigned", "x"), ("False", "AddressNotAssigned"), ("False", "Pending")),
        (AddressState(("192.0.2.1",), "AddressNotUsable", "x"), ("False", "AddressNotUsable"), PROGRAMMED),
        (AddressState(("192.0.2.1",)), PROGRAMMED, PROGRAMMED),
    ],
)
def test_a_gateway_without_all_its_addresses_is_not_programmed(state: Any, gateway_is: Any, listener_is: Any) -> None:
    found = decided([gateway()], addresses={GATEWAY: state} if state is not None else {})
    assert of_gateway(found) == {"Accepted": ACCEPTED, "Programmed": gateway_is}
    assert outcomes(listeners_of(found)["web"].conditions)["Programmed"] == listener_is
    status = found.gateways[GATEWAY]
    assert status is not None
    assert status.addresses == (state.addresses if state is not None else ())


def test_a_gateway_without_an_address_has_no_farms() -> None:
    found = decided([gateway()], [route()], addresses={GATEWAY: AddressState((), "AddressNotAssigned", "none is free")})
    assert not found.farms


def test_a_gateway_with_an_address_of_each_family_has_a_farm_for_each() -> None:
    found = decided([gateway()], [route()], addresses={GATEWAY: AddressState(("192.0.2.1", "2001:db8::1"))})
    assert sorted((each["family"], each["addresses"][0]["ip"]) for each in specs(found)) == [
        ("ipv4", "192.0.2.1"),
        ("ipv6", "2001:db8::1"),
    ]
    assert len(found.farms) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("80-90", None),
        ("75-80", None),
        ("80", None),
        ("81-90", "port"),
        ("90-80", "lower"),
        ("80,81", "range"),
        ("", "port"),
        ("0-80", "ports"),
        ("1-2000", "1024"),
        ("x" * 1000, "range"),
    ],
)
def test_a_range_of_ports_has_the_port_of_the_listener(text: str, problem: str | None) -> None:
    found = decided([gateway(annotations={"kube-nftlb.io/port-range.web": text})], [route()])
    accepted = listeners_of(found)["web"].conditions[0]
    if problem is None:
        assert accepted.reason == "Accepted"
        (spec,) = specs(found)
        assert spec["addresses"][0]["ports"] == text
        # The destination port is kept, so clients reach the same port of the pod.
        assert [each["keepPort"] for each in spec["backendsFrom"]] == ["-" in text]
    else:
        assert (accepted.status, accepted.reason) == ("False", "UnsupportedValue")
        assert problem in accepted.message
        assert not found.farms


def test_a_range_that_has_the_port_of_another_listener_conflicts_with_it() -> None:
    listeners = [listener("a", 80), listener("b", 85), listener("c", 91), listener("d", 85, "UDP")]
    found = listeners_of(decided([gateway(*listeners, annotations={"kube-nftlb.io/port-range.a": "80-90"})]))
    assert {name: outcomes(each.conditions) for name, each in found.items()} == {
        "a": CONFLICTED,
        "b": CONFLICTED,
        "c": GOOD,
        "d": GOOD,
    }


def test_an_annotation_for_a_listener_that_does_not_exist_is_told() -> None:
    found = decided([gateway(annotations={"kube-nftlb.io/port-range.wbe": "80-90"})])
    status = found.gateways[GATEWAY]
    assert status is not None
    accepted = status.conditions[0]
    assert accepted.status == "True"
    assert "kube-nftlb.io/port-range.wbe" in accepted.message


def test_conditions_are_of_the_generation_that_was_read() -> None:
    status = decided([gateway(listener(), listener("b", 81, "HTTP"))], [route()]).gateways[GATEWAY]
    assert status is not None
    conditions = [*status.conditions, *(each for entry in status.listeners for each in entry.conditions)]
    assert {each.generation for each in conditions} == {7}
