"""Farms that remember clients, against a real kernel: what they cost others, what is remembered, and for how long."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.metrics.registry import REGISTRIES
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from tests.builders import farm, raw_backend
from tests.contract.affinity_cost import CROWDS, STICKY, Crowd, Stopwatch, apply
from tests.contract.nftables_node import HERE, VIPS, Node, ask, listed, nft, reached, spec
from tests.contract.servers import ENDPOINTS
from tests.processor_time import processor_time

CLIENTS = [f"127.0.1.{number}" for number in range(1, 13)]


def change(name: str, namespace: str = "default", **more: Any) -> FarmChange:
    wanted = node_farm(farm(name, namespace=namespace, **{"engine": "nftables", **more}), HERE, None)
    return FarmChange(wanted.name, wanted)


CROWDED = ["600 ClientIP", "128 ClientIP with 50 endpoints and as many timeouts"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("crowd", CROWDED)
async def test_a_change_costs_the_same_whether_others_remember_clients(
    node: Node, monkeypatch: pytest.MonkeyPatch, crowd: str
) -> None:
    # The thread's own clock stands still while others have the processor.
    watch = Stopwatch(time.thread_time)
    monkeypatch.setattr(NftSocket, "_send", watch.method())
    alone = await watch.bystander_s(node)
    await apply(node, CROWDS[crowd]._replace(options=lambda _: {}).changes())
    plain = await watch.bystander_s(node)
    await apply(node, CROWDS[crowd].changes())
    sticky = await watch.bystander_s(node)
    # There are more chains, by their timeouts. Where each looked up verdicts for all farms, it was 500 times as much.
    assert sticky < 10 * plain, (alone, plain, sticky)
    assert sticky < 100 * alone, (alone, plain, sticky)


@pytest.mark.timeout(240)
async def test_an_agent_adopts_sticky_farms_in_a_time_that_grows_as_their_number(node: Node, tmp_path: Path) -> None:
    seconds: list[float] = []
    for count in (200, 800):
        await apply(node, Crowd(count, lambda _: 5).changes())
        again = await Node.open(tmp_path)
        with processor_time() as taken:
            await again.engine._table.load()  # noqa: SLF001 - the part of it that grows
        seconds.append(taken.seconds)
        assert dict(again.engine.sent) == dict(node.engine.sent)
        assert await again.engine.drift() is None
        again.close()
    # Four times as many; where each looked at all elements, it was 16 times.
    assert seconds[1] < 8 * seconds[0], seconds


async def test_nft_lists_all_rules_and_reads_them_back(node: Node) -> None:
    sessions = [{"client": "127.0.1.9", "backend": "pod-10-244-0-3"}]
    local = {"trafficPolicy": "Local", "mode": "dnat", "masquerade": "AsNeeded"}
    kinds: tuple[dict[str, Any], ...] = (
        {"scheduler": "rr"},
        {"scheduler": "hash", "schedParam": "srcip srcport", "sessions": sessions},
        {"scheduler": "symhash", **local},
        {"scheduler": "weight", "protocol": "UDP"},
    )
    for number, more in enumerate(kinds):
        await node.put(f"web-{number}", spec(VIPS[number], *ENDPOINTS[:3], **STICKY, **more))
    all_ports: dict[str, Any] = {
        "protocol": "All",
        "addresses": [{"ip": "10.96.0.77"}],
        "backends": [{"name": "a", "ip": ENDPOINTS[0]}],
    }
    backends = [raw_backend("a", "fd00:244::2"), raw_backend("b", "fd00:244::3")]
    six: dict[str, Any] = {
        "family": "ipv6",
        "addresses": [{"ip": "fd00:96::a", "ports": "80"}],
        "backends": backends,
    }
    await apply(node, [change("all", **STICKY, **all_ports), change("six", "team-1", **STICKY, **six)])
    before = listed("ruleset")
    assert "affinity-ip6/team-1" in before
    nft("flush ruleset")
    nft(before)
    assert sorted(listed("ruleset").split()) == sorted(before.split())


def web(namespace: str, vip: str, *ips: str, **more: Any) -> FarmChange:
    return change("web", namespace, **spec(vip, *ips, **{"scheduler": "weight", **STICKY, **more}))


def clients(namespace: str) -> list[str]:
    """The clients that a namespace remembers."""
    found = listed(f"map inet {TABLE} affinity-ip/{namespace}").replace("elements = {", "").split(",")
    return [each.split(" . ")[1].split(" ")[0] for each in found if " expires " in each]


async def test_clients_of_a_full_namespace_are_served_and_other_namespaces_do_not_notice(node: Node) -> None:
    await apply(node, [web("flooded", VIPS[0], *ENDPOINTS), web("other", VIPS[1], *ENDPOINTS)])
    first = ask(VIPS[0], source=CLIENTS[0])
    farm_number = layout.NUMBER.pack(layout.farm_number(layout.FARMS_MAX))
    strangers = (
        (farm_number + number.to_bytes(4), messages.value(bytes(4))) for number in range(1, layout.AFFINITY_MAX)
    )
    netfilter = NftSocket.open()
    await netfilter.commit(list(messages.new_elements(TABLE, layout.affinity_map("ip", "flooded"), strangers)))
    netfilter.close()
    assert set(reached(VIPS[0], 5, source=CLIENTS[0])) == {first}, "who is remembered stays so"
    assert len(reached(VIPS[0], 40, source=CLIENTS[1])) > 1, "who is new is served, and not remembered"
    for client in CLIENTS:
        assert len(reached(VIPS[1], 5, source=client)) == 1, "other namespaces remember theirs"
    await node.engine.maintain(busy=False)
    for name in ("kube_nftlb_affinity_clients", "kube_nftlb_affinity_clients_limit"):
        assert REGISTRIES["agent"].get_sample_value(name) == layout.AFFINITY_MAX


async def test_a_farm_that_drains_remembers_its_clients(node: Node, tmp_path: Path) -> None:
    await apply(node, [web("team-1", VIPS[0], *ENDPOINTS)])
    before = {client: ask(VIPS[0], source=client) for client in CLIENTS}
    await apply(node, [web("team-1", VIPS[0], *ENDPOINTS, state="drain")])
    await node.engine.maintain(busy=False)
    assert await node.engine.drift() is None
    # The agent may be restarted meanwhile.
    again = await Node.open(tmp_path)
    await again.engine.maintain(busy=False)
    await apply(again, [web("team-1", VIPS[0], *ENDPOINTS)])
    assert {client: ask(VIPS[0], source=client) for client in CLIENTS} == before
    again.close()


async def test_a_farm_that_was_off_has_forgotten_its_clients(node: Node) -> None:
    # The other farm keeps the map of their namespace.
    await apply(
        node, [web("team-1", VIPS[0], *ENDPOINTS), change("other", "team-1", **spec(VIPS[1], *ENDPOINTS, **STICKY))]
    )
    before = {client: ask(VIPS[0], source=client) for client in CLIENTS}
    await apply(node, [web("team-1", VIPS[0], *ENDPOINTS, state="off")])
    await apply(node, [web("team-1", VIPS[0], *ENDPOINTS)])
    assert {client: ask(VIPS[0], source=client) for client in CLIENTS} != before


async def test_the_listeners_of_a_farm_share_its_clients_and_farms_do_not(node: Node) -> None:
    two = {"addresses": [{"ip": VIPS[0], "ports": "80"}, {"ip": VIPS[1], "ports": "80"}]}
    await apply(
        node, [change("web", **(spec(VIPS[0], *ENDPOINTS, **STICKY) | two)), web("team-1", VIPS[2], *ENDPOINTS)]
    )
    for client in CLIENTS:
        assert ask(VIPS[0], source=client) == ask(VIPS[1], source=client)
        ask(VIPS[2], source=client)
    assert sorted(clients("default")) == sorted(clients("team-1")) == sorted(CLIENTS)


async def test_a_client_is_known_after_a_restart_and_other_endpoints_that_come_and_go(
    node: Node, tmp_path: Path
) -> None:
    await apply(node, [web("team-1", VIPS[0], *ENDPOINTS[:3])])
    first = {client: ask(VIPS[0], source=client) for client in CLIENTS}
    again = await Node.open(tmp_path)
    for ips in (ENDPOINTS, ENDPOINTS[:4], ENDPOINTS[:3]):
        await apply(again, [web("team-1", VIPS[0], *ips)])
        await again.engine.maintain(busy=False)
        assert {client: ask(VIPS[0], source=client) for client in CLIENTS} == first
    gone = first[CLIENTS[0]]
    await apply(again, [web("team-1", VIPS[0], *(ip for ip in ENDPOINTS[:3] if ip != gone))])
    assert gone not in {ask(VIPS[0], source=client) for client in CLIENTS}
    again.close()


async def test_only_new_connections_renew_the_time(node: Node) -> None:
    await apply(node, [web("default", VIPS[0], *ENDPOINTS, persistTTL=3)])
    first = ask(VIPS[0], source=CLIENTS[0])
    for _ in range(4):
        await asyncio.sleep(1.5)
        assert ask(VIPS[0], source=CLIENTS[0]) == first
    await asyncio.sleep(3.2)
    assert clients("default") == []


async def test_the_map_of_a_namespace_goes_with_its_last_farm_that_remembers_clients(node: Node) -> None:
    await apply(node, [web("team-1", VIPS[0], *ENDPOINTS), web("team-2", VIPS[1], *ENDPOINTS)])
    await apply(node, [FarmChange("team-1.web")])
    await node.engine.maintain(busy=False)
    assert "/team-1" not in listed()
    assert "affinity-ip/team-2" in listed()
    await apply(node, [web("team-2", VIPS[1], *ENDPOINTS, persistence="none")])
    await node.engine.maintain(busy=False)
    assert "/team-2" not in listed()
    assert await node.engine.drift() is None


async def test_farms_that_are_restored_keep_their_numbers_and_new_ones_get_others(node: Node, tmp_path: Path) -> None:
    await apply(node, [web(f"team-{number}", VIPS[number], *ENDPOINTS) for number in (0, 1)])
    await node.engine.begin(dict)
    await node.engine.aclose()
    nft(f"delete table inet {TABLE}")
    again = await Node.open(tmp_path)
    await apply(again, [web("team-2", VIPS[2], *ENDPOINTS)])
    numbers = [each.sticky.farm for each in again.engine._table.written.placements.values() if each.sticky]  # noqa: SLF001
    assert len(set(numbers)) == 3
    again.close()


LEAVING = """
table inet seen {
    chain leaving {
        type filter hook postrouting priority 200
        tcp flags syn ip daddr 10.244.0.0/24 meta priority none counter comment "without"
        tcp flags syn ip daddr 10.244.0.0/24 meta priority != none counter comment "with"
    }
}
"""


SOURCE = """
table inet seen {
    chain source { type nat hook postrouting priority 90; ip daddr 10.244.0.0/24 snat ip to 10.244.0.5; }
}
"""
"""As the agent table has it for farms with a source address: packets that it translates meet no further chain."""


@pytest.mark.parametrize("source", ["", SOURCE], ids=["masqueraded", "source address"])
@pytest.mark.parametrize("persistence", ["none", "srcip"])
async def test_a_number_in_the_priority_of_a_packet_does_not_leave_the_node(
    node: Node, persistence: str, source: str
) -> None:
    await apply(node, [web("default", VIPS[0], *ENDPOINTS, persistence=persistence)])
    nft(LEAVING + source)
    for client in CLIENTS:
        ask(VIPS[0], source=client)
    counted = {line.split('"')[1]: line for line in listed("table inet seen").splitlines() if "comment" in line}
    assert f"packets {len(CLIENTS)} " in counted["without"]
    assert "packets 0 " in counted["with"]


async def test_an_agent_forgets_the_chains_and_maps_of_namespaces_that_are_gone(node: Node) -> None:
    await node.put("other", spec(VIPS[1], ENDPOINTS[0]))
    for number in range(3):
        came = web(f"team-{number}", VIPS[0], *ENDPOINTS)
        await apply(node, [came])
        assert await node.engine.drift() is None
        await apply(node, [FarmChange(came.name)])
        await node.engine.maintain(busy=False)
    assert await node.engine.drift() is None
    rules = node.engine._table._rules  # noqa: SLF001 - what stays in memory is what matters
    assert not [name for name in (*rules._chains, *rules._maps) if "team-" in name]  # noqa: SLF001 - as above
