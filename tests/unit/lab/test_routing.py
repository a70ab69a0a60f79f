"""The routers of a lab: their addresses, and the configuration of FRR."""

import pytest

from kube_nftlb import errors
from lab import addresses
from lab.routing import plan


def test_addresses_of_routers_are_nobody_elses() -> None:
    routers = plan.plan_routers(plan.MAX_ROUTERS)
    taken = [address.ip for router in routers for address in (*router.inside, *router.outside)]
    taken += [address.ip for address in (*plan.CLIENT_OUTSIDE, *plan.SWITCH_OUTSIDE)]
    taken += [address.ip for node in addresses.plan_nodes(addresses.MAX_NODES) for address in node.addresses]
    taken += [address.ip for address in (*addresses.GATEWAY, *addresses.CLIENT)]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("count", [-1, plan.MAX_ROUTERS + 1])
def test_unsupported_numbers_of_routers_are_refused(count: int) -> None:
    with pytest.raises(errors.LabError, match="up to 4 routers"):
        plan.plan_routers(count)


def test_a_router_has_each_node_in_both_families_as_a_neighbor_and_the_first_a_password() -> None:
    first, second = plan.plan_routers(2)
    nodes = addresses.plan_nodes(2)
    text = plan.files(first, nodes)["bgpd.conf"]
    four, six = text.split("address-family ipv6")
    for node in nodes:
        own = [str(address.ip) for address in node.addresses]
        assert f"neighbor {own[0]} activate" in four
        assert f"neighbor {own[1]} activate" in six
        assert f"neighbor {own[1]} password lab" in text
    assert "password" not in plan.files(second, nodes)["bgpd.conf"]


def test_the_third_router_is_of_the_nodes_own_as() -> None:
    began = [plan.files(router, [])["bgpd.conf"].split("\n")[0] for router in plan.plan_routers(3)]
    assert began == ["router bgp 65000", "router bgp 65000", "router bgp 65001"]
