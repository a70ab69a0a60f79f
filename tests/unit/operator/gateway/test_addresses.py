"""The addresses that a Gateway asks for."""

from dataclasses import replace
from typing import Any

import pytest

from kube_nftlb.operator.gateway import plan
from kube_nftlb.operator.gateway.changes import Changes, everything
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import AddressRequest
from tests.unit.operator.gateway.objects import (
    GATEWAY,
    decided,
    gateway,
    gateway_class,
    of_gateway,
    parent,
    route,
    specs,
    world,
)


@pytest.mark.parametrize(
    ("addresses", "annotations", "request_"),
    [
        ([], {}, AddressRequest()),
        ([{"type": "IPAddress"}], {}, AddressRequest()),
        ([{"value": "192.0.2.9"}], {}, AddressRequest(("192.0.2.9",))),
        ([{"value": "192.0.2.9"}, {"value": "::9"}], {}, AddressRequest(("192.0.2.9", "::9"))),
        ([], {"address-pool": "public"}, AddressRequest(pool="public")),
        ([], {"ip-families": "ipv6"}, AddressRequest(families=("ipv6",))),
        ([], {"ip-families": "ipv6, ipv4"}, AddressRequest(families=("ipv6", "ipv4"))),
        ([{"value": "192.0.2.9"}], {"ip-families": "ipv6"}, AddressRequest(("192.0.2.9",))),
    ],
)
def test_a_gateway_asks_for_addresses(addresses: Any, annotations: dict[str, str], request_: AddressRequest) -> None:
    annotations = {f"kube-nftlb.io/{key}": value for key, value in annotations.items()}
    found = decided([gateway(addresses=addresses, annotations=annotations)])
    assert found.requests == {GATEWAY: request_}
    assert of_gateway(found) == {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")}


@pytest.mark.parametrize(
    "addresses",
    [
        [{"type": "Hostname", "value": "a.example"}],
        [{"type": "NamedAddress", "value": "a"}],
        [{"type": "test/fake-invalid-type", "value": "x"}, {"value": "192.0.2.9"}],
        [{"routability": "Cluster"}],
    ],
)
def test_an_address_of_another_type_is_not_supported(addresses: Any) -> None:
    found = decided([gateway(addresses=addresses)], [route()])
    assert of_gateway(found) == {"Accepted": ("False", "UnsupportedAddress"), "Programmed": ("False", "Invalid")}
    assert (found.requests, found.farms) == ({GATEWAY: None}, {})


@pytest.mark.parametrize(
    ("addresses", "annotations"),
    [
        ([{"value": "192.0.2.9"}, {}], {}),
        ([], {"ip-families": "ipv5"}),
        ([], {"ip-families": "ipv4,ipv4"}),
        ([], {"ip-families": "ipv4,"}),
        ([], {"address-pool": "x" * 254}),
    ],
)
def test_what_cannot_be_understood_gets_no_address(addresses: Any, annotations: dict[str, str]) -> None:
    annotations = {f"kube-nftlb.io/{key}": value for key, value in annotations.items()}
    found = decided([gateway(addresses=addresses, annotations=annotations)], [route()])
    assert of_gateway(found) == {"Accepted": ("True", "Accepted"), "Programmed": ("False", "AddressNotAssigned")}
    assert (found.requests, found.farms) == ({GATEWAY: None}, {})


def test_a_gateway_that_is_not_accepted_keeps_its_address() -> None:
    found = decided([gateway(infrastructure={"parametersRef": {"kind": "X", "group": "", "name": "x"}})], [route()])
    assert of_gateway(found)["Accepted"] == ("False", "InvalidParameters")
    assert (found.requests, found.farms) == ({GATEWAY: AddressRequest()}, {})
    status = found.gateways[GATEWAY]
    assert status is not None
    assert status.addresses == ("192.0.2.1",)


def test_gateways_of_a_class_that_is_not_accepted_are_not_either() -> None:
    classes = [gateway_class(parametersRef={"kind": "X", "group": "", "name": "x"})]
    found = decided([gateway()], [route()], classes=classes)
    assert of_gateway(found)["Accepted"] == ("False", "InvalidParameters")
    assert not found.farms


def test_a_namespace_has_so_many_gateways_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "GATEWAYS_MAX", 1)
    old, other = ObjectKey("infra", "older"), ObjectKey("tenant", "first")
    gateways = {each: gateway(key=each, age=9 if each == old else 0) for each in (GATEWAY, old, other)}
    objects = replace(world(gateways.values(), [route(parents=[parent(), parent(name="older")])]), gateways=gateways)
    planner = plan.Planner(objects)
    found = planner.update(everything(objects))
    assert of_gateway(found) == {"Accepted": ("False", "TooManyGateways"), "Programmed": ("False", "Invalid")}
    assert of_gateway(found, old)["Accepted"] == of_gateway(found, other)["Accepted"] == ("True", "Accepted")
    assert found.requests == {GATEWAY: None, old: AddressRequest(), other: AddressRequest()}
    assert {farm.gateway for farm in found.farms.values() if farm is not None} == {old}
    del gateways[old]
    found = planner.update(Changes(gateways={old}))
    assert of_gateway(found)["Accepted"] == ("True", "Accepted")
    assert found.requests == {GATEWAY: AddressRequest(), old: None}


@pytest.mark.parametrize(
    ("text", "policy", "note"),
    [
        ("Local", "Local", ""),
        ("Cluster", "Cluster", ""),
        ("", "Cluster", ""),
        ("local", "Cluster", "; the annotation kube-nftlb.io/external-traffic-policy must be Cluster or Local"),
    ],
)
def test_an_annotation_keeps_the_addresses_of_clients(text: str, policy: str, note: str) -> None:
    found = decided([gateway(annotations={"kube-nftlb.io/external-traffic-policy": text})], [route()])
    assert [each["trafficPolicy"] for each in specs(found)] == [policy]
    status = found.gateways[GATEWAY]
    assert status is not None
    assert all(each.message.endswith(note) for each in status.conditions if each.type == "Accepted")
