"""First packets to endpoints that are gone are forgotten, so that the next one finds another endpoint."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.connections import connections as module
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.model import NodeFarm, SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack.entries import SEEN_REPLY, UDP, Entry
from kube_nftlb.netfilter.conntrack.filters import UNANSWERED
from tests.builders import Grouped, farm, grouped_farm, raw_backend
from tests.fakes.clock import FakeClock
from tests.fakes.conntrack import FakeConntrack, endpoint, entry

HERE, GONE = endpoint("10.244.1.2"), endpoint("10.244.1.3")
BEFORE = SentFarm("nftables", frozenset({Listener("10.96.0.10", "TCP", 80)}), 2, 2)


def wanted(**spec: Any) -> NodeFarm:
    addresses = [{"ip": "10.96.0.10", "ports": "80"}]
    made = farm(**{"addresses": addresses, "backends": [raw_backend("a", "10.244.1.2")], **spec})
    return node_farm(made, NodeFacts("here"), None)


def made(kernel: FakeConntrack) -> Connections:
    return Connections(kernel, kernel, FakeClock())


def answered(each: Entry) -> Entry:
    return each._replace(status=each.status | SEEN_REPLY)


async def test_what_an_endpoint_that_is_gone_has_not_answered_is_forgotten() -> None:
    lost = entry(GONE, port=1)
    kept = [
        entry(HERE, port=2),
        answered(entry(GONE, port=3)),
        entry(GONE, port=4, translated=False),
        entry(GONE, port=5, server=endpoint("10.96.0.11", 80)),
    ]
    kernel = FakeConntrack(lost, *kept)
    connections = made(kernel)
    connections.changed("web", wanted(), BEFORE)
    assert await connections.look()
    assert kernel.entries == kept
    assert kernel.events[0][2] == UNANSWERED
    # Once for each change.
    assert not await connections.look()


@pytest.mark.parametrize(
    ("spec", "forgotten"),
    [
        pytest.param({"backends": []}, True, id="nobody is left: the next packet is refused"),
        pytest.param({"mode": "snat"}, True, id="the source is translated, too"),
        pytest.param({"protocol": "All", "addresses": [{"ip": "10.96.0.10"}], "backends": []}, True, id="all ports"),
        pytest.param({"mode": "local", "backends": []}, False, id="nothing is translated"),
    ],
)
async def test_farms_of_other_kinds(spec: dict[str, Any], forgotten: bool) -> None:
    kernel = FakeConntrack(entry(GONE))
    connections = made(kernel)
    connections.changed("web", wanted(**spec), BEFORE)
    await connections.look()
    assert (kernel.entries == []) == forgotten


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        pytest.param({"ready": False, "terminating": True}, True, id="it serves while it terminates"),
        pytest.param({"forZones": ["b"]}, True, id="it is meant for another zone"),
        pytest.param({"priority": 9}, True, id="it is on standby"),
        pytest.param({"state": "drain"}, True, id="it drains"),
        pytest.param({"ready": False, "serving": False}, False, id="it does not serve"),
        pytest.param({"state": "off"}, False, id="it is off"),
    ],
)
async def test_first_packets_on_their_way_to_an_endpoint_that_answers_are_not(
    state: dict[str, Any], is_kept: bool
) -> None:
    a, b = raw_backend("a", "10.244.1.2", forZones=["a"]), raw_backend("b", "10.244.1.3", forZones=["a"])
    kernel = FakeConntrack(entry(GONE))
    connections = made(kernel)
    connections.changed("web", node_farm(farm(backends=[a, b | state]), NodeFacts("here", "a"), None), BEFORE)
    await connections.look()
    assert (kernel.entries != []) == is_kept


@pytest.mark.parametrize(("state", "is_kept"), [("up", True), ("drain", True), ("off", False)])
async def test_a_group_without_weight_answers_unless_its_farm_is_off(state: str, is_kept: bool) -> None:
    spec = grouped_farm(groups={"a": Grouped(1, ["10.244.1.2"]), "b": Grouped(0, ["10.244.1.3"])}, state=state)
    kernel = FakeConntrack(entry(GONE))
    connections = made(kernel)
    connections.changed("web", node_farm(spec, NodeFacts("here"), None), BEFORE)
    await connections.look()
    assert (kernel.entries != []) == is_kept


async def test_a_thousand_of_them_and_of_endpoints_are_compared_in_a_moment() -> None:
    backends = [raw_backend(f"b{number}", f"10.1.{number // 250}.{number % 250 + 1}") for number in range(1000)]
    kernel = FakeConntrack(*(entry(GONE, port=port) for port in range(1, 1001)))
    connections = made(kernel)
    connections.changed("web", wanted(backends=backends), BEFORE)
    began = time.process_time()
    await connections.look()
    assert kernel.entries == []
    assert time.process_time() - began < 1, "each look delays those of all farms"


async def test_an_endpoint_of_all_ports_answers_at_each() -> None:
    backends = [{"name": "a", "ip": "10.244.1.2"}]
    kernel = FakeConntrack(entry(HERE))
    connections = made(kernel)
    connections.changed("web", wanted(protocol="All", addresses=[{"ip": "10.96.0.10"}], backends=backends), BEFORE)
    await connections.look()
    assert len(kernel.entries) == 1


async def test_flows_of_udp_are_not_its_business() -> None:
    kernel = FakeConntrack(entry(GONE, protocol=UDP))
    connections = made(kernel)
    connections.changed("web", wanted(), BEFORE)
    await connections.look()
    assert len(kernel.entries) == 1


async def test_no_connection_waits_for_an_endpoint_of_a_farm_that_is_new_or_withdrawn() -> None:
    kernel = FakeConntrack(entry(GONE))
    connections = made(kernel)
    connections.changed("web", wanted(), None)
    connections.changed("other", wanted(), BEFORE)
    connections.changed("other", None, BEFORE)
    await connections.look()
    assert UNANSWERED not in [event[2] for event in kernel.events if event[0] == "looked"]


async def test_what_the_kernel_does_not_tell_is_looked_for_again() -> None:
    kernel, clock = FakeConntrack(entry(GONE)), FakeClock()
    connections = Connections(kernel, kernel, clock)
    connections.changed("web", wanted(), BEFORE)
    kernel.problem = errors.KernelError("no memory")
    assert await connections.look()
    kernel.problem = None
    assert not await connections.look()
    clock.time += 1
    assert await connections.look()
    assert kernel.entries == []


async def test_what_is_beyond_the_limit_of_a_look_is_forgotten_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOUND_MAX", 2)
    kernel, clock = FakeConntrack(*(entry(GONE, port=port) for port in range(1, 6))), FakeClock()
    connections = Connections(kernel, kernel, clock)
    connections.changed("web", wanted(), BEFORE)
    left = []
    for _ in range(4):
        await connections.look()
        left.append(len(kernel.entries))
        clock.time += 1
    assert left == [3, 1, 0, 0]
    assert kernel.looks == 3


async def test_it_is_looked_for_again_soon() -> None:
    kernel, clock = FakeConntrack(entry(GONE)), FakeClock()
    connections = Connections(kernel, kernel, clock)
    connections.changed("web", wanted(), BEFORE)
    kernel.problem = errors.KernelError("no memory")
    began = clock.time
    task = asyncio.create_task(connections.keep_looking())
    while clock.time == began:
        await asyncio.sleep(0)
    kernel.problem = None
    while kernel.entries:
        await asyncio.sleep(0)
    task.cancel()
    assert clock.time - began < 5


async def change_without_pause(connections: Connections, clock: FakeClock) -> None:
    """Change a farm a hundred times a second for ten seconds."""
    began = clock.time
    task = asyncio.create_task(connections.keep_looking())
    while clock.time - began < 10:
        connections.changed("web", wanted(), BEFORE)
        clock.time += 0.01
        await asyncio.sleep(0)
    task.cancel()


async def test_changes_that_never_stop_are_looked_for_together() -> None:
    kernel, clock = FakeConntrack(), FakeClock()
    await change_without_pause(Connections(kernel, kernel, clock), clock)
    assert 20 <= len(kernel.events) <= 45


@pytest.mark.parametrize(("look_s", "fewest", "most"), [(0.005, 30, 45), (0.02, 8, 12), (0.1, 7, 10)])
async def test_a_slow_look_is_followed_by_a_longer_rest_but_of_no_more_than_a_second(
    look_s: float, fewest: int, most: int
) -> None:
    clock = FakeClock()

    class Slow(FakeConntrack):
        async def find(self, *arguments: Any, **options: Any) -> list[Entry]:
            clock.time += look_s
            return await super().find(*arguments, **options)

    kernel = Slow()
    await change_without_pause(Connections(kernel, kernel, clock), clock)
    assert fewest <= kernel.looks <= most


async def test_an_agent_that_ends_looks_at_once() -> None:
    kernel = FakeConntrack()
    connections = made(kernel)
    connections.changed("web", wanted(), BEFORE)
    assert await connections.look()
    connections.changed("web", wanted(), BEFORE)
    kernel.entries = [entry(GONE)]
    task = asyncio.create_task(connections.run())
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert kernel.entries == []
