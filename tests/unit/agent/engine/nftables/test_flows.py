"""The connections that are forgotten after a change of a farm."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables.flows import WATCH_S, Flows
from kube_nftlb.agent.engine.nftables.layout import packed
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack import Destination, Stale
from tests.builders import farm, raw_backend
from tests.fakes.clock import FakeClock
from tests.fakes.nftlb import FakeConntrack

VIP = Destination("10.96.0.10", "udp", 80)
LISTENER = Listener("10.96.0.10", "UDP", 80)
A, B = (packed("10.244.1.2"), 8080), (packed("10.244.1.3"), 8080)


class Seen(FakeConntrack):
    def __init__(self) -> None:
        self.calls: list[list[Stale]] = []
        self.fails = False

    async def forget(self, stale: Sequence[Stale]) -> int:
        self.calls.append(list(stale))
        if self.fails:
            raise errors.KernelError("busy")
        return 0


def change(*ips: str, name: str = "web--http", **spec: Any) -> tuple[str, NodeFarm]:
    backends = [raw_backend(f"pod-{ip[-1]}", ip) for ip in ips]
    wanted = farm(**{"protocol": "UDP", "backends": backends, **spec})
    return name, node_farm(wanted, NodeFacts("here"), None)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def flows(seen: Seen, clock: FakeClock) -> Flows:
    return Flows(seen, clock)


@pytest.fixture
async def known(flows: Flows, seen: Seen, clock: FakeClock) -> Flows:
    """The farm was served for a while, with one endpoint."""
    flows.changed(*change("10.244.1.2"), [LISTENER], served=True)
    for _ in range(WATCH_S + 1):
        assert await flows.clean()
        clock.time += 1
    assert not await flows.clean()
    seen.calls.clear()
    return flows


async def test_flows_of_a_backend_that_went_are_forgotten_now_and_a_moment_later(
    known: Flows, seen: Seen, clock: FakeClock
) -> None:
    known.changed(*change("10.244.1.3"), [LISTENER], served=True)
    assert seen.calls == [], "another task does it"
    assert [await known.clean() for _ in range(2)] == [True, False]
    assert seen.calls == [[Stale((VIP,), {B})]]
    clock.time += 0.5
    assert not await known.clean()
    for _ in range(WATCH_S):
        clock.time += 1
        assert await known.clean()
    clock.time += 1
    assert not await known.clean()
    assert seen.calls == [[Stale((VIP,), {B})]] * 3


async def test_farms_that_change_together_are_one_look_at_the_table(flows: Flows, seen: Seen) -> None:
    for name in ("one", "two"):
        flows.changed(*change("10.244.1.2", name=name), [LISTENER], served=True)
    await flows.clean()
    assert [len(stale) for stale in seen.calls] == [2]


async def test_nothing_is_forgotten_where_no_endpoint_changes(known: Flows) -> None:
    known.changed(*change("10.244.1.2", scheduler="weight"), [LISTENER], served=True)
    assert not await known.clean()


async def test_flows_from_before_anybody_served_them_are_forgotten(flows: Flows, seen: Seen) -> None:
    flows.changed(*change("10.244.1.2"), [], served=False)
    flows.changed(*change("10.244.1.3"), [LISTENER], served=True)
    await flows.clean()
    assert seen.calls == [[Stale((VIP,), {B}, begun=True)]]


async def test_flows_to_what_is_closed_are_forgotten(flows: Flows, seen: Seen) -> None:
    flows.changed("web--http", None, [LISTENER], served=True)
    await flows.clean()
    assert seen.calls == [[Stale((VIP,), frozenset())]]


async def test_of_a_listener_that_passes_to_another_farm_the_flows_to_its_endpoints_stay(
    flows: Flows, seen: Seen
) -> None:
    flows.changed(*change("10.244.1.2", name="heir"), [], served=False)
    flows.changed("web--http", None, [LISTENER], served=True)
    await flows.clean()
    assert seen.calls == [[Stale((VIP,), frozenset()), Stale((VIP,), {A}, begun=True)]], "the later one counts"


async def test_connections_of_tcp_are_left_but_for_backends_that_are_down(flows: Flows, seen: Seen) -> None:
    flows.changed(*change("10.244.1.2", protocol="TCP"), [], served=False)
    assert not await flows.clean()
    down = [raw_backend("pod-2", "10.244.1.2", state="down"), raw_backend("pod-3", "10.244.1.3")]
    listener = Listener("10.96.0.10", "TCP", 80)
    flows.changed(*change(protocol="TCP", backends=down), [listener], served=True)
    await flows.clean()
    to = Destination("10.96.0.10", "tcp", 80)
    assert seen.calls == [[Stale((to,), {B}, cut=frozenset({"10.244.1.2"}))]]


async def test_stale_flows_are_found_later_too(known: Flows, seen: Seen) -> None:
    known.forget_stale("other", [LISTENER])
    assert not await known.clean(), "it is not known what is stale"
    known.forget_stale("web--http", [LISTENER])
    assert [await known.clean() for _ in range(2)] == [True, False]
    assert seen.calls == [[Stale((VIP,), {A})]]


async def test_a_refusal_is_tried_again(known: Flows, seen: Seen, clock: FakeClock) -> None:
    seen.fails = True
    known.changed(*change("10.244.1.3"), [LISTENER], served=True)
    await known.clean()
    seen.fails = False
    clock.time += 1
    await known.clean()
    assert seen.calls == [[Stale((VIP,), {B})]] * 2


async def test_however_often_a_farm_changes_the_node_looks_a_fifth_of_the_time(clock: FakeClock) -> None:
    class Slow(Seen):
        async def forget(self, stale: Sequence[Stale]) -> int:
            await clock.sleep(1)
            return await super().forget(stale)

    slow = Slow()
    flows = Flows(slow, clock)

    async def flap() -> None:
        while clock.time < 1100:
            flows.changed(*change(f"10.244.1.{2 + len(slow.calls) % 2}"), [LISTENER], served=True)
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    tasks = [asyncio.create_task(flows.run()), asyncio.create_task(flap())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    tasks[0].cancel()
    assert 15 <= len(slow.calls) <= 21
