"""Whatever one rule, chain, set or element of our tables becomes, it is found and mended."""

import time
from collections.abc import Awaitable, Callable, Mapping

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables.layout import TABLE as SERVICES
from kube_nftlb.agent.table import farm_options
from kube_nftlb.agent.table.base import environment, pool_ranges
from kube_nftlb.agent.table.layout import ENVIRONMENT, POOLS
from kube_nftlb.agent.table.layout import TABLE as AGENT
from kube_nftlb.agent.table.verify import TableVerifier
from kube_nftlb.api.address_ranges import range_of
from kube_nftlb.api.base import Family
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.readback import RulesetReader
from tests.contract.damage import damages
from tests.contract.nftables_node import LIMITED, VIPS, Node, listed, made_of, spec
from tests.contract.servers import ENDPOINTS
from tests.contract.test_groups import grouped

pytestmark = pytest.mark.timeout(600)

WITHIN_S = 10
"""For one damage, on a busy machine; otherwise a tenth of a second is enough."""
PODS: Mapping[Family, list[str]] = {"ipv4": ["10.244.0.0/24"]}
FARMS = {
    "plain": spec(VIPS[0], *ENDPOINTS[:3]),
    "hashed": spec("10.96.0.11", *ENDPOINTS[:2], scheduler="hash", schedParam="srcip srcport"),
    "sticky": spec("10.96.0.12", *ENDPOINTS[:2], persistence="srcip", scheduler="weight"),
    "fixed": spec(
        "10.96.0.13",
        *ENDPOINTS[:2],
        persistence="srcip",
        sessions=[{"client": "127.0.1.9", "backend": "pod-10-244-0-1"}],
    ),
    "local": spec("10.96.0.14", ENDPOINTS[0], trafficPolicy="Local", mode="dnat", masquerade="AsNeeded"),
    "refusing": spec("10.96.0.15"),
    "limited": spec(VIPS[1], ENDPOINTS[0], limits={"new": "5/second", "established": 9}) | {"addresses": [LIMITED]},
    "cut": spec("10.96.0.16", ENDPOINTS[0], onGone="cut"),
    "grouped": grouped("10.96.0.17", groups={"a": (2, ENDPOINTS[:2]), "b": (1, ENDPOINTS[2:3]), "nobody": (1, [])}),
    "grouped-sticky": grouped("10.96.0.18", groups={"a": (2, ENDPOINTS[:2]), "b": (1, [])}, persistence="srcip"),
    "six": {
        "addresses": [{"ip": "fd00::10", "ports": "80"}],
        "family": "ipv6",
        "backends": [{"name": "six", "ip": "fd00:1::1", "port": 8080}],
        "engine": "nftables",
    },
}


POOL = ("192.0.2.0/28", "192.0.2.32-192.0.2.40", "2001:db8::/112", "2001:db8::1:0-2001:db8::1:9")


@pytest.fixture
async def node(node: Node) -> Node:
    for name, wanted in FARMS.items():
        await node.put(name, wanted)
        options = farm_options.contents(
            made_of(name, wanted).spec, name, [Listener(wanted["addresses"][0]["ip"], "TCP", 80)]
        )
        await node.table.update({name: node.table.owned(name) | options})
    await node.table.update({ENVIRONMENT: environment(PODS, {"ipv4": ["10.96.0.0/16"], "ipv6": ["fd00::/108"]})})
    await node.table.update({POOLS: pool_ranges([*map(range_of, POOL)])})
    return node


async def each_is_mended(
    table: str, drift: Callable[[], Awaitable[str | None]], repair: Callable[[], Awaitable[object]]
) -> None:
    netfilter, kernel = NftSocket.open(), NetfilterSocket.open()
    before = await read_sorted(table)
    assert await drift() is None
    todo, impossible, unseen, slow = await damages(kernel, table), [], [], []
    done = set[str]()
    for number in range(len(todo)):
        # The handles of rules change as they are mended.
        damage = (await damages(kernel, table))[number] if "rule" in todo[number].what else todo[number]
        try:
            await netfilter.commit(damage.messages)
        except errors.KernelError as error:
            impossible.append((damage.what, str(error)))
            continue
        done.add(damage.what)
        began = time.monotonic()
        if await drift() is None:
            unseen.append(damage.what)
        await repair()
        if await drift() is not None:
            unseen.append(f"{damage.what}: is not mended")
        if time.monotonic() - began > WITHIN_S:
            slow.append((damage.what, time.monotonic() - began))
    netfilter.close()
    kernel.close()
    assert unseen == []
    assert slow == []
    assert impossible == []
    assert len(done) > 60
    assert any("the range from" in each for each in done)
    assert await read_sorted(table) == before


async def read_sorted(table: str) -> list[str]:
    return sorted(line for line in listed(f"table inet {table}").split() if not line.startswith("expires"))


@pytest.mark.long
async def test_every_damage_of_the_table_of_services_is_mended(node: Node) -> None:
    await each_is_mended(SERVICES, node.engine.drift, node.engine.repair)


async def test_every_damage_of_the_agent_table_is_mended(node: Node) -> None:
    reader = RulesetReader.open()
    await each_is_mended(AGENT, TableVerifier(node.table, reader).drift, node.table.create)
    reader.close()
