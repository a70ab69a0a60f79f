import ipaddress

import pytest

from kube_nftlb.agent.node.info import NodeFacts, gather
from kube_nftlb.api.kubernetes.node import CoreNode
from tests.builders import raw_node

NODE = CoreNode.model_validate(
    {
        **raw_node(labels={"topology.kubernetes.io/zone": "a"}, podCIDRs=["10.244.1.0/24", "fd00:244:1::/64"]),
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "172.31.0.11"},
                {"type": "InternalIP", "address": "fd00:31::b"},
                {"type": "InternalIP", "address": "not an address"},
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "ExternalIP", "address": "203.0.113.1"},
                {"type": "Hostname", "address": "n1"},
            ]
        },
    }
)
LOCAL = ("127.0.0.1", "172.31.0.11", "10.244.1.1", "203.0.113.1", "::1", "fe80::1", "fd00:31::b", "fd00:244:1::1")


def test_the_primary_addresses_are_the_nodes_internal_ips() -> None:
    assert gather("n1", NODE) == NodeFacts(
        "n1",
        "a",
        {"ipv4": ("172.31.0.11",), "ipv6": ("fd00:31::b",)},
        {"ipv4": ("10.244.1.0/24",), "ipv6": ("fd00:244:1::/64",)},
    )


def test_a_node_that_was_not_seen_has_what_the_settings_say() -> None:
    assert gather("n1", None) == NodeFacts("n1", "", {"ipv4": (), "ipv6": ()}, {"ipv4": (), "ipv6": ()})
    pod_cidrs, ranges = ([ipaddress.ip_network(text)] for text in ("10.0.0.0/8", "172.31.0.0/16"))
    facts = gather("n1", None, pod_cidrs=pod_cidrs, port_ranges=ranges, local_ips=["172.31.0.11", "192.0.2.1"])
    assert facts == NodeFacts("n1", "", {"ipv4": ("172.31.0.11",), "ipv6": ()}, {"ipv4": ("10.0.0.0/8",), "ipv6": ()})


@pytest.mark.parametrize(
    ("ranges", "ipv4", "ipv6"),
    [
        ("172.31.0.0/16 fd00:31::/64", ("172.31.0.11",), ("fd00:31::b",)),
        ("203.0.113.0/24", ("203.0.113.1",), ("fd00:31::b", "fd00:244:1::1")),
        ("192.0.2.0/24", (), ("fd00:31::b", "fd00:244:1::1")),
        ("fd00:31::/64", ("172.31.0.11", "10.244.1.1", "203.0.113.1"), ("fd00:31::b",)),
    ],
)
def test_node_ports_are_at_the_addresses_in_the_ranges(
    ranges: str, ipv4: tuple[str, ...], ipv6: tuple[str, ...]
) -> None:
    networks = [ipaddress.ip_network(text) for text in ranges.split()]
    facts = gather("n1", NODE, port_ranges=networks, local_ips=LOCAL)
    assert facts.port_ips == {"ipv4": ipv4, "ipv6": ipv6}


def test_pod_ranges_that_are_set_take_the_place_of_the_nodes() -> None:
    facts = gather("n1", NODE, pod_cidrs=[ipaddress.ip_network("10.0.0.0/8")])
    assert facts.pod_cidrs == {"ipv4": ("10.0.0.0/8",), "ipv6": ()}
