"""The fields that are taken from an EndpointSlice, and the texts that are taken for an address."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.endpointslices.slices import (
    ENDPOINTS_MAX,
    HINTS_MAX,
    INVALID_SHOWN_MAX,
    PORTS_MAX,
    SERVED_SLICES,
    canonical_ip,
    parse_slice,
)
from tests.builders import endpoint, endpoint_slice, raw_slice


@given(st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){2,4}", fullmatch=True) | st.ip_addresses(v=4).map(str) | st.text())
def test_an_ipv4_address_is_what_the_standard_library_takes_for_one(text: str) -> None:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        assert canonical_ip(text, "ipv4") is None
    else:
        local = address.is_unspecified or address.is_multicast or address.is_loopback or address.is_link_local
        connectable = not local and text != "255.255.255.255"
        assert canonical_ip(text, "ipv4") == (str(address) if connectable else None)
    assert canonical_ip(text, "ipv6") is None or ":" in text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::", None),
        ("ff02::1", None),
        ("fe80::1%eth0", None),
        ("fe80::1", None),
        ("::1", None),
        ("::ffff:10.0.0.1", None),
        ("2001:db8::g", None),
    ],
)
def test_an_ipv6_address_is_written_in_one_way(text: str, canonical: str | None) -> None:
    assert canonical_ip(text, "ipv6") == canonical
    assert canonical_ip(text, "ipv4") is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(raw_slice(address_type="FQDN"), id="names instead of addresses"),
        pytest.param(raw_slice(service=""), id="no Service"),
        pytest.param(raw_slice(labels={names.LABEL_HEADLESS: ""}), id="a headless Service's"),
        pytest.param(raw_slice(labels={names.LABEL_PROXY_NAME: "x"}), id="another proxy's"),
    ],
)
def test_a_slice_without_use_is_skipped(raw: dict[str, Any]) -> None:
    assert parse_slice(raw) is None


def test_the_selector_leaves_out_slices_without_use() -> None:
    assert SERVED_SLICES == (
        "kubernetes.io/service-name,!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"
    )


@pytest.mark.parametrize(
    ("text", "address_type"),
    [
        ("10.244.0.300", "IPv4"),
        ("fd00::1", "IPv4"),
        ("10.244.0.1", "IPv6"),
        ("010.244.0.1", "IPv4"),
        ("0.0.0.0", "IPv4"),
        ("127.0.0.1", "IPv4"),
        ("169.254.169.254", "IPv4"),
        ("::ffff:10.0.0.1", "IPv6"),
        ("fe80::1%eth0", "IPv6"),
        ("fe80::1", "IPv6"),
        ("; flush ruleset", "IPv4"),
    ],
)
def test_an_address_that_is_none_is_left_out_and_noted(text: str, address_type: str) -> None:
    good: dict[Family, str] = {"ipv4": "10.244.0.9", "ipv6": "fd00::9"}
    family: Family = "ipv4" if address_type == "IPv4" else "ipv6"
    found = endpoint_slice(endpoint(text), endpoint(good[family]), address_type=address_type)
    assert ([each.ip for each in found.endpoints], found.invalid) == ([good[family]], (text,))


def test_of_many_invalid_addresses_the_first_are_noted_and_shortened() -> None:
    found = endpoint_slice(*(endpoint(f"{number}{'x' * 100}") for number in range(9)))
    assert [len(text) for text in found.invalid] == [64] * INVALID_SHOWN_MAX
    assert [text[0] for text in found.invalid] == ["0", "1", "2", "3", "4"]


def test_an_address_is_written_in_its_canonical_form() -> None:
    (found,) = endpoint_slice(endpoint("FD00:0::1"), address_type="IPv6").endpoints
    assert found.ip == "fd00::1"


def test_what_is_beyond_the_limits_of_the_api_is_not_even_validated() -> None:
    raw = raw_slice(
        *(endpoint(f"10.244.{number // 250}.{number % 250 + 1}") for number in range(ENDPOINTS_MAX)),
        ports=[{"name": f"p{number}", "port": number} for number in range(1, PORTS_MAX + 1)],
    )
    raw["endpoints"].append("no endpoint")
    raw["ports"].append("no port")
    found = parse_slice(raw)
    assert found is not None
    assert (len(found.endpoints), len(found.ports)) == (ENDPOINTS_MAX, PORTS_MAX)


def test_an_endpoint_has_the_first_of_too_many_hints() -> None:
    hints = {kind: [{"name": f"{kind}-{number}"} for number in range(50)] for kind in ("forZones", "forNodes")}
    (found,) = endpoint_slice({**endpoint("10.244.0.1"), "hints": hints}).endpoints
    assert found.zones == tuple(f"forZones-{number}" for number in range(HINTS_MAX))
    assert found.nodes == tuple(f"forNodes-{number}" for number in range(HINTS_MAX))


@pytest.mark.parametrize("absent", ["endpoints", "ports"])
@pytest.mark.parametrize("text", [None, []])
def test_a_slice_may_lack_endpoints_or_ports(absent: str, text: list[Any] | None) -> None:
    found = parse_slice({**raw_slice(endpoint("10.244.0.1")), absent: text})
    assert found is not None
    assert getattr(found, absent) == ()


def test_only_a_pod_is_named_as_one() -> None:
    raw = endpoint("10.244.0.1", "a")
    raw["targetRef"]["kind"] = "Node"
    (found,) = endpoint_slice(raw).endpoints
    assert found.pod == ""


def test_a_text_that_is_too_long_for_a_name_is_none() -> None:
    def found(name: str) -> tuple[object, ...]:
        hints = {kind: [{"name": name}, {"name": "b"}] for kind in ("forZones", "forNodes")}
        (each,) = endpoint_slice({**endpoint("10.244.0.1", name, node=name), "hints": hints}).endpoints
        return each.pod, each.node, each.zones, each.nodes

    longest = "a" * 253
    assert found(longest) == (longest, longest, (longest, "b"), (longest, "b"))
    assert found(longest + "a") == ("", "", ("b",), ("b",))
