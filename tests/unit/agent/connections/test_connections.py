"""Connections that may not go on are forgotten, and clients of those that are cut challenged, in turns."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from itertools import groupby
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_nftlb import errors
from kube_nftlb.agent.connections.allowed import GRACE_S, WATCH_S
from kube_nftlb.agent.connections.challenges import AGAIN_S, WAITING_MAX, Challenge, Challenges
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.model import NodeFarm, SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.netfilter.conntrack.entries import SCTP, TCP, UDP, Entry
from kube_nftlb.netfilter.conntrack.filters import TRANSLATED, UNTRANSLATED, Target
from tests.builders import farm, raw_backend
from tests.fakes.clock import FakeClock
from tests.fakes.conntrack import FakeConntrack, endpoint, entry

VIP, CLIENT = endpoint("10.96.0.10", 80), endpoint("10.244.1.7", 1)[0]
OTHER, THIRD = endpoint("10.96.0.10", 81), endpoint("10.96.0.10", 82)
HERE, GONE = endpoint("10.244.1.2"), endpoint("10.244.1.3")
TIME_WAIT, SYN_SENT = 7, 1


def wanted(protocol: Protocol = "TCP", **spec: Any) -> NodeFarm:
    ports = {} if protocol == "All" else {"ports": "80"}
    addresses = [{"ip": "10.96.0.10", **ports}]
    backends = [{"name": "a", "ip": "10.244.1.2"} if protocol == "All" else raw_backend("a", "10.244.1.2")]
    on_gone = "keep" if protocol == "UDP" else "cut"
    made = farm(**{"protocol": protocol, "onGone": on_gone, "addresses": addresses, "backends": backends, **spec})
    return node_farm(made, NodeFacts("here"), None)


def sent(*listeners: Listener, local: bool = False) -> SentFarm:
    return SentFarm("nftlb", frozenset(listeners), 1, 1, answers_itself=local)


def connections(kernel: FakeConntrack, clock: FakeClock | None = None) -> Connections:
    return Connections(kernel, kernel, clock or FakeClock())


async def cut(kernel: FakeConntrack, clock: FakeClock, protocol: Protocol = "TCP") -> Connections:
    """Connections of a farm, once they have been looked for."""
    made = connections(kernel, clock)
    made.changed("web", wanted(protocol), None)
    clock.time += GRACE_S
    assert await made.look()
    return made


@pytest.mark.parametrize(("protocol", "target"), [("TCP", (*VIP[:1], TCP, 80)), ("All", (*VIP[:1], TCP, 0))])
async def test_a_connection_is_forgotten_before_its_client_is_challenged(protocol: Protocol, target: Target) -> None:
    kernel = FakeConntrack(entry(GONE, port=1), entry(GONE, port=2, state=SYN_SENT), entry(HERE, port=3))
    made = await cut(kernel, FakeClock(), protocol)
    made.challenge()
    (look, *rest) = kernel.events
    assert target in look[1]  # type: ignore[operator]  # a set of targets
    # The other client is not connected: it tries again, and gets to another backend.
    assert rest == [("forgot", 2), ("challenged", 1, VIP)]


async def test_a_client_is_challenged_once_more_later() -> None:
    kernel, clock = FakeConntrack(entry(GONE)), FakeClock()
    made = await cut(kernel, clock)
    for _ in range(3):
        made.challenge()
    assert len(kernel.events) == 3
    clock.time += AGAIN_S
    for _ in range(3):
        made.challenge()
    assert kernel.events[3:] == [("challenged", 1, VIP)]


async def test_udp_flows_are_forgotten_and_those_that_may_go_on_are_not() -> None:
    kernel, clock = FakeConntrack(*(entry(each, protocol=UDP, port=each[1]) for each in (HERE, GONE))), FakeClock()
    made = connections(kernel, clock)
    made.changed("web", wanted("UDP"), sent(Listener("10.96.0.10", "UDP", 80)))
    assert kernel.events == [], "another task does it"
    assert [await made.look() for _ in range(2)] == [True, False]
    assert [each.answerer for each in kernel.entries] == [HERE]
    assert kernel.events == [("looked", {(VIP[0], UDP, 80)}, TRANSLATED), ("forgot", 1)]


async def test_flows_from_before_anybody_served_them_are_forgotten() -> None:
    kernel = FakeConntrack(entry(VIP, protocol=UDP, translated=False))
    made = connections(kernel)
    made.changed("web", wanted("UDP"), None)
    await made.look()
    assert kernel.entries == []


async def test_farms_that_change_together_are_one_look_at_the_table() -> None:
    kernel = FakeConntrack()
    made = connections(kernel)
    for name, ip in (("one", "10.96.0.1"), ("two", "10.96.0.2")):
        made.changed(name, wanted("UDP", addresses=[{"ip": ip, "ports": "80"}]), None)
    await made.look()
    assert [len(event[1]) for event in kernel.events] == [2]  # type: ignore[arg-type]  # a set of targets


@pytest.mark.parametrize("problem", [errors.KernelError("no answer"), RuntimeError("unexpected")])
async def test_what_the_kernel_does_not_tell_is_asked_again(problem: Exception) -> None:
    kernel, clock = FakeConntrack(entry(GONE)), FakeClock()
    kernel.problem = problem
    made = await cut(kernel, clock)
    kernel.problem = None
    assert not await made.look()
    clock.time += 1
    assert await made.look()
    assert kernel.entries == []


async def test_flows_to_what_is_closed_end_though_the_kernel_refused_for_as_long_as_they_are_looked_for() -> None:
    kernel, clock = FakeConntrack(entry(HERE, protocol=UDP)), FakeClock()
    made = connections(kernel, clock)
    made.changed("web", None, sent(Listener("10.96.0.10", "UDP", 80)))
    kernel.problem = errors.KernelError("no answer")
    for _ in range(5 * WATCH_S):
        assert await made.look()
        clock.time += 1
    kernel.problem = None
    assert [await made.look() for _ in range(2)] == [True, False]
    assert kernel.entries == []


async def test_clients_are_challenged_whose_connections_were_forgotten_before_the_kernel_failed() -> None:
    kernel = FakeConntrack(*(entry(GONE, port=port) for port in range(1, 601)))
    forget = kernel.forget

    async def fails_in_part(connections: Collection[Entry]) -> int:
        await forget(connections)
        if len(connections) < 512:
            raise errors.KernelError("no answer")
        return len(connections)

    kernel.forget = fails_in_part  # type: ignore[method-assign]  # a kernel that fails
    with capture_logs() as logs:
        made = await cut(kernel, FakeClock())
    for _ in range(600 // 50):
        made.challenge()
    challenged = [event[1] for event in kernel.events if event[0] == "challenged"]
    assert challenged == list(range(1, 601))
    assert [each.get("connections", each.get("error")) for each in logs] == [512, "no answer"]


async def test_what_keeps_clients_from_being_told_is_logged_once() -> None:
    kernel = FakeConntrack(entry(GONE, port=1), entry(GONE, port=2))
    made = await cut(kernel, FakeClock())
    kernel.problem = PermissionError(1, "Operation not permitted")
    with capture_logs() as logs:
        made.challenge()
    assert [each["error"] for each in logs] == ["[Errno 1] Operation not permitted"]


async def test_however_often_a_farm_changes_the_node_looks_a_fifth_of_the_time() -> None:
    clock = FakeClock()

    class Slow(FakeConntrack):
        async def find(
            self,
            to: Collection[Target],
            chosen: Callable[[Entry], bool],
            narrowed: bytes = b"",
            limit: int | None = None,
        ) -> list[Entry]:
            await clock.sleep(1)
            return await super().find(to, chosen, narrowed, limit)

    slow = Slow()
    made = connections(slow, clock)

    async def flap() -> None:
        before = sent(Listener("10.96.0.10", "UDP", 80))
        while clock.time < 1100:
            backends = [raw_backend("a", f"10.244.1.{2 + slow.looks % 2}")]
            made.changed("web", wanted("UDP", backends=backends), before)
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    tasks = [asyncio.create_task(made.keep_looking()), asyncio.create_task(flap())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    tasks[0].cancel()
    assert 15 <= slow.looks <= 21


async def test_what_is_due_is_done_before_the_end() -> None:
    kernel, clock = FakeConntrack(entry(GONE, protocol=UDP)), FakeClock()
    made = connections(kernel, clock)
    task = asyncio.create_task(made.run())
    while not clock.time > 1000:
        await asyncio.sleep(0)
    made.changed("web", None, sent(Listener("10.96.0.10", "UDP", 80)))
    task.cancel()
    await asyncio.wait([task])
    assert kernel.entries == []


# Once rules are back.


async def test_connections_that_bypassed_rules_are_forgotten_but_for_the_mode_local() -> None:
    kernel = FakeConntrack(
        entry(VIP, port=1, translated=False),
        entry(VIP, port=2, protocol=UDP, translated=False),
        entry(HERE, port=3),
    )
    made = connections(kernel)
    farms = {
        "web": sent(Listener("10.96.0.10", "TCP", 80), Listener("10.96.0.10", "UDP", 80)),
        "all": sent(Listener("fd00:96::a", "All", 0)),
        "local": sent(Listener("172.31.0.11", "TCP", 22), local=True),
    }
    await made.rules_back(farms)
    v6 = endpoint("fd00:96::a")[0]
    to = {(VIP[0], TCP, 80), (VIP[0], UDP, 80), *((v6, protocol, 0) for protocol in (TCP, UDP, SCTP))}
    assert kernel.events == [("looked", to, UNTRANSLATED), ("forgot", 2)]


async def test_they_are_looked_for_once_more_a_moment_later_and_then_no_more() -> None:
    kernel, clock = FakeConntrack(), FakeClock()
    made = connections(kernel, clock)
    farms = {"web": sent(Listener("10.96.0.10", "TCP", 80))}
    await made.forget_bypassed()
    assert kernel.looks == 0
    await made.rules_back(farms)
    for seconds in (1, WATCH_S, 1):
        clock.time += seconds
        await made.forget_bypassed()
    assert kernel.looks == 3


def test_namespaces_take_turns() -> None:
    waiting = Challenges()
    waiting.add("many", [Challenge((CLIENT, port), VIP) for port in range(1, 1000)])
    waiting.add("few", [Challenge((CLIENT, port), OTHER) for port in range(1, 4)])
    taken = waiting.take(10, 0)
    assert [port for port, _ in groupby(each.server[1] for each in taken)] == [80, 81] * 3 + [80]


def test_of_more_clients_than_can_wait_those_of_the_namespace_with_the_most_are_left_out() -> None:
    waiting = Challenges()
    crowd = [Challenge((CLIENT, 1), VIP)] * WAITING_MAX
    few = [Challenge((CLIENT, port), OTHER) for port in (1, 2)]
    assert waiting.add("many", crowd) == 0
    assert waiting.add("few", few) == 2
    assert waiting.add("many", crowd[:1]) == 1
    assert len(waiting) == WAITING_MAX
    taken = waiting.take(WAITING_MAX, 0)
    assert (taken.count(crowd[0]), [each for each in taken if each != crowd[0]]) == (WAITING_MAX - 2, few)


def test_namespaces_that_both_have_too_many_keep_equal_numbers() -> None:
    waiting = Challenges()
    waiting.add("a", [Challenge((CLIENT, 1), VIP)] * WAITING_MAX)
    waiting.add("b", [Challenge((CLIENT, 1), OTHER)] * WAITING_MAX)
    waiting.add("c", [Challenge((CLIENT, 1), THIRD)] * 100)
    counts = Counter(each.server[1] for each in waiting.take(WAITING_MAX, 0))
    assert counts == {80: WAITING_MAX // 2 - 50, 81: WAITING_MAX // 2 - 50, 82: 100}


def test_clients_that_were_challenged_once_make_room_for_others() -> None:
    waiting = Challenges()
    old, new = Challenge((CLIENT, 1), VIP), Challenge((CLIENT, 2), VIP)
    waiting.add("many", [old] * WAITING_MAX)
    waiting.take(WAITING_MAX - 1, 0)
    assert waiting.add("few", [new] * 3) == 0
    assert len(waiting) == WAITING_MAX
    assert waiting.take(4, 1) == [old, new, new, new]
    assert waiting.take(WAITING_MAX, AGAIN_S).count(old) == WAITING_MAX - 4
    assert len(waiting) == 4, "those that were challenged last follow"
    assert waiting.add("many", [old] * (WAITING_MAX + 9)) == 9


A, B, C = raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3"), raw_backend("c", "10.244.1.9")


@pytest.mark.parametrize("hears", ["while it looks", "later"])
@pytest.mark.parametrize(
    ("protocol", "on_gone", "state"),
    [("TCP", "cut", 3), ("TCP", "keep", SYN_SENT), ("UDP", "keep", 3)],
    ids=["established", "unanswered", "flow"],
)
async def test_connections_to_an_endpoint_that_an_engine_gets_meanwhile_go_on(
    protocol: Protocol, on_gone: str, state: int, hears: str
) -> None:
    kernel, clock = FakeConntrack(), FakeClock()
    known, served = connections(kernel, clock), sent(Listener("10.96.0.10", protocol, 80))

    def web(*backends: dict[str, Any]) -> NodeFarm:
        return wanted(protocol, backends=list(backends), onGone=on_gone)

    known.changed("web", web(A, B), served)
    for _ in range(2):
        await known.look()
        clock.time += 5
    known.changed("web", web(A), served)
    clock.time += GRACE_S
    # By now the engine has the next change, and a client is connected to what that brings.
    known.applying({"web": web(A, C)})
    to = entry(endpoint("10.244.1.9"), port=7, protocol=UDP if protocol == "UDP" else TCP, state=state)
    kernel.entries = [to._replace(status=to.status | (2 if state == 3 else 0))]
    find = kernel.find

    async def hear() -> None:
        known.changed("web", web(A, C), served)
        known.applied()

    async def found(*arguments: Any, **more: Any) -> list[Entry]:
        entries = await find(*arguments, **more)
        if hears == "while it looks":
            await hear()
        return entries

    kernel.find = found  # type: ignore[method-assign]  # as it is, while something else happens
    await known.look()
    await hear()
    clock.time += 5
    await known.look()
    known.challenge()
    assert len(kernel.entries) == 1
    assert [each for each in kernel.events if each[0] == "challenged"] == []
