"""The addresses of pools in the agent table: which there are, and what becomes of those that the kernel refuses."""

import pytest

from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.api.address_ranges import range_of
from tests.builders import farm
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node

CHAIN = "unserved-pools"
POOL, OTHER, SIX = map(range_of, ("192.0.2.0/28", "198.51.100.0/28", "2001:db8::/64"))


async def done(node: Node) -> None:
    await until(lambda: not node.state.has_work)
    await node.passes(1)


async def test_they_come_and_go_without_a_farm_that_has_one(node: Node) -> None:
    await node.program([], 20)
    for ranges in ([POOL], [POOL, SIX], [SIX], []):
        node.state.set_pools(ranges)
        await done(node)
        assert (CHAIN in node.nft.chains) == bool(ranges)
        assert {name for name in node.nft.sets if name.startswith("pool-ranges")} == {
            f"pool-ranges-{'ip6' if each is SIX else 'ip'}" for each in ranges
        }


async def test_nothing_is_programmed_before_they_are_known(node: Node) -> None:
    await node.program([farm("left-over", addresses=[{"ip": "10.96.0.99", "ports": "80"}])], 10)
    await node.restart_agent()
    node.state.pools.wait()
    node.list([farm()], 20)
    await node.passes(3)
    assert list(node.engine.farms) == ["left-over"]
    node.state.set_pools([])
    await node.settle(20)
    assert list(node.engine.farms) == ["web--http"]


async def test_a_restarted_agent_that_waits_for_them_does_not_make_the_table_anew(node: Node) -> None:
    node.state.set_pools([POOL])
    await node.program([farm()], 20)
    await node.passes(3)
    commands = len(node.nft.commands)
    await node.restart_agent()
    node.state.pools.wait()
    node.list([farm()], 21)
    await node.passes(3)
    assert node.loop.progress.watermark == 0
    node.state.set_pools([POOL])
    await node.settle(21)
    await node.passes(3)
    assert node.nft.commands[commands:] == []
    assert CHAIN in node.nft.chains


async def test_those_that_the_kernel_refuses_hurt_nobody_and_are_tried_again_later(node: Node) -> None:
    node.state.set_pools([POOL])
    await node.program([farm()], 20)
    node.nft.lacks = (str(OTHER),)
    node.state.set_pools([POOL, OTHER])
    await done(node)
    assert CHAIN in node.nft.chains, "what was there stays"
    assert list(node.nft.sets["pool-ranges-ip"]) == [str(POOL)]
    commands = len(node.nft.commands)
    await node.change(farm("b--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=21))
    assert set(node.engine.farms) == {"web--http", "b--http"}
    assert len(node.nft.commands) == commands + 1, "no attempt is made with each change"
    node.nft.lacks = ()
    await node.passes(Timing().back_off_s + 10)
    assert str(OTHER) in node.nft.commands[-1]


async def test_a_table_that_is_made_anew_goes_without_those_that_the_kernel_refuses(node: Node) -> None:
    node.nft.lacks = ("@pool-ranges-ip ",)
    node.state.set_pools([POOL])
    await node.program([farm()], 20)
    await node.passes(3)
    assert list(node.engine.farms) == ["web--http"]
    assert CHAIN not in node.nft.chains
    assert node.loop.progress.problems == {}


@pytest.mark.parametrize("engine", ["nftlb", "nftables"])
async def test_an_address_is_among_those_that_are_served_once_an_engine_serves_it(node: Node, engine: str) -> None:
    address = {"type": "LoadBalancer", "ip": "192.0.2.1", "ports": "80", "sourceRanges": ["198.51.100.0/24"]}
    await node.program([], 20)
    commands = len(node.nft.commands)
    await node.change(farm(addresses=[address], engine=engine, version=21))
    before, *_, after = node.nft.commands[commands:]
    assert "source-ranges" in before
    assert "served-addresses-ip { 192.0.2.1 }" not in before
    assert "served-addresses-ip { 192.0.2.1 }" in after
    assert list(node.nft.sets["served-addresses-ip"]) == ["192.0.2.1"]
    node.remove(WEB, 22)
    await node.settle(22)
    assert not node.nft.sets["served-addresses-ip"]
