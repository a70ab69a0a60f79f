"""Groups with weights in the engine nftables, against a real kernel: who gets which share, and what a change costs."""

import re
import socket
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.notifications import Notifications
from tests.builders import Grouped, endpoint
from tests.chance import is_likely
from tests.contract.nftables_node import VIPS, Node, ask, listed, reached
from tests.contract.servers import ENDPOINTS

CONNECTIONS = 3000
CLIENTS = [f"127.0.{number // 250 + 1}.{number % 250 + 1}" for number in range(600)]

SENT_AGAIN_S = 0.9
patient = partial(ask, timeout_s=5)
"""A SYN from a port that an old connection had is sent again after a second."""


def grouped(vip: str = VIPS[0], *, groups: dict[str, tuple[int, list[str]]], **more: Any) -> dict[str, Any]:
    return {
        "addresses": [{"ip": vip, "ports": "80"}],
        "engine": "nftables",
        "groups": {name: Grouped(weight, ips) for name, (weight, ips) in groups.items()},
        **more,
    }


THREE = {"a": (60, ENDPOINTS[:2]), "b": (15, ENDPOINTS[2:5]), "nobody": (25, []), "none": (0, ENDPOINTS[:1])}


def by_group(answers: Iterable[str], groups: dict[str, tuple[int, list[str]]]) -> Counter[str]:
    of = {ip: name for name, (weight, ips) in groups.items() if weight for ip in ips}
    return Counter(of.get(answer, answer) for answer in answers)


def assert_shares(found: Counter[str], shares: dict[str, float]) -> None:
    assert found.keys() == shares.keys()
    assert all(is_likely(found[name], found.total(), share) for name, share in shares.items()), found


@pytest.mark.parametrize("scheduler", ["rr", "weight"])
async def test_each_group_gets_its_share_and_that_of_an_empty_one_is_refused(node: Node, scheduler: str) -> None:
    await node.put("web", grouped(groups=THREE, scheduler=scheduler))
    found, sent_again = Counter[str](), 0
    for _ in range(CONNECTIONS):
        began = time.monotonic()
        found[patient(VIPS[0])] += 1
        sent_again += time.monotonic() - began > SENT_AGAIN_S
    assert_shares(by_group(found.elements(), THREE), {"a": 0.6, "b": 0.15, "refused": 0.25})
    for ips in (ENDPOINTS[:2], ENDPOINTS[2:5]):
        counts = [found[ip] for ip in ips]
        # A SYN that is sent again takes another turn.
        assert max(counts) - min(counts) <= (1 + sent_again if scheduler == "rr" else 0.4 * sum(counts)), found


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"scheduler": "hash", "schedParam": "srcip"}, id="hash"),
        pytest.param({"scheduler": "hash", "schedParam": "srcip", "persistence": "srcip"}, id="hash and persistence"),
        pytest.param({"scheduler": "weight", "persistence": "srcip"}, id="persistence"),
    ],
)
async def test_a_client_stays_in_its_group_whatever_endpoints_do(node: Node, more: dict[str, Any]) -> None:
    await node.put("web", grouped(groups=THREE, **more))
    before = {client: patient(VIPS[0], source=client) for client in CLIENTS}
    assert {client: patient(VIPS[0], source=client) for client in CLIENTS[:60]} == {
        client: before[client] for client in CLIENTS[:60]
    }
    assert_shares(by_group(before.values(), THREE), {"a": 0.6, "b": 0.15, "refused": 0.25})
    assert set(before.values()) == {*ENDPOINTS, "refused"}, "the endpoint does not follow from the group"
    fewer = {**THREE, "b": (15, ENDPOINTS[2:4])}
    await node.put("web", grouped(groups=fewer, **more))
    after = {client: patient(VIPS[0], source=client) for client in CLIENTS}
    for client, answer in before.items():
        assert by_group([answer], THREE) == by_group([after[client]], fewer)
        if answer not in ENDPOINTS[2:5] or ("persistence" in more and answer != ENDPOINTS[4]):
            assert after[client] == answer


async def test_a_symmetric_hash_draws_a_group_that_does_not_choose_the_endpoint(node: Node) -> None:
    await node.put("web", grouped(groups=THREE, scheduler="symhash"))
    found = Counter(patient(VIPS[0], source=client) for client in CLIENTS)
    assert_shares(by_group(found.elements(), THREE), {"a": 0.6, "b": 0.15, "refused": 0.25})
    assert found.keys() == {*ENDPOINTS, "refused"}


async def test_the_share_of_an_empty_group_of_udp_is_dropped(node: Node) -> None:
    await node.put("dns", grouped(groups={"a": (1, []), "b": (1, ENDPOINTS[:1])}, protocol="UDP"))
    outcomes = Counter[str]()
    for _ in range(60):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect((VIPS[0], 80))
            client.settimeout(1)
            try:
                client.send(b"x")
                client.recv(9)
            except PermissionError:
                # So the kernel tells a process of the node itself that its packet was dropped.
                outcomes["dropped"] += 1
            except ConnectionRefusedError:
                # Nobody listens to UDP on the endpoint: it was sent there.
                outcomes["sent"] += 1
    assert_shares(outcomes, {"dropped": 0.5, "sent": 0.5})


async def test_a_port_of_all_protocols_and_clients_of_the_node_have_groups_too(node: Node) -> None:
    here, there = (endpoint(ip, node=name) for ip, name in zip(ENDPOINTS, ("here", "there"), strict=False))
    groups: dict[str, tuple[int, list[Any]]] = {"a": (1, [here]), "b": (1, [there]), "nobody": (2, [])}
    external = {"addresses": [{"type": "ExternalIP", "ip": VIPS[0], "ports": "80"}], "trafficPolicy": "Local"}
    await node.put("web", grouped(groups=groups) | external)
    # The client is the node itself, for which every endpoint is good.
    assert_shares(reached(VIPS[0], 400), {ENDPOINTS[0]: 0.25, ENDPOINTS[1]: 0.25, "refused": 0.5})
    await node.put("web", grouped(groups=groups, persistence="srcip") | external)
    found = Counter(patient(VIPS[0], source=client) for client in CLIENTS)
    assert_shares(found, {ENDPOINTS[0]: 0.25, ENDPOINTS[1]: 0.25, "refused": 0.5})
    inside = {"addresses": [{"ip": VIPS[0], "ports": "80"}], "trafficPolicy": "Local"}
    await node.put("web", grouped(groups=groups) | inside)
    assert ask(VIPS[0]) in (ENDPOINTS[0], "refused", "nothing")
    assert reached(VIPS[0], 12).keys() <= {ENDPOINTS[0], "refused", "nothing"}


async def test_weights_change_without_a_connection_that_fails(node: Node) -> None:
    first, second = (
        {"a": (100, ENDPOINTS[:2]), "b": (0, ENDPOINTS[2:4])},
        {"a": (0, ENDPOINTS[:2]), "b": (100, ENDPOINTS[2:4])},
    )
    both = {"a": (50, ENDPOINTS[:2]), "b": (50, ENDPOINTS[2:4])}
    for groups, expected in ((first, {"a"}), (both, {"a", "b"}), (second, {"b"}), (both, {"a", "b"}), (first, {"a"})):
        await node.put("web", grouped(groups=groups))
        assert by_group((ask(VIPS[0]) for _ in range(60)), both).keys() == expected


async def test_a_farm_with_one_group_is_as_one_without_weights(node: Node) -> None:
    await node.put("web", grouped(groups={"a": (7, ENDPOINTS[:3])}))
    plain = listed()
    await node.put("web", grouped(groups={"a": (1, ENDPOINTS[:3]), "b": (0, ENDPOINTS[3:])}))
    assert listed() == plain
    assert "draw-" not in plain
    assert not re.search(r"map shares-\S+ \{[^}]*elements", plain)


@pytest.mark.parametrize("more", [{}, {"persistence": "srcip"}, {"scheduler": "hash"}])
async def test_a_restarted_agent_adopts_groups_and_writes_nothing(
    node: Node, tmp_path: Path, more: dict[str, Any]
) -> None:
    wanted = grouped(groups=THREE, **more)
    await node.put("web", wanted)
    before = listed()
    again = await Node.open(tmp_path)
    assert dict(again.engine.sent) == dict(node.engine.sent)
    assert await again.engine.drift() is None
    everybody = Notifications(Notifications.open().socket, ())
    await again.put("web", wanted)
    assert everybody.others() == set()
    everybody.close()
    assert sorted(listed().split()) == sorted(before.split())
    again.close()


@pytest.mark.parametrize("more", [{}, {"persistence": "srcip"}])
async def test_an_endpoint_costs_as_many_elements_as_without_weights(
    node: Node, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    sent: list[int] = []
    commit = NftSocket.commit

    async def counting(self: NftSocket, messages: list[Message]) -> None:
        sent.append(sum(len(each.attributes) for each in messages))
        await commit(self, messages)

    monkeypatch.setattr(NftSocket, "commit", counting)
    costs = {}
    for name, others in (("plain", {}), ("weighted", {"b": (997, ENDPOINTS[3:]), "nobody": (3, [])})):
        for ips in (ENDPOINTS[:2], ENDPOINTS[:3], ENDPOINTS[:2], ENDPOINTS[:3]):
            await node.put("web", grouped(groups={"a": (500, ips), **others}, scheduler="weight", **more))
        before = len(elements())
        sent.clear()
        await node.put("web", grouped(groups={"a": (500, ENDPOINTS[:2]), **others}, scheduler="weight", **more))
        costs[name] = before - len(elements())
        assert len(sent) == 1, "one transaction"
        assert sent[0] < 1500, "and a small one"
    assert costs["plain"] == costs["weighted"]


def elements() -> list[str]:
    """Return the elements of all maps of listeners."""
    return re.findall(r"(?:tcp|udp) \. [\d.]+ \. \d+[^,}]*", listed(f"table inet {TABLE}"))


async def test_chains_that_nobody_uses_go(node: Node) -> None:
    for count in (1, 2, 3):
        await node.put("web", grouped(groups={"a": (1, ENDPOINTS[:count]), "b": (1, ENDPOINTS[3:])}))
    await node.engine.maintain(busy=False)
    assert sorted(re.findall(r"chain ((?:draw|rr|random)-\S+)", listed())) == [
        "draw-random-2-rr-12_3.10_2-ip",
        "rr-10-2-group-1-ip",
        "rr-12-3-group-0-ip",
    ]
    await node.put("web", grouped(groups={"a": (1, ENDPOINTS)}))
    await node.engine.maintain(busy=False)
    assert re.findall(r"chain ((?:draw|rr|random)-\S+)", listed()) == ["rr-1-5-ip"]


async def test_the_longest_names_of_chains_are_read_back(node: Node, tmp_path: Path) -> None:
    fields = "srcip dstip srcport dstport srcmac dstmac"
    groups = {f"s{number}": (60_000 + number, ENDPOINTS[: 2 + number % 3]) for number in range(16)}
    await node.put("web", grouped(groups=groups, scheduler="hash", schedParam=fields))
    assert reached(VIPS[0], 20).keys() <= set(ENDPOINTS)
    again = await Node.open(tmp_path)
    assert await again.engine.drift() is None
    assert dict(again.engine.sent) == dict(node.engine.sent)
    again.close()
