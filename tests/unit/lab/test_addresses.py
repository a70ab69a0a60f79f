import pytest

from kube_nftlb import errors
from lab import addresses


def test_node_addresses_follow_its_number() -> None:
    node = addresses.plan_nodes(2)[1]
    assert node.name == "node-2"
    assert [str(address) for address in node.addresses] == ["172.31.0.12/22", "fd00:31::c/64"]
    assert [str(cidr) for cidr in node.pod_cidrs] == ["10.244.2.0/24", "fd00:244:2::/64"]
    assert [str(address) for address in node.gateway] == ["10.244.2.1/24", "fd00:244:2::1/64"]
    assert [str(address) for address in node.pod_interfaces(17)] == ["10.244.2.17/24", "fd00:244:2::11/64"]
    assert node.pod_host("10.244.2.17") == 17


def test_zones_are_assigned_round_robin() -> None:
    assert [node.zone for node in addresses.plan_nodes(3, ["a", "b"])] == ["a", "b", "a"]
    assert [node.zone for node in addresses.plan_nodes(2)] == [None, None]


def test_addresses_are_unique() -> None:
    nodes = addresses.plan_nodes(addresses.MAX_NODES)
    taken = [address.ip for node in nodes for address in (*node.addresses, *node.gateway)]
    taken += [address.ip for address in (*addresses.GATEWAY, *addresses.CLIENT)]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("count", [0, addresses.MAX_NODES + 1])
def test_unsupported_node_counts_are_refused(count: int) -> None:
    with pytest.raises(errors.LabError, match="1 to 100 nodes"):
        addresses.plan_nodes(count)


def test_released_addresses_are_reused_last() -> None:
    assert addresses.next_pod_host(set(), last=1) == 2
    assert addresses.next_pod_host(set(), last=7) == 8
    assert addresses.next_pod_host({2, 3}, last=254) == 4


def test_a_full_node_has_no_free_address() -> None:
    assert addresses.next_pod_host(set(range(2, 255)), last=100) is None
    assert addresses.next_pod_host(set(range(2, 255)) - {100}, last=100) == 100
