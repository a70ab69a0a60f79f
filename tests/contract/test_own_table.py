"""The agent's own table: the kernel takes what we say, and has what we think it has."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from kube_nftlb.agent.conntrack import Conntrack
from kube_nftlb.agent.engine import NftlbEngine
from kube_nftlb.agent.nft import Nft
from kube_nftlb.agent.nftables import Chain, Contents, Element, NamedSet
from kube_nftlb.agent.own_table import REFUSE, TABLE, VERDICTS, OwnTable, listener
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.kernel import Kernel
from kube_nftlb.nftlb.objects import Claim


class Node:
    """The table, and a look at the kernel."""

    def __init__(self, table: OwnTable, engine: NftlbEngine, nft: Nft) -> None:
        self.table, self.engine, self.nft = table, engine, nft

    async def fault(self) -> str:
        return await self.engine.own_table_fault(TABLE, self.table.state)

    async def give(self, owners: Mapping[str, Contents]) -> None:
        await self.table.update(owners)
        assert await self.fault() == ""


@pytest.fixture
async def node(private_network: None, run_dir: Path) -> AsyncIterator[Node]:  # noqa: ARG001 - a fixture is asked for by name
    nft, kernel, conntrack = Nft.open(), await Kernel.open(), await Conntrack.open()
    client = NftlbClient("http://127.0.0.1:1", run_dir / "nftlb.key")
    node = Node(OwnTable(nft), NftlbEngine(client, kernel, conntrack, nft, run_dir / "nftlb.json"), nft)
    assert await node.fault() != ""
    await node.table.create()
    assert await node.fault() == ""
    yield node
    await nft.run("flush ruleset")
    await client.close()
    kernel.close()
    conntrack.close()


def refusing(*ips: str) -> Contents:
    return Contents(frozenset(listener(Claim(ip, "tcp", 80), REFUSE) for ip in ips))


def guarded(name: str, *ranges: str, rule: str = "drop") -> Contents:
    allowed = NamedSet(f"set-{name}", "type ipv4_addr; flags interval; auto-merge;", ranges)
    chain = Chain(f"guard-{name}", (f"ip saddr @set-{name} return", rule))
    element = Element(f"{VERDICTS}-ip", "tcp . 10.96.0.9 . 80", f"goto guard-{name}")
    return Contents(frozenset({element}), (chain,), (allowed,))


async def test_owners_come_change_and_go(node: Node) -> None:
    await node.give({"a": refusing("10.96.0.1", "fd00::1"), "b": guarded("b", "10.0.0.0/8", "10.1.0.0/16")})
    await node.give({"a": refusing("10.96.0.2")})
    await node.give({"b": guarded("b", "192.168.0.0/16", "172.16.0.1")})
    await node.give({"b": guarded("b", rule="accept")})
    await node.give({"b": guarded("c")})
    await node.give({"a": Contents(), "b": Contents()})


async def test_an_element_goes_from_one_owner_to_another_in_either_order(node: Node) -> None:
    await node.give({"a": refusing("10.96.0.1")})
    await node.give({"b": refusing("10.96.0.1")})
    await node.give({"a": Contents()})
    await node.give({"a": refusing("10.96.0.1"), "b": Contents()})
    await node.give({"a": guarded("a"), "b": refusing("10.96.0.1")})


@pytest.mark.parametrize(
    "damage",
    [
        f"delete table inet {TABLE}",
        f"flush chain inet {TABLE} prerouting",
        f"flush map inet {TABLE} {VERDICTS}-ip",
        f"flush chain inet {TABLE} guard-b",
        f"flush set inet {TABLE} set-b",
    ],
)
async def test_damage_is_seen_and_mended(node: Node, damage: str) -> None:
    owners = {"a": refusing("10.96.0.1"), "b": guarded("b", "10.0.0.0/8")}
    await node.give(owners)
    await node.nft.run(damage)
    assert await node.fault() != ""
    await node.table.create()
    assert await node.fault() == ""


async def test_a_change_of_a_table_that_somebody_removed_makes_it_whole(node: Node) -> None:
    await node.give({"a": refusing("10.96.0.1")})
    await node.nft.run(f"delete table inet {TABLE}")
    await node.give({"b": refusing("10.96.0.2")})
