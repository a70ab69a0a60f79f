"""The connections that are forgotten after a change of a farm."""

from collections.abc import Collection
from typing import Any

import pytest

from kube_nftlb.agent.engine.base import FarmChange
from kube_nftlb.agent.engine.nftables.flows import WATCH_S, Flows
from kube_nftlb.agent.engine.nftables.layout import packed
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack import Destination
from tests.builders import farm, raw_backend
from tests.fakes.nftlb import FakeConntrack

VIP = Destination("10.96.0.10", "udp", 80)
LISTENER = Listener("10.96.0.10", "UDP", 80)
A, B = (packed("10.244.1.2"), 8080), (packed("10.244.1.3"), 8080)


class Seen(FakeConntrack):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def forget_flows(self, to: Collection[Destination], kept: Collection[tuple[bytes, int]]) -> int:
        self.calls.append(("flows", *to, set(kept)))
        return 0

    async def forget_untranslated(self, to: Collection[Destination]) -> int:
        self.calls.append(("untranslated", *to))
        return 0

    async def cut(self, to: Collection[Destination], addresses: frozenset[str]) -> int:
        self.calls.append(("cut", *to, set(addresses)))
        return 0


def change(*ips: str, **spec: Any) -> FarmChange:
    backends = [raw_backend(f"pod-{ip[-1]}", ip) for ip in ips]
    wanted = farm(**{"protocol": "UDP", "backends": backends, **spec})
    return FarmChange("web--http", node_farm(wanted, NodeFacts("here"), None))


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def test_flows_of_a_backend_that_went_are_forgotten_now_and_a_moment_later(seen: Seen) -> None:
    flows = Flows(seen)
    await flows.changed(change("10.244.1.2", "10.244.1.3"), [LISTENER], 0, served=True)
    seen.calls.clear()
    await flows.changed(change("10.244.1.3"), [LISTENER], 0, served=True)
    assert seen.calls == [("flows", VIP, {B})]
    await flows.again(1)
    await flows.again(WATCH_S + 1)
    await flows.again(WATCH_S + 2)
    assert seen.calls == [("flows", VIP, {B})] * 3


async def test_nothing_is_forgotten_where_no_endpoint_changes(seen: Seen) -> None:
    flows = Flows(seen)
    await flows.changed(change("10.244.1.2"), [LISTENER], 0, served=True)
    seen.calls.clear()
    await flows.changed(change("10.244.1.2", scheduler="weight"), [LISTENER], 0, served=True)
    assert seen.calls == []


async def test_flows_from_before_anybody_served_them_are_forgotten(seen: Seen) -> None:
    await Flows(seen).changed(change("10.244.1.2"), [], 0, served=False)
    assert ("untranslated", VIP) in seen.calls


async def test_flows_to_what_is_closed_are_forgotten(seen: Seen) -> None:
    await Flows(seen).changed(FarmChange("web--http"), [LISTENER], 0, served=True)
    assert seen.calls == [("flows", VIP, set())]


async def test_connections_of_tcp_are_left_but_for_backends_that_are_down(seen: Seen) -> None:
    flows = Flows(seen)
    await flows.changed(change("10.244.1.2", protocol="TCP"), [], 0, served=False)
    assert seen.calls == []
    down = [raw_backend("pod-2", "10.244.1.2", state="down"), raw_backend("pod-3", "10.244.1.3")]
    listener = Listener("10.96.0.10", "TCP", 80)
    await flows.changed(change(protocol="TCP", backends=down), [listener], 0, served=True)
    assert seen.calls == [("cut", Destination("10.96.0.10", "tcp", 80), {"10.244.1.2"})]


async def test_stale_flows_are_found_later_too(seen: Seen) -> None:
    flows = Flows(seen)
    await flows.forget_stale("web--http", [LISTENER])
    assert seen.calls == [], "it is not known yet what is stale"
    await flows.changed(change("10.244.1.2"), [LISTENER], 0, served=True)
    seen.calls.clear()
    await flows.forget_stale("web--http", [LISTENER])
    assert seen.calls == [("flows", VIP, {A})]
