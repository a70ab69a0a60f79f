"""Why a pool is refused: the sentence of its condition."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.api.address_ranges import AddressRange, Ip, RangeMap, ip_of, overlap, size, without
from kube_nftlb.operator.addresses.cluster import ClusterAddresses
from kube_nftlb.operator.addresses.pools import parse, problems
from tests.builders.pools import raw_pool

CLUSTER = ClusterAddresses(
    [
        ("172.31.0.11", "an address of the node n1"),
        ("fd00:31::11", "an address of the node n1"),
        ("api.example.com", "an address of the API server"),
        ("10.250.0.10", "the cluster IP of the Service default/dns"),
    ],
    [
        (ipaddress.ip_network("10.96.0.0/16"), "cluster IPs"),
        (ipaddress.ip_network("10.200.0.0/16"), "pods"),
        (ipaddress.ip_network("fd00:244:2::/64"), "the pods of the node n2"),
    ],
)
OLDER = raw_pool("older", "198.51.100.0/24", "2001:db8:1::/64", created="2025-01-01T00:00:00Z")


def refused(raw: dict[str, Any]) -> str | None:
    return problems([parse(OLDER), parse(raw)], CLUSTER).get("pool")


FORM = "must be an address range in canonical form"


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        (["192.0.02.0/24"], FORM),
        (["192.0.2.010-192.0.2.20"], FORM),
        (["192.0.2.1/24"], FORM),
        (["192.0.2.0/024"], FORM),
        (["192.0.2.0/255.255.255.0"], FORM),
        (["192.0.2.1"], FORM),
        (["192.0.2.1-20"], FORM),
        (["192.0.2.1 - 192.0.2.20"], FORM),
        (["192.0.2.1-2001:db8::1"], FORM),
        (["2001:DB8::/120"], FORM),
        (["fe80::1%eth0-fe80::2"], FORM),
        (["::ffff:192.0.2.0/120"], FORM),
        ([], "at least 1 item"),
        (["192.0.2.20-192.0.2.10"], "ends before it begins: write 192.0.2.10-192.0.2.20"),
        (["0.0.0.0/0"], "0.0.0.0/0 has an unspecified address"),
        (["127.0.0.1-127.0.0.9"], "has a loopback address, which no Service can have"),
        (["169.254.1.0/24"], "has a link-local address"),
        (["239.0.0.0/24"], "has a multicast address"),
        (["255.255.255.254/31"], "has the broadcast address"),
        (["100.100.100.0/24"], "has the address of a cloud's metadata service"),
        (["fe80::/64"], "has a link-local address"),
        (["192.0.2.0/28", "192.0.2.8-192.0.2.9"], "192.0.2.8-192.0.2.9 overlaps with 192.0.2.0/28 of the same pool"),
        (["172.31.0.0/24"], "172.31.0.0/24 overlaps with 172.31.0.11, an address of the node n1"),
        (["fd00:31::10-fd00:31::20"], "overlaps with fd00:31::11, an address of the node n1"),
        (["10.96.1.0/24"], "10.96.1.0/24 overlaps with 10.96.0.0/16, the range of cluster IPs"),
        (["10.250.0.0/24"], "overlaps with 10.250.0.10, the cluster IP of the Service default/dns"),
        (["10.0.0.0/8"], "overlaps with 10.96.0.0/16, the range of cluster IPs"),
        (["10.200.255.255-10.201.0.1"], "overlaps with 10.200.0.0/16, the range of pods"),
        (["fd00:244::/32"], "overlaps with fd00:244:2::/64, the range of the pods of the node n2"),
        (["198.51.100.250-198.51.101.9"], "overlaps with the address pool older, which is older"),
        (["2001:db8:1::5/128"], "overlaps with the address pool older, which is older"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_with_a_sentence(ranges: list[str], why: str) -> None:
    raw = raw_pool()
    raw["spec"]["ranges"] = ranges
    assert why in (refused(raw) or "")


@pytest.mark.parametrize(
    "ranges",
    [
        ["192.0.2.0/24"],
        ["192.0.2.1-192.0.2.1", "192.0.2.2/32", "2001:db8::/64"],
        ["172.31.0.12-172.31.0.20"],
        ["10.97.0.0/16"],
        ["0:0:1::-0:0:1::ff".replace("0:0:1::", "2001:db8:2::")],
    ],
)
def test_a_pool_beside_all_that_is_accepted(ranges: list[str]) -> None:
    assert refused(raw_pool("pool", *ranges)) is None


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"reserved": ["192.0.2.3-192.0.2.4"]}, "spec.reserved: 192.0.2.3-192.0.2.4 is not within spec.ranges"),
        ({"priority": -1}, "spec.priority: Input should be greater than or equal to 0"),
        ({"announce": {"whenEmpty": "later"}}, "spec.announce.whenEmpty"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "spec.namespaceSelector"),
    ],
)
def test_the_other_fields_are_checked_too(spec: dict[str, Any], why: str) -> None:
    assert why in (refused(raw_pool(**spec)) or "")


def test_a_malformed_object_is_refused_rather_than_dropped() -> None:
    pool = parse({"metadata": raw_pool()["metadata"], "spec": {"ranges": "192.0.2.0/24"}, "status": [1]})
    assert "spec.ranges" in str(problems([pool], CLUSTER)["pool"])


def test_of_pools_that_overlap_the_oldest_is_accepted() -> None:
    first = parse(raw_pool("z", created="2026-01-01T00:00:00Z"))
    second = parse(raw_pool("a", "192.0.2.3/32", created="2026-01-01T00:00:01Z"))
    assert problems([second, first], CLUSTER) == {
        "a": "spec.ranges: 192.0.2.3/32 overlaps with the address pool z, which is older"
    }


RANGES = st.builds(
    lambda family, first, more: AddressRange(family, first, first + more),
    st.sampled_from(["ipv4", "ipv6"]),
    st.integers(0, 40),
    st.integers(0, 9),
)


@given(st.lists(RANGES, max_size=4), st.lists(RANGES, max_size=4))
def test_ranges_without_others_have_all_other_addresses(ranges: list[AddressRange], gone: list[AddressRange]) -> None:
    def numbers(of: list[AddressRange]) -> list[Ip]:
        return [Ip(each.family, number) for each in of for number in range(each.first, each.last + 1)]

    remaining = without(ranges, gone)
    assert sorted(numbers(remaining)) == sorted(ip for ip in numbers(ranges) if ip not in set(numbers(gone)))
    assert size(remaining, "ipv4") == sum(ip.family == "ipv4" for ip in numbers(remaining))


@given(st.lists(RANGES, max_size=6), RANGES)
def test_a_map_of_ranges_finds_what_a_scan_finds(ranges: list[AddressRange], wanted: AddressRange) -> None:
    disjoint: list[AddressRange] = []
    for each in ranges:
        if not any(overlap(each, other) for other in disjoint):
            disjoint.append(each)
    found = RangeMap([(each, each) for each in disjoint])
    touched = [each for each in disjoint if overlap(each, wanted)]
    assert (found.overlapping(wanted) in touched) if touched else (found.overlapping(wanted) is None)
    ip = Ip(wanted.family, wanted.first)
    has = [each for each in disjoint if each.family == ip.family and each.first <= ip.number <= each.last]
    assert found.find(ip) == (has[0] if has else None)


@pytest.mark.parametrize("text", ["192.0.2.01", "x", "", "FD00::1", "fe80::1%eth0", "::ffff:192.0.2.1", "192.0.2.1/32"])
def test_an_address_that_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an IP address|must be written|has a zone"):
        ip_of(text)


@pytest.mark.parametrize("text", ["192.0.2.1", "2001:db8::1"])
def test_an_address_is_written_as_it_was_read(text: str) -> None:
    assert str(ip_of(text)) == text
