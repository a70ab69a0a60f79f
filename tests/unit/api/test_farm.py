"""Validation of farms by the model. The functional suite has the API server's verdicts."""

from typing import Any

import pytest
from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.api.farm import BackendsFrom, Farm
from kube_nftlb.api.values import expand_ports
from tests.builders import farm, raw_backend, raw_route_farm

IPV6 = {"addresses": [{"ip": "fd00::1", "ports": "80"}], "backends": []}

CONTROLLER = {"kind": "TCPRoute", "name": "web", "uid": "uid-web", "controller": True}


@pytest.mark.parametrize(
    ("ports", "expanded"),
    [("80", [80]), ("80,443", [80, 443]), ("8000-8002,80", [8000, 8001, 8002, 80]), ("65535", [65535])],
)
def test_ports_are_a_port_a_list_or_a_range(ports: str, expanded: list[int]) -> None:
    assert expand_ports(ports) == expanded


@pytest.mark.parametrize(
    "ports", ["0", "65536", "90-80", "80,80", "80-82,81", "http", "80 ", "80;x", "1-2000", "-1", "80,", "010"]
)
def test_invalid_ports_are_refused_with_a_message(ports: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        expand_ports(ports)


def referring(reference: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A farm that refers to a Service."""
    return {"backends": [], **changes, "backendsFrom": [{"service": "web", **(reference or {})}]}


def overriding(mode: str = "snat", **fields: Any) -> dict[str, Any]:
    """A farm that refers to a Service, with options for a pod."""
    return referring({"overrides": [{"pod": "a", **fields}]}, mode=mode)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"addresses": [{"ip": "10.96.0.300", "ports": "80"}]}, "must be empty, or an IPv4 or IPv6 address"),
        ({"addresses": [{"ip": "0.0.0.0", "ports": "80"}]}, "not a loopback, link-local or multicast address"),
        ({"addresses": [{"ip": "255.255.255.255", "ports": "80"}]}, "not a loopback, link-local or multicast address"),
        (
            {"addresses": [{"ip": "10.96.0.1", "ports": "80", "sourceRanges": ["fd00::/8"]}]},
            "every source range must be of the farm's family",
        ),
        ({"limits": {"new": "1/week", "newBurst": 30501}}, "raise new or lower newBurst"),
        ({"limits": {"reset": "1/day", "resetBurst": 1000000}}, "raise reset or lower resetBurst"),
        (
            {"addresses": [{"ip": f"10.96.0.{number}", "ports": "1-1024"} for number in range(1, 6)]},
            "5120 pairs of address and port; at most 4096",
        ),
        ({"addresses": [{"ip": "FD00::1", "ports": "80"}], "family": "ipv6"}, "in canonical form"),
        ({"addresses": [{"ip": "fd00::1", "ports": "80"}]}, "every address must be of the farm's family"),
        ({"backends": [raw_backend("a", "fd00::1")]}, "every backend must be of the farm's family"),
        ({"backends": [raw_backend("a b", "10.0.0.1")]}, "should match pattern"),
        ({"backends": [raw_backend("a\n", "10.0.0.1")]}, "should match pattern"),
        ({"backends": [raw_backend("a", "10.0.0.1"), raw_backend("a", "10.0.0.2")]}, "duplicate backend name 'a'"),
        ({"backends": [raw_backend("a", "10.0.0.1", port=0)]}, "greater than or equal to 1"),
        ({"mode": "tunnel"}, "Input should be 'snat', 'dnat', 'dsr' or 'local'"),
        ({"protocol": "All"}, "must have ports, except with protocol All"),
        ({"addresses": [{"ip": "10.0.0.1"}]}, "must have ports, except with protocol All"),
        (
            {"backends": [raw_backend("a", "10.0.0.1"), {"name": "b", "ip": "10.0.0.2"}]},
            "either all backends must have a port or none",
        ),
        ({"mode": "dnat", "sourceAddress": "10.0.0.9"}, "sourceAddress requires mode snat"),
        ({"mode": "dsr", "policies": ["list"]}, "policies require mode snat, dnat or local"),
        (
            {"mode": "dsr", "addresses": [{"ip": "10.0.0.1", "ports": "80", "policies": ["list"]}]},
            "policies require mode snat, dnat or local",
        ),
        ({"addresses": [{"ip": "10.0.0.1", "ports": "80", "policies": ["a.b"]}]}, "should match pattern"),
        ({"policies": ['x" drop']}, "should match pattern"),
        ({"sourceAddress": "fd00::9"}, "sourceAddress must be of the farm's family"),
        ({"logPrefix": 'x" drop'}, "should match pattern"),
        ({"logPrefix": "x\n"}, "should match pattern"),
        ({"mark": "0x2"}, "should match pattern"),
        ({"mark": "0x80000000"}, "should match pattern"),
        ({"limits": {"new": "many"}}, "should match pattern"),
        ({"sessions": [{"client": "10.0.0.1", "backend": "pod-a"}]}, "sessions require a persistence"),
        ({"scheduler": "rr; flush ruleset"}, "Input should be"),
        ({"schedParam": "srcip"}, "schedParam requires scheduler hash"),
        ({"persistence": "srcip srcport", "family": "ipv6", **IPV6}, "persistence cannot combine srcip or dstip"),
        ({"persistence": "srcip dstip srcmac dstmac"}, "too long for nftlb"),
        (
            {
                "scheduler": "hash",
                "schedParam": "srcip dstip srcport srcmac dstmac",
                "family": "ipv6",
                **IPV6,
            },
            "schedParam cannot combine both IP addresses",
        ),
        ({"protocol": "All", "addresses": [{"ip": "10.0.0.1"}]}, "with protocol All, none"),
        (
            {"protocol": "All", "addresses": [{"ip": "10.0.0.1"}], "backends": [], "persistence": "srcport"},
            "cannot use ports",
        ),
        (
            {"backends": [{"name": name, "ip": "10.1.0.1", "port": 80, "mark": 7} for name in "ab"]},
            "duplicate backend mark 7",
        ),
        ({"backendsFrom": [{"service": "web"}]}, "backends and backendsFrom exclude each other"),
        (referring(mode="local"), "mode local has neither"),
        (referring(protocol="All", addresses=[{"ip": "10.0.0.1"}]), "keepPort must be true"),
        (overriding(mode="dnat", sourceAddress="10.0.0.9"), "sourceAddress of an override requires mode snat"),
        (overriding(sourceAddress="fd00::9"), "must be of the farm's family"),
        (overriding(sourceAddress="127.0.0.1"), "not a loopback, link-local or multicast address"),
        (overriding(establishedLogPrefix='x" drop'), "should match pattern"),
        (overriding(weight=0), "greater than or equal to 1"),
        (overriding(pod="a\n"), "should match pattern"),
        (overriding(pod="a; b"), "should match pattern"),
        (referring({"overrides": [{"weight": 3}]}), "Field required"),
        (referring({"overrides": [{"pod": "a"}, {"pod": "a"}]}), "duplicate pod of an override 'a'"),
        (referring({"overrides": [{"pod": pod, "mark": 7} for pod in "ab"]}), "duplicate backend mark 7"),
        (referring({"overrides": [{"pod": f"p{number}"} for number in range(1025)]}), "at most 1024 items"),
        (referring({"service": ""}), "needs either a service, or refuse: true"),
        (referring({"refuse": True}), "needs either a service, or refuse: true"),
        (referring({"weight": -1}), "greater than or equal to 0"),
        (referring({"weight": 1_000_001}), "less than or equal to 1000000"),
        (referring() | {"backendsFrom": [{"service": "web"}] * 2}, "duplicate reference"),
        (referring() | {"backendsFrom": [{"service": f"s{number}"} for number in range(17)]}, "at most 16 items"),
        (referring({"service": "web\n"}), "should match pattern"),
        (referring({"service": "other/web"}), "should match pattern"),
        (referring({"namespace": "a.b"}), "should match pattern"),
        (referring({"port": 0}), "greater than or equal to 1"),
        (referring({"port": 65536}), "less than or equal to 65535"),
        (referring({"port": "x" * 64}), "at most 63 characters"),
        *(
            ({"persistence": persistence, "sessions": [{"client": client, "backend": "pod-a"}]}, message)
            for persistence, client, message in (
                ("srcip", "02:00:00:00:00:01", "an address such as 10.0.0.1 for srcip"),
                ("srcip", "fd00::1", "an address such as 10.0.0.1 for srcip"),
                ("srcip", "10.0.0.1 . 80", "a value for each of srcip"),
                ("srcip", "10.0.0.1 }; flush ruleset", "should match pattern"),
                ("srcmac", "2:0:0:0:0:1", "a MAC address such as"),
                ("srcport", "080", "a port such as 4000"),
                ("srcport", "65536", "a port such as 4000"),
                ("srcip srcport", "80 . 10.0.0.1", "for srcip"),
            )
        ),
        ({"persistTTL": 0}, "greater than or equal to 1"),
        ({"addresses": [{"ip": "127.0.0.1", "ports": "5555"}]}, "not a loopback, link-local or multicast address"),
        (
            {"addresses": [{"ip": "fe80::1", "ports": "80"}], "family": "ipv6"},
            "not a loopback, link-local or multicast address",
        ),
        (
            {"addresses": [{"ip": "10.0.0.1", "ports": "80"}, {"ip": "10.0.0.1", "ports": "79-81"}]},
            "two addresses have the same IP and port",
        ),
    ],
)
def test_an_invalid_farm_is_refused_with_a_reason(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        farm(**changes)


@pytest.mark.parametrize(
    ("reference", "port"),
    [
        ({"port": "http"}, "http"),
        ({"port": 8080}, 8080),
        ({"port": "8080"}, "8080"),
        ({}, ""),
        ({"port": ""}, ""),
    ],
)
def test_a_farm_may_refer_to_a_port_by_name_or_number(reference: dict[str, Any], port: str | int) -> None:
    spec = farm(**referring(reference)).spec
    assert spec.backends_from == (BackendsFrom(service="web", port=port, keep_port=False, overrides=()),)
    assert type(spec.backends_from[0].port) is type(port)


def test_a_farm_of_all_protocols_may_refer_to_a_service() -> None:
    spec = farm(**referring({"keepPort": True}, protocol="All", addresses=[{"ip": "10.0.0.1"}])).spec
    assert spec.backends_from[0].keep_port


def test_the_options_of_backends_are_those_by_hand_or_by_reference() -> None:
    by_hand = farm(backends=[raw_backend("a", "10.0.0.1", weight=2)]).spec
    assert by_hand.backend_options == by_hand.backends
    by_reference = farm(**overriding(weight=3)).spec
    assert [each.weight for each in by_reference.backend_options] == [3]
    assert farm(**referring()).spec.backend_options == ()


def route_farm(**metadata: Any) -> Farm:
    groups = [{"namespace": "other", "service": "web", "weight": 3}, {"service": "web"}]
    raw = raw_route_farm(backendsFrom=groups)
    return Farm.model_validate({**raw, "metadata": {**raw["metadata"], **metadata}})


def test_a_farm_that_the_operator_made_of_a_route_may_refer_to_another_namespace() -> None:
    made = route_farm()
    assert made.spec.backends_from[0].full_name == "other/web"
    assert (made.trespass, made.without_trespass()) == ("", made)
    own = farm(backends=[], backendsFrom=[{"namespace": "default", "service": "web"}])
    assert own.without_trespass() is own


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {}},
        {"ownerReferences": []},
        {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/kept"]},
        *(
            {"ownerReferences": [{**CONTROLLER, "apiVersion": version}]}
            for version in ("example.com/v1", names.GATEWAY_API, "v1")
        ),
    ],
)
def test_all_other_farms_refuse_the_share_of_such_a_reference(metadata: dict[str, Any]) -> None:
    other = route_farm(**metadata)
    assert "the Service other/web of another namespace, which only farms of routes" in other.trespass
    refused, kept = other.without_trespass().spec.backends_from
    assert refused == BackendsFrom(weight=3, refuse=True)
    assert kept == other.spec.backends_from[1]
