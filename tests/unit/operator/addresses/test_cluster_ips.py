"""Which cluster IPs a Gateway gets, and why it lacks some."""

import ipaddress
from collections.abc import Collection, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.operator.addresses import cluster_ips
from kube_nftlb.operator.addresses.cluster_ips import Decision, Facts, Part, parts_of
from kube_nftlb.operator.gateway.wanted import ClusterRequest

ONE = ClusterRequest(families=(None,))


def decide(
    request: ClusterRequest,
    *networks: str,
    seed: int = 0,
    held: Iterable[str] = (),
    lost: Iterable[str] = (),
    taken: Collection[str] = (),
    room: int = 9,
) -> Decision:
    facts = Facts(
        [ipaddress.ip_network(each) for each in networks or ("10.96.0.0/24",)],
        lambda ip: str(ip) in taken,
        len(taken),
        room,
        9,
    )
    return cluster_ips.decide(request, seed, [ip_of(each) for each in held], [ip_of(each) for each in lost], facts)


def texts(found: Decision) -> list[str]:
    return list(map(str, found.ips))


@pytest.mark.parametrize(
    ("network", "upper", "lower"),
    [
        # As Kubernetes 1.37.2 divides them (calculateRangeOffset).
        ("10.96.0.0/24", ("10.96.0.17", "10.96.0.254"), ("10.96.0.1", "10.96.0.16")),
        ("10.96.0.0/16", ("10.96.1.1", "10.96.255.254"), ("10.96.0.1", "10.96.1.0")),
        ("10.96.0.0/20", ("10.96.1.1", "10.96.15.254"), ("10.96.0.1", "10.96.1.0")),
        ("10.96.0.0/28", ("10.96.0.1", "10.96.0.14"), None),
        ("10.96.0.0/27", ("10.96.0.17", "10.96.0.30"), ("10.96.0.1", "10.96.0.16")),
        ("10.96.0.0/31", None, None),
        ("10.96.0.0/32", None, None),
        ("fd00:96::/112", ("fd00:96::101", "fd00:96::ffff"), ("fd00:96::1", "fd00:96::100")),
        ("fd00:96::/124", ("fd00:96::1", "fd00:96::f"), None),
    ],
)
def test_a_range_is_divided_as_the_api_server_divides_it(
    network: str, upper: tuple[str, str] | None, lower: tuple[str, str] | None
) -> None:
    expected = [
        Part(ip_of(part[0]).family, ip_of(part[0]).number, ip_of(part[1]).number, is_lower)
        for part, is_lower in ((upper, False), (lower, True))
        if part is not None
    ]
    assert list(parts_of(ipaddress.ip_network(network))) == expected


def test_an_address_is_from_the_upper_part_until_that_is_full() -> None:
    upper = [f"10.96.0.{number}" for number in range(17, 255)]
    assert texts(decide(ONE)) == ["10.96.0.17"]
    assert texts(decide(ONE, seed=237)) == ["10.96.0.254"]
    assert texts(decide(ONE, seed=237, taken=["10.96.0.254"])) == ["10.96.0.17"]
    assert texts(decide(ONE, taken=upper)) == ["10.96.0.1"]
    lower = [f"10.96.0.{number}" for number in range(1, 17)]
    full = decide(ONE, taken=[*upper, *lower])
    assert full == Decision((), (), "no IPv4 address is free in the ServiceCIDR 10.96.0.0/24", frozenset({"ipv4"}))
    assert texts(decide(ONE, "10.96.0.0/24", "10.97.0.0/24", taken=upper)) == ["10.97.0.17"]


@given(st.integers(0, 2**64 - 1), st.sets(st.integers(1, 14)))
def test_an_address_is_found_if_there_is_a_free_one(seed: int, taken: set[int]) -> None:
    found = decide(ONE, "10.96.0.0/28", seed=seed, taken=[f"10.96.0.{number}" for number in taken])
    assert len(found.ips) == (len(taken) < 14)
    assert not {ip.number & 15 for ip in found.ips} & {*taken, 0, 15}


def test_what_it_has_stays() -> None:
    assert decide(ONE, held=["10.96.0.9"]) == Decision((ip_of("10.96.0.9"),), (), "")
    assert texts(decide(ONE, "10.97.0.0/24", held=["10.96.0.9", "10.96.0.8"])) == ["10.96.0.9"]
    assert decide(ClusterRequest(only_kept=True), held=["10.96.0.9"]) == Decision((ip_of("10.96.0.9"),), (), "")
    assert texts(decide(ONE, held=["10.96.0.9"], room=0)) == ["10.96.0.9"]


def test_it_keeps_what_it_has_until_it_has_what_it_asks_for() -> None:
    found = decide(ClusterRequest(("10.97.0.1",)), held=["10.96.0.9", "10.96.0.8"])
    message = "spec.addresses: 10.97.0.1 is not in the ServiceCIDR 10.96.0.0/24; until then it keeps 10.96.0.9"
    assert found == Decision((ip_of("10.96.0.9"),), (), message, unasked=1)
    assert texts(decide(ClusterRequest(families=("ipv6",)), held=["10.96.0.9"])) == ["10.96.0.9"]


@pytest.mark.parametrize("bad", [(), ("10.97.0.1",)])
def test_it_changes_its_address_where_its_namespace_may_have_no_more(bad: tuple[str, ...]) -> None:
    request = ClusterRequest(("10.96.0.8", *bad))
    found = decide(request, held=["10.96.0.9"], lost=["10.96.0.9"], room=0)
    assert (texts(found), len(found.takes)) == (["10.96.0.8"], 1)
    # The one that goes is still reserved.
    assert texts(decide(request, held=["10.96.0.9", "10.96.0.8"], lost=["10.96.0.9"], room=-1)) == ["10.96.0.8"]
    two = ClusterRequest(("10.96.0.8", "10.96.0.7", *bad))
    assert texts(decide(two, held=["10.96.0.9"], room=0)) == ["10.96.0.8"]
    assert texts(decide(request, held=["10.96.0.9"], lost=["10.96.0.9"], room=-1)) == ["10.96.0.9"]


def test_what_it_lost_it_gets_back_unless_somebody_has_it() -> None:
    back = decide(ONE, lost=["10.96.0.9"])
    assert (texts(back), back.takes) == (["10.96.0.9"], back.ips)
    assert texts(decide(ONE, lost=["10.96.0.9"], taken=["10.96.0.9"])) == ["10.96.0.17"]
    assert texts(decide(ONE, "10.97.0.0/24", lost=["10.96.0.9"])) == ["10.97.0.17"]


def test_families_are_those_that_it_names_or_the_one_of_the_cluster() -> None:
    both = ClusterRequest(families=("ipv6", "ipv4"))
    assert texts(decide(both, "10.96.0.0/24", "fd00:96::/112")) == ["fd00:96::101", "10.96.0.18"]
    assert texts(decide(ONE, "fd00:96::/112")) == ["fd00:96::101"]
    half = decide(both)
    assert (texts(half), half.problem) == (["10.96.0.18"], "no ServiceCIDR has IPv6 addresses")
    assert decide(ONE, "10.96.0.0/32").problem == "no IPv4 address is free in the ServiceCIDR 10.96.0.0/32"
    two = decide(ClusterRequest(families=(None, None)))
    assert texts(two) == ["10.96.0.17", "10.96.0.18"]


def test_without_a_service_cidr_it_says_so() -> None:
    facts = Facts([], lambda _: False, 0, 9, 9)
    assert cluster_ips.decide(ONE, 0, [], [], facts).problem == "no ServiceCIDR has IPv4 addresses"


@pytest.mark.parametrize(
    ("static", "message"),
    [
        ("10.97.0.1", "10.97.0.1 is not in the ServiceCIDR 10.96.0.0/24"),
        ("10.96.0.0", "10.96.0.0 is not in the ServiceCIDR 10.96.0.0/24"),
        ("10.96.0.255", "10.96.0.255 is not in the ServiceCIDR 10.96.0.0/24"),
        ("fd00::1", "fd00::1 is not in a ServiceCIDR"),
        ("10.96.0.01", "'10.96.0.01' is not an IP address"),
        ("10.96.0.10", "10.96.0.10 is the cluster IP of something else (kubectl get ipaddress 10.96.0.10)"),
    ],
)
def test_an_address_that_it_names_and_cannot_have_is_named(static: str, message: str) -> None:
    found = decide(ClusterRequest(("10.96.0.9", static), (None,)), taken=["10.96.0.10"])
    assert texts(found) == ["10.96.0.9", "10.96.0.17"]
    assert found.problem == f"spec.addresses: {message}"


def test_a_namespace_has_so_many() -> None:
    found = decide(ClusterRequest(("10.96.0.9",), (None, None)), room=2)
    assert texts(found) == ["10.96.0.9", "10.96.0.17"]
    message = "the Gateways of the namespace may have 9 cluster IPs, and have them (gateway.namespaceClusterIPs)"
    assert found.problem == message
    assert decide(ClusterRequest(("10.96.0.9",)), room=0).problem == message
    assert decide(ONE, room=0, lost=["10.96.0.9"]).ips == ()
