"""The flows and sessions of a farm that are forgotten when it changes."""

from dataclasses import replace

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftlb import plan, stale_connections
from kube_nftlb.agent.engine.nftlb.stale_connections import Stale, StaleConnections
from kube_nftlb.nftlb import objects
from tests.builders.nftlb import address, backend, farm


def left(before: objects.Farm | None, after: objects.Farm | None) -> Stale:
    """Return what the steps from one to the other leave behind."""
    present = {before.name: before} if before else {}
    wanted = {"f": after}
    return stale_connections.stale_after(plan.steps(present, wanted), wanted, present)


def closed_at(found: Stale) -> set[str]:
    """The addresses where nobody listens any more."""
    return {address.ip for farm in found.closed for address in farm.addresses.values()}


class Engine:
    """Notes what it is to forget."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    async def forget_farm(self, farm: objects.Farm) -> None:
        self.told.append(("forget", farm.name))

    async def forget_flows(self, name: str, marks: set[int]) -> None:
        self.told.append(("forget flows", name, marks))

    async def release(self, name: str, marks: set[int]) -> None:
        self.told.append(("part", name, marks))

    async def cut(self, name: str, addresses: frozenset[str]) -> None:
        self.told.append(("cut", name, addresses))

    async def forget_untranslated(self, name: str) -> None:
        self.told.append(("forget untranslated", name))


def test_a_backend_more_leaves_nothing_behind() -> None:
    before = farm("f", backend("a", 2))
    assert left(before, farm("f", backend("a", 2), backend("b", 3))) == Stale([], {}, {}, set())


def test_a_backend_that_goes_leaves_its_mark() -> None:
    before = farm("f", backend("a", 2), backend("b", 3))
    assert left(before, farm("f", backend("b", 3))).gone == {"f": {2}}


def test_a_backend_that_gets_another_port_under_its_name_has_moved() -> None:
    found = left(farm("f", backend("a", 2), backend("b", 3)), farm("f", backend("a", 2, port="9090"), backend("b", 3)))
    assert (found.moved, found.gone) == ({"f": {2}}, {})


def test_a_mark_that_becomes_another_backends_has_moved() -> None:
    found = left(farm("f", backend("old", 5)), farm("f", backend("new", 5)))
    assert (found.moved, found.gone) == ({"f": {5}}, {})


def test_a_backend_that_is_only_put_off_has_not_moved() -> None:
    assert left(farm("f", backend("a", 2)), farm("f", backend("a", 2, state="off"))).moved == {}


def test_a_farm_that_goes_closes_all_listeners_and_an_address_its_own() -> None:
    both = farm("f", backend("a", 2), addresses=[address("10.96.0.10"), address("10.96.0.11")])
    one = farm("f", backend("a", 2), addresses=[address("10.96.0.11")])
    assert closed_at(left(both, None)) == {"10.96.0.10", "10.96.0.11"}
    assert closed_at(left(both, one)) == {"10.96.0.10"}


def test_a_farm_begins_with_its_first_backend_or_another_address() -> None:
    empty, serving = farm("f"), farm("f", backend("a", 2))
    assert left(None, serving).begun == {"f"}
    assert left(empty, serving).begun == {"f"}
    assert left(farm("f", backend("a", 2, state="off")), serving).begun == {"f"}
    assert left(serving, farm("f", backend("a", 2), addresses=[address("10.96.0.11")])).begun == {"f"}
    assert left(None, empty).begun == set()
    assert left(serving, replace(serving, options={"mode": "dnat"})).begun == set()


async def test_what_is_left_is_looked_for_again_until_its_time_is_up() -> None:
    engine = Engine()
    open_ = StaleConnections(engine)
    open_.expect(Stale([], {}, {"f": {2}}, {"f"}))
    await open_.clean({"f": frozenset({"10.244.1.2"})}, now=100)
    once = [("part", "f", {2}), ("cut", "f", frozenset({"10.244.1.2"})), ("forget untranslated", "f")]
    assert engine.told == once
    await open_.again(101)
    assert engine.told == once * 2
    await open_.again(100.1 + stale_connections.WATCH_S)
    assert engine.told == once * 3, "a connection that was begun at the end of that time"
    await open_.again(200)
    assert engine.told == once * 3


async def test_backends_that_go_one_after_the_other_are_all_looked_for() -> None:
    engine = Engine()
    open_ = StaleConnections(engine)
    open_.expect(Stale([], {}, {"f": {2}}, set()))
    await open_.clean({}, now=100)
    open_.expect(Stale([], {}, {"f": {3}}, set()))
    await open_.clean({}, now=101)
    await open_.again(101.5)
    assert engine.told[-1] == ("part", "f", {2, 3})


async def test_flows_to_what_is_closed_or_moved_are_forgotten_at_once() -> None:
    engine = Engine()
    open_ = StaleConnections(engine)
    open_.expect(Stale([farm("f")], {"g": {4}}, {}, set()))
    await open_.clean({}, now=100)
    assert engine.told == [("forget", "f"), ("forget flows", "g", {4})]


async def test_what_steps_left_behind_that_broke_off_is_not_lost() -> None:
    engine = Engine()
    open_ = StaleConnections(engine)
    open_.expect(Stale([farm("f")], {}, {"g": {2}}, set()))
    open_.expect(Stale([], {}, {"g": {3}}, set()))
    await open_.clean({}, now=100)
    assert engine.told == [("forget", "f"), ("part", "g", {2, 3})]
    await open_.clean({}, now=101)
    assert len(engine.told) == 2


async def test_what_the_kernel_refuses_for_good_does_not_fail_each_pass() -> None:
    class Refusing(Engine):
        async def forget_farm(self, farm: objects.Farm) -> None:
            await super().forget_farm(farm)
            raise errors.KernelError("refused")

    engine = Refusing()
    open_ = StaleConnections(engine)
    open_.expect(Stale([farm("f")], {}, {}, set()))
    refused = 0
    for now in range(20):
        try:
            await open_.clean({}, now)
        except errors.KernelError:
            refused += 1
    assert 2 <= refused == len(engine.told) <= 5
