"""The addresses of all nodes, as an agent gets to know them."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from kube_nftlb.agent import node_watch
from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.node_watch import NodeWatch, watch_node_ips
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.kube.resources import NODES
from kube_nftlb.settings import AgentSettings
from tests.fakes.kube import FakeKube


def raw(name: str, version: int, *ips: str, **more: Any) -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": ip} for ip in ips]
    status = {"addresses": [*addresses, {"type": "Hostname", "address": name}], **more}
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "status": status}


async def test_the_addresses_of_all_nodes_are_told_when_they_change() -> None:
    kube, told = FakeKube(), list[frozenset[str]]()
    kube.put(NODES, raw("n1", 1, "172.31.0.11", "fd00::0B"))
    kube.put(NODES, raw("n2", 2, "172.31.0.12"))
    numbers = list[int]()

    def tell(ips: frozenset[str], number: int) -> None:
        told.append(ips)
        numbers.append(number)

    task = asyncio.create_task(watch_node_ips(kube, tell))
    await kube.delivered()
    assert told == [{"172.31.0.11", "fd00::b", "172.31.0.12"}]
    kube.put(NODES, raw("n1", 3, "172.31.0.11", "fd00::b", capacity={"cpu": "2"}))
    await kube.delivered()
    assert len(told) == 1, "a heartbeat is no news"
    kube.put(NODES, raw("n3", 4, "172.31.0.13"))
    kube.remove(NODES, "n2")
    await kube.delivered()
    assert told[1:] == [
        {"172.31.0.11", "fd00::b", "172.31.0.12", "172.31.0.13"},
        {"172.31.0.11", "fd00::b", "172.31.0.13"},
    ]
    assert numbers == [2, 3, 2]
    task.cancel()


async def test_what_bears_on_announcing_addresses_is_news_where_somebody_asks_for_it() -> None:
    kube, seen = FakeKube(), list[Mapping[str, NodeSeen]]()
    kube.put(NODES, raw("n1", 1, "172.31.0.11"))
    numbers = list[int]()
    task = asyncio.create_task(
        watch_node_ips(kube, lambda _, number: numbers.append(number), lambda nodes, _: seen.append(nodes))
    )
    await kube.delivered()
    assert seen == [{"n1": NodeSeen({}, ipv4="172.31.0.11")}]
    labelled = raw("n1", 2, "172.31.0.11")
    kube.put(NODES, {**labelled, "metadata": {**labelled["metadata"], "labels": {"a": "b"}}})
    await kube.delivered()
    assert seen[1:] == [{"n1": NodeSeen({"a": "b"}, ipv4="172.31.0.11")}]
    task.cancel()


class State:
    """What a loop is told of its node."""

    def __init__(self) -> None:
        self.facts: list[NodeFacts] = []

    def set_node(self, facts: NodeFacts, _: object) -> None:
        self.facts.append(facts)

    def set_node_ips(self, _: object) -> None:
        pass


def raw_with_pods(version: int, ip: str, cidr: str) -> dict[str, Any]:
    made = raw("n1", version, *([ip] if ip else []))
    return {**made, "spec": {"podCIDRs": [cidr] if cidr else []}}


async def test_a_node_whose_object_is_deleted_is_served_by_the_last_one() -> None:
    kube, own_node, state = FakeKube(), OwnNode("n1"), State()
    kube.put(NODES, raw_with_pods(1, "172.31.0.11", "10.244.1.0/24"))
    watch = NodeWatch(
        kube, cast("LoopState", state), own_node, AgentSettings.from_environment({"KUBE_NFTLB_NODE_NAME": "n1"})
    )
    task = asyncio.create_task(watch.run())
    await kube.delivered()
    before = state.facts[-1]
    assert (before.port_ips["ipv4"], before.pod_cidrs["ipv4"]) == (("172.31.0.11",), ("10.244.1.0/24",))
    kube.remove(NODES, "n1")
    await kube.delivered()
    assert own_node.current is None, "its health is another matter"
    assert state.facts[-1] == before
    assert watch.health_check_hosts() == ("172.31.0.11",)
    kube.put(NODES, raw_with_pods(kube.version + 1, "", ""))
    await kube.delivered()
    assert state.facts[-1] == before, "what is registered anew gets its addresses and its range later"
    kube.put(NODES, raw_with_pods(kube.version + 1, "172.31.0.12", "10.244.2.0/24"))
    await kube.delivered()
    after = state.facts[-1]
    assert (after.port_ips["ipv4"], after.pod_cidrs["ipv4"]) == (("172.31.0.12",), ("10.244.2.0/24",))
    task.cancel()


async def test_nothing_is_told_of_a_node_before_its_addresses_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Farms without their node ports would be programmed, and clients of those that are refused."""
    state = State()
    problems = [OSError("no memory")] * 2

    def read() -> tuple[str, ...]:
        if problems:
            raise problems.pop()
        return ("172.31.0.11", "192.0.2.1")

    monkeypatch.setattr(node_watch, "_addresses", read)
    monkeypatch.setattr(node_watch, "_RETRY_S", 0.01)
    kube, own_node = FakeKube(), OwnNode("n1")
    kube.put(NODES, raw("n1", 1, "172.31.0.11"))
    settings = AgentSettings.from_environment(
        {"KUBE_NFTLB_NODE_NAME": "n1", "KUBE_NFTLB_NODE_PORT_ADDRESSES": "172.31.0.0/24"}
    )
    watch = NodeWatch(kube, cast("LoopState", state), own_node, settings)
    with capture_logs() as logs:
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(10):
            while not state.facts:
                await asyncio.sleep(0.001)
    task.cancel()
    assert {each.all_port_ips for each in state.facts} == {("172.31.0.11",)}
    assert [each["event"] for each in logs] == ["cannot read the addresses of this node, retrying"] * 2
