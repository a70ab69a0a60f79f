"""The addresses that a Gateway asks for."""

from dataclasses import replace
from typing import Any

import pytest

from kube_nftlb.operator.gateway import plan
from kube_nftlb.operator.gateway.changes import Changes, everything
from kube_nftlb.operator.gateway.objects import AddressState, ObjectKey
from kube_nftlb.operator.gateway.wanted import AddressRequest, ClusterRequest
from tests.unit.operator.gateway.objects import (
    GATEWAY,
    decided,
    gateway,
    gateway_class,
    listener,
    of_gateway,
    parent,
    route,
    specs,
    update,
    world,
)

NOTHING_NEW = AddressRequest(families=(), only_kept=True, cluster=ClusterRequest(only_kept=True))


@pytest.mark.parametrize(
    ("addresses", "annotations", "request_"),
    [
        ([], {}, AddressRequest()),
        ([{"type": "IPAddress"}], {}, AddressRequest()),
        ([{"value": "192.0.2.9"}], {}, AddressRequest(("192.0.2.9",), ())),
        ([{"value": "192.0.2.9"}, {"value": "::9"}], {}, AddressRequest(("192.0.2.9", "::9"), ())),
        ([{"value": "192.0.2.9"}, {}], {}, AddressRequest(("192.0.2.9",))),
        ([{}, {}], {}, AddressRequest(families=(None, None))),
        ([{}], {"ip-families": "ipv6,ipv4"}, AddressRequest(families=("ipv6", "ipv4"))),
        ([{}, {}, {}], {"ip-families": "ipv6,ipv4"}, AddressRequest(families=("ipv6", "ipv4", "ipv6"))),
        ([{"routability": "Cluster"}], {}, AddressRequest(families=(), cluster=ClusterRequest(families=(None,)))),
        (
            [{"routability": "Cluster"}],
            {"ip-families": "ipv4,ipv6"},
            AddressRequest(families=(), cluster=ClusterRequest(families=("ipv4", "ipv6"))),
        ),
        (
            [{"routability": "Cluster", "value": "10.96.0.9"}, {}],
            {},
            AddressRequest(cluster=ClusterRequest(("10.96.0.9",))),
        ),
        (
            [{"routability": "testing.x-k8s.io/sentinel"}, {}],
            {},
            AddressRequest(families=(None, None), sentinels=1),
        ),
        ([], {"address-pool": "public"}, AddressRequest(pool="public")),
        ([], {"ip-families": "ipv6"}, AddressRequest(families=("ipv6",))),
        ([], {"ip-families": "ipv6, ipv4"}, AddressRequest(families=("ipv6", "ipv4"))),
        ([{"value": "192.0.2.9"}], {"ip-families": "ipv6"}, AddressRequest(("192.0.2.9",), ())),
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
        [{"type": "Hostname", "routability": "Cluster"}],
    ],
)
def test_an_address_of_another_type_is_not_supported(addresses: Any) -> None:
    found = decided([gateway(addresses=addresses)], [route()], addresses={})
    assert of_gateway(found) == {"Accepted": ("False", "UnsupportedAddress"), "Programmed": ("False", "Invalid")}
    assert (found.requests, found.farms) == ({GATEWAY: NOTHING_NEW}, {})
    served = decided([gateway(addresses=addresses)], [route()])
    assert of_gateway(served) == of_gateway(found)
    assert len(served.farms) == 1, "a mistake takes nothing from clients"
    status = served.gateways[GATEWAY]
    assert status is not None
    assert status.conditions[0].message.endswith("; until then it keeps 192.0.2.1")


@pytest.mark.parametrize(
    ("addresses", "annotations"),
    [
        ([{"routability": "example.com/vpc"}, {}], {}),
        ([{"routability": "testing.x-k8s.io/other"}], {}),
        ([{"routability": "testing.x-k8s.io/sentinel", "value": "192.0.2.9"}], {}),
        ([{"routability": "Cluster"}], {"ip-families": "ipv5"}),
        ([], {"ip-families": "ipv5"}),
        ([], {"ip-families": "ipv4,ipv4"}),
        ([], {"ip-families": "ipv4,"}),
        ([], {"address-pool": "x" * 254}),
    ],
)
def test_what_cannot_be_understood_gets_no_address_and_loses_none(addresses: Any, annotations: dict[str, str]) -> None:
    annotations = {f"kube-nftlb.io/{key}": value for key, value in annotations.items()}
    strange = gateway(addresses=addresses, annotations=annotations)
    found = decided([strange], [route()], addresses={GATEWAY: AddressState()})
    assert of_gateway(found) == {"Accepted": ("True", "Accepted"), "Programmed": ("False", "AddressNotAssigned")}
    assert (found.requests, found.farms) == ({GATEWAY: NOTHING_NEW}, {})
    served = decided([strange], [route()])
    assert of_gateway(served) == of_gateway(found)
    assert len(served.farms) == 1, "a mistake takes nothing from clients"


@pytest.mark.parametrize("routability", ["", "Cluster"])
def test_a_gateway_asks_for_no_more_addresses_than_its_status_can_have(routability: str) -> None:
    addresses = [*({"value": f"192.0.2.{number}", "routability": routability} for number in range(15)), {}]
    assert of_gateway(decided([gateway(addresses=addresses)]))["Programmed"] == ("True", "Programmed")
    found = decided([gateway(addresses=addresses, annotations={"kube-nftlb.io/ip-families": "ipv4,ipv6"})])
    assert found.requests == {GATEWAY: NOTHING_NEW}
    status = found.gateways[GATEWAY]
    assert status is not None
    assert status.conditions[1].reason == "AddressNotAssigned"
    assert status.conditions[1].message == (
        "spec.addresses: with the annotation kube-nftlb.io/ip-families it asks for 17 addresses, and may have 16; "
        "until then it keeps 192.0.2.1"
    )


@pytest.mark.parametrize("of_class", [False, True])
def test_with_parameters_a_gateway_is_not_accepted_and_keeps_what_it_has(*, of_class: bool) -> None:
    parameters: dict[str, Any] = {"parametersRef": {"kind": "X", "group": "", "name": "x"}}
    strange = gateway() if of_class else gateway(infrastructure=parameters)
    classes = [gateway_class(**parameters) if of_class else gateway_class()]
    found = decided([strange], [route()], classes=classes, addresses={})
    assert of_gateway(found) == {"Accepted": ("False", "InvalidParameters"), "Programmed": ("False", "Invalid")}
    assert (found.requests, found.farms) == ({GATEWAY: NOTHING_NEW}, {})
    served = decided([strange], [route()], classes=classes)
    assert of_gateway(served) == of_gateway(found)
    assert len(served.farms) == 1, "a mistake takes nothing from clients"
    status = served.gateways[GATEWAY]
    assert status is not None
    assert status.addresses == ("192.0.2.1",)
    assert status.conditions[0].message.endswith("; until then it keeps 192.0.2.1")


def test_a_gateway_without_a_valid_listener_keeps_its_address() -> None:
    found = decided([gateway(listener(protocol="HTTP"))], [route()])
    assert of_gateway(found)["Accepted"] == ("False", "ListenersNotValid")
    assert (found.requests, found.farms) == ({GATEWAY: AddressRequest()}, {})
    status = found.gateways[GATEWAY]
    assert status is not None
    assert status.addresses == ("192.0.2.1",)


def test_a_namespace_has_so_many_gateways_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "GATEWAYS_MAX", 1)
    old, other = ObjectKey("infra", "older"), ObjectKey("tenant", "first")
    gateways = {each: gateway(key=each, age=9 if each == old else 0) for each in (GATEWAY, old, other)}
    objects = replace(world(gateways.values(), [route(parents=[parent(), parent(name="older")])]), gateways=gateways)
    planner = plan.Planner(objects)
    found = update(planner, everything(objects))
    assert of_gateway(found) == {"Accepted": ("False", "TooManyGateways"), "Programmed": ("False", "Invalid")}
    assert of_gateway(found, old)["Accepted"] == of_gateway(found, other)["Accepted"] == ("True", "Accepted")
    assert found.requests == {GATEWAY: None, old: AddressRequest(), other: AddressRequest()}
    assert {farm.gateway for farm in found.farms.values() if farm is not None} == {old}
    del gateways[old]
    found = update(planner, Changes(gateways={old}))
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
