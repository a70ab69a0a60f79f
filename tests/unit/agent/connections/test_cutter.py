"""Connections to endpoints that are gone are forgotten, and their clients challenged in turns."""

from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_nftlb import errors
from kube_nftlb.agent.connections.challenges import AGAIN_S, WAITING_MAX, Challenge, Challenges
from kube_nftlb.agent.connections.cuts import Cut, Cuts
from kube_nftlb.agent.connections.cutter import Cutter
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.tcp_connections import Endpoint, Family, TcpConnection
from tests.builders import farm, raw_backend
from tests.fakes.clock import FakeClock

VIP, POD, CLIENT = b"\x0a\x60\0\x0a", b"\x0a\xf4\1\2", b"\x0a\xf4\1\7"
CUT = Cut("default", frozenset({Listener("10.96.0.10", "TCP", 80)}), frozenset({("10.244.1.2", 8080)}))


def connection(port: int = 1, *, is_open: bool = True, server: Endpoint = (VIP, 80)) -> TcpConnection:
    return TcpConnection((CLIENT, port), server, is_open, b"key")


class Kernel:
    """Connections, and what happens to them, in order."""

    def __init__(self, *connections: TcpConnection) -> None:
        self.connections = list(connections)
        self.events: list[Any] = []
        self.problem: Exception | None = None

    async def others(
        self, family: Family, kept: Mapping[Endpoint, frozenset[Endpoint]], limit: int
    ) -> list[TcpConnection]:
        self.events.append(("looked", family, dict(kept)))
        if self.problem is not None:
            raise self.problem
        return self.connections[:limit]

    async def forget(self, family: Family, connections: list[TcpConnection]) -> int:
        self.events.append(("forgot", len(connections)))
        return len(connections)

    def challenge(self, client: Endpoint, server: Endpoint) -> None:
        self.events.append(("challenged", client[1], server))
        if isinstance(self.problem, OSError):
            raise self.problem


def cutter(kernel: Kernel, cuts: Cuts | None = None, clock: FakeClock | None = None) -> Cutter:
    return Cutter(cuts or Cuts(), kernel, kernel, clock or FakeClock())


@pytest.mark.parametrize(
    ("listener", "server"),
    [
        (Listener("10.96.0.10", "TCP", 80), (VIP, 80)),
        (Listener("10.96.0.10", "All", 0), (VIP, 0)),
    ],
)
async def test_a_connection_is_forgotten_before_its_client_is_challenged(listener: Listener, server: Endpoint) -> None:
    kernel = Kernel(connection(1), connection(2, is_open=False))
    cutting = cutter(kernel)
    await cutting.look({"web": CUT._replace(listeners=frozenset({listener}))})
    cutting.challenge()
    assert kernel.events == [
        ("looked", "ip", {server: frozenset({(POD, 8080)})}),
        ("forgot", 2),
        # The other client is not connected: it tries again, and gets to another backend.
        ("challenged", 1, (VIP, 80)),
    ]


async def test_a_client_is_challenged_once_more_later() -> None:
    kernel, clock = Kernel(connection()), FakeClock()
    cutting = cutter(kernel, clock=clock)
    await cutting.look({"web": CUT})
    for _ in range(3):
        cutting.challenge()
    assert len(kernel.events) == 3
    clock.time += AGAIN_S
    for _ in range(3):
        cutting.challenge()
    assert kernel.events[3:] == [("challenged", 1, (VIP, 80))]


@pytest.mark.parametrize("problem", [errors.KernelError("no answer"), RuntimeError("unexpected")])
async def test_what_the_kernel_does_not_tell_is_asked_again(problem: Exception) -> None:
    kernel, cuts, clock = Kernel(), Cuts(), FakeClock()
    wanted = farm(onGone="cut", backends=[raw_backend("a", "10.244.1.2")])
    cuts.changed("web", node_farm(wanted, NodeFacts("here"), None), clock.now())
    clock.time += 10
    kernel.problem = problem
    await cutter(kernel, cuts, clock).look(cuts.take(clock.now()))
    assert cuts.next_due() == clock.now() + 1


async def test_clients_are_challenged_whose_connections_were_forgotten_before_the_kernel_failed() -> None:
    kernel = Kernel(*(connection(port) for port in range(1, 601)))
    cutting, forget = cutter(kernel), kernel.forget

    async def fails_in_part(family: Family, connections: list[TcpConnection]) -> int:
        await forget(family, connections)
        if len(connections) < 512:
            raise errors.KernelError("no answer")
        return len(connections)

    kernel.forget = fails_in_part  # type: ignore[method-assign]  # a kernel that fails
    with capture_logs() as logs:
        await cutting.look({"web": CUT})
    for _ in range(600 // 50):
        cutting.challenge()
    challenged = [event[1] for event in kernel.events if event[0] == "challenged"]
    assert challenged == list(range(1, 601))
    assert [entry.get("connections", entry.get("error")) for entry in logs] == [512, "no answer"]


async def test_what_keeps_clients_from_being_told_is_logged_once() -> None:
    kernel = Kernel(connection(1), connection(2))
    cutting = cutter(kernel)
    await cutting.look({"web": CUT})
    kernel.problem = PermissionError(1, "Operation not permitted")
    with capture_logs() as logs:
        cutting.challenge()
    assert [entry["error"] for entry in logs] == ["[Errno 1] Operation not permitted"]


def test_namespaces_take_turns() -> None:
    waiting = Challenges()
    waiting.add("many", [Challenge((CLIENT, port), (VIP, 80)) for port in range(1, 1000)])
    waiting.add("few", [Challenge((CLIENT, port), (VIP, 81)) for port in range(1, 4)])
    taken = waiting.take(10, 0)
    assert [port for port, _ in groupby(each.server[1] for each in taken)] == [80, 81] * 3 + [80]


def test_of_more_clients_than_can_wait_those_of_the_namespace_with_the_most_are_left_out() -> None:
    waiting = Challenges()
    crowd = [Challenge((CLIENT, 1), (VIP, 80))] * WAITING_MAX
    few = [Challenge((CLIENT, port), (VIP, 81)) for port in (1, 2)]
    assert waiting.add("many", crowd) == 0
    assert waiting.add("few", few) == 2
    assert waiting.add("many", crowd[:1]) == 1
    assert len(waiting) == WAITING_MAX
    taken = waiting.take(WAITING_MAX, 0)
    assert (taken.count(crowd[0]), [each for each in taken if each != crowd[0]]) == (WAITING_MAX - 2, few)


def test_namespaces_that_both_have_too_many_keep_equal_numbers() -> None:
    waiting = Challenges()
    waiting.add("a", [Challenge((CLIENT, 1), (VIP, 80))] * WAITING_MAX)
    waiting.add("b", [Challenge((CLIENT, 1), (VIP, 81))] * WAITING_MAX)
    waiting.add("c", [Challenge((CLIENT, 1), (VIP, 82))] * 100)
    counts = Counter(each.server[1] for each in waiting.take(WAITING_MAX, 0))
    assert counts == {80: WAITING_MAX // 2 - 50, 81: WAITING_MAX // 2 - 50, 82: 100}


def test_clients_that_were_challenged_once_make_room_for_others() -> None:
    waiting = Challenges()
    old, new = Challenge((CLIENT, 1), (VIP, 80)), Challenge((CLIENT, 2), (VIP, 80))
    waiting.add("many", [old] * WAITING_MAX)
    waiting.take(WAITING_MAX - 1, 0)
    assert waiting.add("few", [new] * 3) == 0
    assert len(waiting) == WAITING_MAX
    assert waiting.take(4, 1) == [old, new, new, new]
    assert waiting.take(WAITING_MAX, AGAIN_S).count(old) == WAITING_MAX - 4
    assert len(waiting) == 4, "those that were challenged last follow"
    assert waiting.add("many", [old] * (WAITING_MAX + 9)) == 9
