"""The addresses of a Service for clients outside the cluster."""

import ipaddress
from typing import Any

import pytest

from kube_nftlb.api.farm import ADDRESSES_MAX, SOURCE_RANGES_MAX, FarmSpec
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.farms.builder import Profile, build
from tests import builders

DUAL: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00:96::a"]}
PORT = [{"name": "http", "port": 80, "nodePort": 30080}]
INNER = ("ClusterIP", "10.96.0.10", "80")
NODE_PORT = ("NodePort", "", "30080")


def service(ingress: list[dict[str, str]] | None = None, **spec: Any) -> Service:
    return builders.service(status={"loadBalancer": {"ingress": ingress}} if ingress else {}, **spec)


def farms(asked: Service, profile: Profile = Profile()) -> dict[str, list[tuple[str, str, str]]]:  # noqa: B008
    return {
        wanted.port.plain_name: [(entry["type"], entry["ip"], entry["ports"]) for entry in wanted.spec["addresses"]]
        for wanted in build(asked, profile=profile).farms
    }


@pytest.mark.parametrize(
    ("asked", "listened"),
    [
        pytest.param(service(), [INNER], id="a cluster IP alone"),
        pytest.param(service(type="NodePort", ports=PORT), [INNER, NODE_PORT], id="node ports beside the cluster IP"),
        pytest.param(service(type="ClusterIP", ports=PORT), [INNER], id="a node port left from another type is none"),
        pytest.param(
            service(type="LoadBalancer", ports=[{"name": "http", "port": 80}]), [INNER], id="no node ports allocated"
        ),
        pytest.param(
            service([{"ip": "198.51.100.7"}, {"hostname": "lb.example"}], type="LoadBalancer", ports=PORT),
            [INNER, ("LoadBalancer", "198.51.100.7", "80"), NODE_PORT],
            id="a load balancer's IP",
        ),
        pytest.param(
            service([{"ip": "198.51.100.7", "ipMode": "Proxy"}], type="LoadBalancer", ports=PORT),
            [INNER, NODE_PORT],
            id="one that the balancer wants to itself",
        ),
        pytest.param(
            service([{"ip": "198.051.100.007"}, {"ip": "::ffff:192.0.2.1"}], type="LoadBalancer", ports=PORT),
            [INNER, ("LoadBalancer", "198.51.100.7", "80"), ("LoadBalancer", "192.0.2.1", "80"), NODE_PORT],
            id="IPs with leading zeros, or within an IPv6 address",
        ),
        pytest.param(service([{"ip": "198.51.100.7"}], ports=PORT), [INNER], id="a status left from another type"),
        pytest.param(
            service(
                externalIPs=["203.0.113.9", " ", "fd00::9", "203.0.113.9", "10.96.0.10"], sessionAffinity="ClientIP"
            ),
            [INNER, ("ExternalIP", "203.0.113.9", "80")],
            id="external IPs of the family, each once; sessions hold for all addresses",
        ),
    ],
)
def test_what_a_service_listens_on(asked: Service, listened: list[tuple[str, str, str]]) -> None:
    assert farms(asked) == {"web--http": listened}


def test_external_addresses_with_their_own_policy_have_their_own_farm() -> None:
    asked = service(type="NodePort", ports=PORT, externalTrafficPolicy="Local", **DUAL)
    assert farms(asked) == {
        "web--http": [INNER],
        "web--http--external": [NODE_PORT],
        "web--http--ipv6": [("ClusterIP", "fd00:96::a", "80")],
        "web--http--ipv6--external": [NODE_PORT],
    }
    policies = {w.port.plain_name: w.spec["trafficPolicy"] for w in build(asked).farms}
    assert policies["web--http"] == "Cluster"
    assert policies["web--http--external"] == "Local"


def test_sessions_across_nodes_do_not_count_if_the_policy_is_local() -> None:
    asked = service(type="NodePort", ports=PORT, externalTrafficPolicy="Local", internalTrafficPolicy="Local")
    assert farms(asked) == {"web--http": [INNER], "web--http--external": [NODE_PORT]}


def test_external_ips_are_in_the_farm_of_the_cluster_ip() -> None:
    asked = service(type="NodePort", ports=PORT, externalIPs=["203.0.113.9"])
    assert farms(asked) == {"web--http": [INNER, ("ExternalIP", "203.0.113.9", "80"), NODE_PORT]}


@pytest.mark.parametrize("ip", ["203.0.113.9", "127.0.0.1", "169.254.169.254", "x; flush ruleset"])
def test_an_external_ip_outside_the_allowed_ranges_is_refused(ip: str) -> None:
    profile = Profile(external_ips=(ipaddress.ip_network("192.0.2.0/24"),))
    built = build(service(externalIPs=[ip, "192.0.2.1"]), profile=profile)
    assert [entry["ip"] for farm in built.farms for entry in farm.spec["addresses"]] == ["10.96.0.10", "192.0.2.1"]
    (problem,) = built.problems
    assert problem.reason == "ExternalIPRefused"
    assert ip in problem.message


def test_an_address_of_the_cluster_is_refused_and_the_message_says_what_it_is() -> None:
    node = "it is an address of the node n1"
    objection = {"192.0.2.1": node, "2001:db8::1": node}.get
    asked = service(
        [{"ip": "192.0.2.2"}],
        type="LoadBalancer",
        externalIPs=["192.0.2.1", "2001:DB8:0::1", "192.0.2.2", "10.96.0.10", "203.0.113.9"],
    )
    built = build(asked, objection=lambda ip: node if ip in ("192.0.2.2", "10.96.0.10") else objection(ip))
    (farm,) = built.farms
    assert [(entry["type"], entry["ip"]) for entry in farm.spec["addresses"]] == [
        ("ClusterIP", "10.96.0.10"),
        ("LoadBalancer", "192.0.2.2"),
        ("ExternalIP", "203.0.113.9"),
    ]
    assert [(problem.reason, problem.message) for problem in built.problems] == [
        ("ExternalIPRefused", f"spec.externalIPs: {text!r} is not served: {node}")
        for text in ("192.0.2.1", "2001:DB8:0::1")
    ]


@pytest.mark.parametrize("ip", ["169.254.1.1", "bogus", "fe80::1%eth0"])
def test_a_load_balancers_ip_that_no_node_can_serve_is_told(ip: str) -> None:
    asked = service([{"ip": ip}, {"ip": "198.51.100.7"}], type="LoadBalancer", ports=PORT)
    assert farms(asked) == {"web--http": [INNER, ("LoadBalancer", "198.51.100.7", "80"), NODE_PORT]}
    (problem,) = build(asked).problems
    assert (problem.reason, problem.message) == (
        "ExternalIPRefused",
        f"status.loadBalancer: {ip!r} is not served: no node can serve it",
    )


def test_external_ips_can_be_switched_off() -> None:
    built = build(service(externalIPs=["203.0.113.9"]), profile=Profile(external_ips=None))
    assert [entry["ip"] for entry in built.farms[0].spec["addresses"]] == ["10.96.0.10"]
    (problem,) = built.problems
    assert problem.message.startswith("spec.externalIPs: '203.0.113.9' is not served: the administrator has switched")


def test_of_many_refused_addresses_the_first_are_named() -> None:
    ips = [f"203.0.113.{number}" for number in range(1, 11)]
    built = build(service(externalIPs=ips), objection=lambda _: "no")
    assert len(built.problems) == 6
    assert built.problems[-1].message == "spec.externalIPs: '203.0.113.6' is not served: no (and 4 more addresses)"
    assert [each.message[-2:] for each in build(service(externalIPs=ips[:6]), objection=lambda _: "no").problems] == [
        "no"
    ] * 6


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ([], []),
        (["10.0.0.0/8", " 192.168.0.1/16 "], ["10.0.0.0/8", "192.168.0.0/16"]),
        (["10.0.0.0/8", "0.0.0.0/0"], []),
        (["fd00::/8"], []),
        (["nonsense", "10.0.0.0/8"], ["10.0.0.0/8"]),
        (["10.0.0.0/9", "10.128.0.0/9", "10.7.0.0/16"], ["10.0.0.0/8"]),
        (["0.0.0.0/1", "128.0.0.0/1"], []),
        (["010.0.0.0/8", "192.168.000.0/16"], ["10.0.0.0/8", "192.168.0.0/16"]),
        (["nonsense"], ["0.0.0.0/32"]),
    ],
)
def test_source_ranges_are_for_the_load_balancers_address(ranges: list[str], kept: list[str]) -> None:
    asked = service(
        [{"ip": "198.51.100.7"}], type="LoadBalancer", externalIPs=["203.0.113.9"], loadBalancerSourceRanges=ranges
    )
    addresses = [entry for farm in build(asked).farms for entry in farm.spec["addresses"]]
    guarded = {entry["ip"]: entry.get("sourceRanges", []) for entry in addresses}
    assert guarded == {"10.96.0.10": [], "198.51.100.7": kept, "203.0.113.9": []}


def test_of_tens_of_thousands_of_source_ranges_only_the_first_are_read() -> None:
    ranges = ["10.0.0.0/8"] * (4 * SOURCE_RANGES_MAX) + ["192.0.2.0/24"] * 70_000
    built = build(service([{"ip": "203.0.113.7"}], type="LoadBalancer", loadBalancerSourceRanges=ranges))
    (problem,) = built.problems
    assert problem.reason == "TooManySourceRanges"
    assert "192.0.2.0/24 and later ones are not admitted" in problem.message
    assert built.farms[0].spec["addresses"][1]["sourceRanges"] == ["10.0.0.0/8"]


def test_a_family_of_which_no_range_was_read_is_not_open() -> None:
    ranges = ["10.0.0.0/8"] * (4 * SOURCE_RANGES_MAX) + ["fd00::/8"]
    dual: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00:96::10"], "loadBalancerSourceRanges": ranges}
    built = build(service([{"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}], type="LoadBalancer", **dual))
    guarded = {each["ip"]: each.get("sourceRanges") for farm in built.farms for each in farm.spec["addresses"]}
    assert (guarded["203.0.113.7"], guarded["2001:db8::7"]) == (["10.0.0.0/8"], ["::/128"])


def test_a_source_range_that_is_not_understood_is_told_and_opens_nothing() -> None:
    asked = service([{"ip": "203.0.113.7"}], type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0/33", "fd00::/8"])
    built = build(asked)
    assert [(each.reason, "'10.0.0.0/33'" in each.message) for each in built.problems] == [("InvalidSourceRange", True)]
    assert built.farms[0].spec["addresses"][1]["sourceRanges"] == ["0.0.0.0/32"]


@pytest.mark.parametrize(
    "text", ["::ffff:10.0.0.0/104", "::ffff:a00:1/112", "::ffff:10.0.0.0/64", "fe80::1%eth0/64", "fe80::%eth0/64"]
)
def test_a_source_range_with_a_zone_or_an_ipv4_address_within_an_ipv6_address_opens_no_family(text: str) -> None:
    dual: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00:96::10"], "loadBalancerSourceRanges": [text]}
    built = build(service([{"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}], type="LoadBalancer", **dual))
    assert [(each.reason, repr(text) in each.message) for each in built.problems] == [("InvalidSourceRange", True)]
    guarded = {each["ip"]: each.get("sourceRanges") for farm in built.farms for each in farm.spec["addresses"]}
    assert (guarded["203.0.113.7"], guarded["2001:db8::7"]) == (["0.0.0.0/32"], ["::/128"])


def test_source_ranges_past_the_most_are_told() -> None:
    ranges = [f"10.{number}.0.0/17" for number in range(SOURCE_RANGES_MAX - 1)]
    asked = [*ranges, "192.0.2.0/25", "198.51.100.0/25"]
    most, over = (
        build(service([{"ip": "203.0.113.7"}], type="LoadBalancer", loadBalancerSourceRanges=some))
        for some in (asked[:-1], asked)
    )
    assert most.problems == ()
    (problem,) = over.problems
    assert problem.reason == "TooManySourceRanges"
    assert "198.51.100.0/25" in problem.message
    assert len(over.farms[0].spec["addresses"][1]["sourceRanges"]) == SOURCE_RANGES_MAX


def test_addresses_past_the_most_are_told_and_the_rest_is_served() -> None:
    ips = [f"203.0.113.{number}" for number in range(1, 41)]
    built = build(service(type="NodePort", ports=PORT, externalIPs=ips, sessionAffinity="ClientIP"))
    spec = FarmSpec.model_validate(built.farms[0].spec)
    assert len(spec.addresses) == ADDRESSES_MAX
    assert [spec.addresses[0].type, spec.addresses[-1].type] == ["ClusterIP", "NodePort"]
    (problem,) = built.problems
    assert (problem.reason, "203.0.113.31" in problem.message) == ("TooManyAddresses", True)


def test_addresses_with_many_ports_are_fewer() -> None:
    ips = [f"203.0.113.{number}" for number in range(1, 10)]
    built = build(service(externalIPs=ips, annotations={"ports": "1-1024"}))
    spec = FarmSpec.model_validate(built.farms[0].spec)
    assert [address.ip for address in spec.addresses] == ["10.96.0.10", *ips[:3]]
    assert [problem.reason for problem in built.problems] == ["TooManyAddresses"]


def test_the_profile_decides_the_mode_of_who_asks_for_none() -> None:
    modes = {
        mode: build(service(annotations=asked), profile=Profile(mode="dnat")).farms[0].spec["mode"]
        for mode, asked in (("dnat", {}), ("snat", {"mode": "snat"}))
    }
    assert modes == {"dnat": "dnat", "snat": "snat"}
