"""Which routes a node has for the addresses that it announces by BGP."""

import asyncio
from typing import Any

import pytest

from kube_nftlb.announce.bgp.earlier_routes import EarlierRoutes
from kube_nftlb.announce.bgp.routes import GOING_S, Address, Metric, Route, Routes, changes
from kube_nftlb.announce.bgp.routing import Routing
from kube_nftlb.announce.ownership.gate import Blocker, Reason

ME, IP = "node-1", "192.0.2.10"
PREFIX = f"{IP}/32"
BOTH, ONLY_ME, OTHER = frozenset(("node-1", "node-2")), frozenset(("node-1",)), frozenset(("node-2",))
SERVES, GOES = Route(PREFIX, Metric.SERVES), Route(PREFIX, Metric.GOES)


def why(reason: Reason) -> Blocker:
    return Blocker(reason, "because")


def address(
    nodes: frozenset[str] = BOTH, not_announce: Reason | None = None, not_keep: Reason | None = None
) -> Address:
    return Address(PREFIX, nodes, why(not_announce) if not_announce else None, why(not_keep) if not_keep else None)


def routed(routes: Routes, known: Address, now: float = 0.0) -> frozenset[Route]:
    return routes.decide({IP: known}, now)[0]


@pytest.fixture
def routes() -> Routes:
    """A node that announces the address."""
    made = Routes(ME)
    assert routed(made, address()) == {SERVES}
    return made


@pytest.mark.parametrize("reason", list(Reason))
def test_an_address_is_announced_only_once_nothing_is_against_it(reason: Reason) -> None:
    found = Routes(ME)
    assert routed(found, address(not_announce=reason)) == set()
    assert found.acts[IP].why_not == why(reason)
    assert routed(found, address()) == {SERVES}
    assert found.acts[IP].answer


@pytest.mark.parametrize(
    ("known", "at_once", "later"),
    [
        (address(), {SERVES}, {SERVES}),
        (address(OTHER), {GOES}, {GOES}),
        (address(not_announce=Reason.NOT_PROGRAMMED), {SERVES}, {SERVES}),
        (address(not_announce=Reason.NODE_LEAVES), {GOES}, set()),
        (address(ONLY_ME, Reason.NODE_LEAVES), {GOES}, {GOES}),
        (address(frozenset(), Reason.NODE_LEAVES), {GOES}, {GOES}),
        (address(not_announce=Reason.NODE_EXCLUDED), {GOES}, set()),
        (address(ONLY_ME, Reason.NOT_SELECTED), {GOES}, set()),
        (address(OTHER, Reason.NO_ENDPOINT), {GOES}, set()),
        (address(ONLY_ME, Reason.NO_ENDPOINT, Reason.NO_ENDPOINT), set(), set()),
        (address(BOTH, Reason.NOT_PROGRAMMED, Reason.NOT_PROGRAMMED), set(), set()),
    ],
    ids=[
        "serves",
        "its last endpoints terminate, and another node has others",
        "a newer generation is on its way",
        "the node leaves",
        "the node leaves, and no other serves",
        "all nodes leave",
        "the node is excluded",
        "the node is not selected",
        "its endpoints have gone, and another node has some",
        "no endpoint is left",
        "nothing is programmed any more",
    ],
)
def test_what_becomes_of_a_route(routes: Routes, known: Address, at_once: set[Route], later: set[Route]) -> None:
    assert routed(routes, known, 1.0) == at_once
    assert routed(routes, known, 1.0 + GOING_S) == later


def test_routers_have_two_seconds_from_when_another_node_is_to_have_the_address(routes: Routes) -> None:
    for now in (1.0, 30.0):
        assert routed(routes, address(frozenset(), Reason.NODE_LEAVES), now) == {GOES}
    for now, expected in ((31.0, {GOES}), (31.0 + GOING_S - 0.1, {GOES}), (31.0 + GOING_S, set())):
        assert routed(routes, address(OTHER, Reason.NODE_LEAVES), now) == expected


def test_a_route_that_was_about_to_go_serves_again(routes: Routes) -> None:
    assert routed(routes, address(not_announce=Reason.NODE_LEAVES), 1.0) == {GOES}
    assert routed(routes, address(), 2.0) == {SERVES}
    assert routed(routes, address(not_announce=Reason.NODE_LEAVES), 10.0) == {GOES}
    _, again = routes.decide({IP: address(not_announce=Reason.NODE_LEAVES)}, 10.0)
    assert again == 10.0 + GOING_S


@pytest.mark.parametrize("known", [address(), address(ONLY_ME), address(not_announce=Reason.NOT_PROGRAMMED)])
def test_an_agent_that_ends_has_routers_prefer_others_and_deletes_nothing(routes: Routes, known: Address) -> None:
    routes.leaving = True
    assert routes.serves
    for now in (1.0, 1.0 + GOING_S):
        assert routed(routes, known, now) == {GOES}
    assert not routes.serves


@pytest.mark.parametrize("reason", [Reason.NOT_PROGRAMMED, Reason.NODE_LEAVES])
def test_routes_of_an_earlier_agent_go_on(reason: Reason) -> None:
    found = Routes(ME)
    known = address(ONLY_ME, reason)
    found.adopt(EarlierRoutes([SERVES, GOES]).take([IP]))
    assert routed(found, known) == {SERVES if reason is Reason.NOT_PROGRAMMED else GOES}


def test_a_route_of_an_earlier_agent_stays_until_its_address_was_programmed_once() -> None:
    found, nothing_yet = Routes(ME), address(BOTH, Reason.NOT_PROGRAMMED, Reason.NOT_PROGRAMMED)
    found.adopt({IP: Metric.SERVES})
    assert routed(found, nothing_yet) == {SERVES}
    assert routed(found, nothing_yet, 3600.0) == {SERVES}
    assert routed(found, address(BOTH, Reason.NO_ENDPOINT)) == {GOES}
    assert routed(found, nothing_yet) == set()


def test_a_route_of_an_earlier_agent_goes_if_this_node_is_not_going_to_serve_it() -> None:
    found = Routes(ME)
    found.adopt({IP: Metric.SERVES})
    unserved = address(BOTH, Reason.NOT_PROGRAMMED, Reason.NOT_PROGRAMMED)._replace(is_served=False)
    assert routed(found, unserved) == set()


def test_routes_that_are_left_are_for_their_addresses_once() -> None:
    left = EarlierRoutes([SERVES, GOES, Route("198.51.100.0/24", Metric.GOES), Route("2001:db8::1/128", Metric.SERVES)])
    assert [ip in left for ip in (IP, "198.51.100.7", "2001:db8::1", "192.0.2.11", "2001:db8::2")] == [
        *(True, True, True),
        *(False, False),
    ]
    assert left.take([IP, "198.51.100.7", "192.0.2.11"]) == {IP: Metric.SERVES, "198.51.100.7": Metric.GOES}
    assert left.take([IP]) == {}
    assert left.rest == {Route("2001:db8::1/128", Metric.SERVES)}


def test_a_route_of_an_address_that_no_service_has_is_deleted(routes: Routes) -> None:
    wanted, again = routes.decide({}, 1.0)
    assert (len(wanted), again) == (0, None)
    assert list(routes.routed) == []


def test_an_aggregate_serves_as_long_as_one_of_its_addresses_does() -> None:
    found, aggregate = Routes(ME), address()._replace(prefix="192.0.2.0/24")
    goes = aggregate._replace(nodes=OTHER)
    blocked = aggregate._replace(why_not_announce=why(Reason.NOT_PROGRAMMED))
    wanted, _ = found.decide({IP: goes, "192.0.2.11": aggregate, "192.0.2.12": blocked}, 0.0)
    assert wanted == {Route("192.0.2.0/24", Metric.SERVES)}


def test_a_route_is_added_before_its_predecessor_is_deleted() -> None:
    made = changes({SERVES, Route("192.0.2.11/32", 100)}, {GOES, Route("192.0.2.11/32", 100)})
    assert (made.add, made.delete) == ((GOES,), (SERVES,))


class Kernel:
    """A table that refuses at first what it is told to."""

    def __init__(self, *routes: Route, refusals: int = 0) -> None:
        self.routes = set(routes)
        self.refusals = refusals
        self.history: list[set[Route]] = []

    def read(self) -> frozenset[Route]:
        return frozenset(self.routes)

    def apply(self, changes: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(1, "not permitted")
        self.routes = self.routes | set(changes.add)
        self.history.append(set(self.routes))
        self.routes -= set(changes.delete)


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_routes_are_kept_until_facts_come_and_then_as_they_say() -> None:
    kernel = Kernel(SERVES, Route("192.0.2.99/32", Metric.SERVES))
    routing = Routing(ME, kernel)
    task = asyncio.create_task(routing.run())
    await asyncio.sleep(0.05)
    assert len(kernel.routes) == 2
    routing.facts({IP: address(not_announce=Reason.NOT_PROGRAMMED)})
    await eventually(lambda: kernel.routes == {SERVES})
    routing.facts({IP: address(OTHER)})
    await eventually(lambda: kernel.routes == {GOES})
    assert all(kernel.history), "the address always had a route"
    await routing.give_up()
    assert kernel.routes == set()
    task.cancel()


async def test_what_is_routed_is_known_before_facts_and_what_has_none_yet_stays() -> None:
    other = Route("192.0.2.99/32", Metric.SERVES)
    kernel, read = Kernel(SERVES, other), asyncio.Event()
    routing = Routing(ME, kernel, on_read=read.set)
    assert routing.routed is None
    task = asyncio.create_task(routing.run())
    await read.wait()
    assert routing.routed is not None
    assert IP in routing.routed
    routing.facts({IP: address(OTHER)}, are_all=False)
    await eventually(lambda: kernel.routes == {GOES, other})
    assert "192.0.2.99" in routing.routed
    routing.facts({IP: address(OTHER)})
    await eventually(lambda: kernel.routes == {GOES})
    assert "192.0.2.99" not in routing.routed
    task.cancel()


async def test_an_agent_hands_over_before_it_ends_and_its_routes_stay() -> None:
    kernel = Kernel()
    routing = Routing(ME, kernel)
    task = asyncio.create_task(routing.run())
    routing.facts({IP: address()})
    await eventually(lambda: kernel.routes == {SERVES})
    await routing.hand_over()
    assert kernel.routes == {GOES}
    await asyncio.sleep(0.05)
    assert kernel.routes == {GOES}
    task.cancel()


async def test_a_table_that_cannot_be_written_is_tried_again_and_said() -> None:
    kernel = Kernel(refusals=1)
    routing = Routing(ME, kernel)
    task = asyncio.create_task(routing.run())
    routing.facts({IP: address()})
    await eventually(lambda: "not permitted" in routing.error)
    await eventually(lambda: kernel.routes == {SERVES})
    assert routing.error == ""
    task.cancel()


async def test_an_error_is_over_once_the_route_that_had_it_is_not_wanted() -> None:
    kernel = Kernel(refusals=1000)
    routing = Routing(ME, kernel)
    task = asyncio.create_task(routing.run())
    routing.facts({IP: address()})
    await eventually(lambda: "not permitted" in routing.error)
    routing.facts({})
    await eventually(lambda: routing.error == "")
    task.cancel()


async def test_a_route_that_is_refused_hides_no_other() -> None:
    class Refusing(Kernel):
        def apply(self, changes: Any) -> None:
            super().apply(changes._replace(add=[route for route in changes.add if route != SERVES]))
            raise OSError(28, "no space left")

    kernel, seen = Refusing(), [0]
    routing = Routing(ME, kernel, on_change=lambda: seen.append(routing.prefixes))
    task = asyncio.create_task(routing.run())
    routing.facts({IP: address(), "192.0.2.11": address()._replace(prefix="192.0.2.11/32")})
    await eventually(lambda: seen[-1] == 1)
    assert "no space left" in routing.error
    task.cancel()
