"""Two engines as one: who serves a farm, in which order it moves, and what goes on without nftlb."""

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.engine.engines import AWAY_AFTER_S, Engines
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.apply import Applier, Outcome
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.agent.table import layout, policies
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from tests.builders import farm, raw_backend
from tests.fakes.clock import FakeClock
from tests.fakes.conntrack import no_connections
from tests.fakes.engine import FakeEngine
from tests.fakes.nft import FakeNft

HERE = NodeFacts("here")


class Both:
    def __init__(self) -> None:
        self.nftables, self.nftlb = FakeEngine(), FakeEngine()
        self.clock, self.table = FakeClock(), AgentTable(FakeNft())
        self.engines = Engines(self.nftables, self.nftlb, self.clock)
        self.applier = Applier(self.engines, self.table, no_connections(self.clock))
        self.sent: list[tuple[str, str, bool]] = []
        """The engine, the farm, and True if the engine gets it."""
        for name, engine in (("nftables", self.nftables), ("nftlb", self.nftlb)):
            self._record(name, engine)

    def _record(self, name: str, engine: FakeEngine) -> None:
        apply = engine.apply

        async def recorded(changes: FarmChanges) -> Applied:
            self.sent += [(name, farm, changes[farm] is not None) for farm in changes]
            return await apply(changes)

        engine.apply = recorded  # type: ignore[method-assign] # a fake that tells more

    async def put(self, *served: NodeFarm) -> Outcome:
        return await self.applier.apply([FarmChange(each.name, each) for each in served])


def served(engine: str, name: str = "web--http", ip: str = "10.96.0.10") -> NodeFarm:
    wanted = farm(name, addresses=[{"ip": ip, "ports": "80"}], engine=engine)
    return node_farm(wanted, NodeFacts("here"), None)


@pytest.fixture
def both() -> Both:
    return Both()


@pytest.mark.parametrize("engine", ["nftlb", "nftables"])
async def test_a_farm_is_served_by_the_engine_that_it_names(both: Both, engine: str) -> None:
    await both.put(served(engine))
    assert both.sent == [(engine, "web--http", True)]
    assert both.engines.sent["web--http"].engine == engine
    assert both.engines.owners(list(served(engine).listeners)) == {"web--http"}
    await both.applier.apply([FarmChange("web--http")])
    assert not both.engines.sent


@pytest.mark.parametrize(("before", "after"), [("nftlb", "nftables"), ("nftables", "nftlb")])
async def test_a_farm_that_moves_is_added_before_it_is_removed(both: Both, before: str, after: str) -> None:
    await both.put(served(before))
    both.sent.clear()
    await both.put(served(after))
    assert both.sent == [(after, "web--http", True), (before, "web--http", False)]
    left = both.nftlb if before == "nftlb" else both.nftables
    assert not left.farms


async def test_what_gets_the_address_of_a_farm_that_moves_to_nftlb_gets_it_as_that_leaves(both: Both) -> None:
    await both.put(served("nftables", "f"))
    outcome = await both.put(served("nftables", "g"), served("nftlb", "f", "10.96.0.11"))
    assert not outcome.refused
    assert both.nftables.farms.keys() == {"g"}
    assert both.nftlb.farms.keys() == {"f"}


async def test_what_gets_the_address_of_such_a_successor_waits_with_it(both: Both) -> None:
    await both.put(served("nftables", "f"), served("nftables", "h", "10.96.0.12"))
    changes = served("nftables", "g", "10.96.0.12"), served("nftables", "h"), served("nftlb", "f", "10.96.0.11")
    outcome = await both.put(*changes)
    assert not outcome.refused
    assert {name: [each.ip for each in farm.addresses] for name, farm in both.nftables.farms.items()} == {
        "g": ["10.96.0.12"],
        "h": ["10.96.0.10"],
    }


async def test_what_gets_the_address_of_such_a_successor_is_refused_with_it(both: Both) -> None:
    await both.put(served("nftables", "f"), served("nftables", "h", "10.96.0.12"))
    both.nftlb.refused["f"] = "no"
    changes = served("nftables", "g", "10.96.0.12"), served("nftables", "h"), served("nftlb", "f", "10.96.0.11")
    outcome = await both.put(*changes)
    assert outcome.refused.keys() == {"f", "g", "h"}
    assert both.nftables.farms.keys() == {"f", "h"}


async def test_what_gets_the_address_of_a_farm_that_cannot_move_to_nftlb_is_refused(both: Both) -> None:
    await both.put(served("nftables", "f"))
    both.nftlb.refused["f"] = "no"
    outcome = await both.put(served("nftables", "g"), served("nftlb", "f", "10.96.0.11"))
    assert outcome.refused.keys() == {"f", "g"}
    assert both.nftables.farms.keys() == {"f"}


@pytest.mark.parametrize("was_there", [False, True], ids=["new", "as an earlier move left it"])
async def test_a_farm_that_the_kernel_does_not_take_of_nftlb_stays_in_nftables(both: Both, *, was_there: bool) -> None:
    await both.put(served("nftables"))
    assert await both.engines.drift("web--http") is None
    if was_there:
        both.nftlb.farms["web--http"] = served("nftlb")
    both.nftlb.deviations["web--http"] = "a listener is missing in the kernel"
    both.nftlb.irreparable.add("web--http")
    both.sent.clear()
    outcome = await both.put(served("nftlb"))
    assert outcome.refused == {"web--http": "a listener is missing in the kernel"}
    assert both.sent == [("nftlb", "web--http", True), ("nftlb", "web--http", False)]
    assert (list(both.nftables.farms), list(both.nftlb.farms)) == (["web--http"], [])
    assert await both.applier.revert("web--http")
    both.nftlb.deviations.clear()
    assert not (await both.put(served("nftlb"))).refused
    assert (list(both.nftables.farms), list(both.nftlb.farms)) == ([], ["web--http"])


async def test_a_farm_that_moves_to_nftlb_is_repaired_there_once_before_it_stays(both: Both) -> None:
    await both.put(served("nftables"))
    both.nftlb.deviations["web--http"] = "a listener is missing in the kernel"
    assert not (await both.put(served("nftlb"))).refused
    assert both.nftlb.repaired == ["web--http"]
    assert (list(both.nftables.farms), list(both.nftlb.farms)) == ([], ["web--http"])


async def test_a_farm_that_nftlb_refuses_to_repair_stays_in_nftables_and_holds_no_other(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    await both.put(served("nftables"))
    both.nftlb.deviations["web--http"] = "a listener is missing in the kernel"

    async def repair(_: str | None = None) -> None:
        raise errors.NftlbError(409, "no")

    monkeypatch.setattr(both.nftlb, "repair", repair)
    changes = [FarmChange(each.name, each) for each in (served("nftlb"), served("nftlb", "other", "10.96.0.11"))]
    assert (await both.applier.apply(changes)).refused == {"web--http": "nftlb answered 409: no"}
    assert (list(both.nftables.farms), list(both.nftlb.farms)) == (["web--http"], ["other"])


async def test_a_farm_that_nftlb_has_and_does_not_let_change_stays_in_nftables(both: Both) -> None:
    await both.put(served("nftables"))
    both.nftlb.farms["web--http"] = served("nftlb", ip="10.96.0.11")
    both.nftlb.refused["web--http"] = "no"
    assert (await both.put(served("nftlb"))).refused == {"web--http": "no"}
    assert list(both.nftables.farms) == ["web--http"]


async def test_a_farm_that_the_other_engine_cannot_serve_stays(both: Both) -> None:
    both.nftables.blockers["web--http"] = Blocker("Unsupported", "no")
    assert both.engines.unsupported(served("nftables")) is not None
    assert both.engines.unsupported(served("nftlb")) is None


async def test_without_nftlb_its_farms_wait_and_others_go_on(both: Both) -> None:
    await both.put(served("nftables"))
    both.nftlb.reachable = False
    await both.engines.load()
    assert both.engines.unreachable
    blocked = both.engines.unsupported(served("nftlb"))
    assert blocked is not None
    assert blocked.reason == "NftlbUnreachable"
    await both.put(served("nftables", "other", "10.96.0.11"))
    assert both.engines.sent.keys() == {"web--http", "other"}
    both.nftlb.asks_seldom = True
    assert await both.engines.maintain(busy=False) is None
    assert both.engines.unreachable
    both.nftlb.reachable = True
    with pytest.raises(errors.EngineUnreachableError, match="reachable again"):
        await both.engines.maintain(busy=False)
    await both.engines.load()
    assert not both.engines.unreachable
    assert await both.engines.maintain(busy=False) is None, "it is told once"


async def test_an_nftlb_that_answers_but_does_not_tell_its_farms_stays_away(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    await both.put(served("nftables"))

    async def load() -> bool:
        raise errors.EngineUnreachableError("garbage")

    monkeypatch.setattr(both.nftlb, "load", load)
    await both.engines.load()
    assert await both.engines.maintain(busy=False) is None
    assert both.engines.unreachable == "garbage"
    monkeypatch.undo()
    with pytest.raises(errors.EngineUnreachableError, match="reachable again"):
        await both.engines.maintain(busy=False)


async def test_everybody_is_told_once_of_an_nftlb_that_was_read_again_before_it_was_asked(both: Both) -> None:
    await both.put(served("nftables"))
    both.nftlb.reachable = False
    await both.engines.load()
    both.nftlb.reachable = True
    await both.engines.load()
    assert not both.engines.unreachable
    with pytest.raises(errors.EngineUnreachableError, match="reachable again"):
        await both.engines.maintain(busy=False)
    await both.engines.load()
    assert await both.engines.maintain(busy=False) is None


async def test_an_nftlb_that_was_restarted_without_all_its_farms_is_loaded_anew_though_they_were_read(
    both: Both,
) -> None:
    await both.put(served("nftlb"))
    assert await both.engines.drift("web--http") is None
    both.nftlb.farms.clear()
    both.nftlb.was_restarted = True
    assert not both.engines.restarted(), "nothing that it has is to be adopted"
    with pytest.raises(errors.EngineUnreachableError, match="reloading"):
        await both.engines.maintain(busy=False)


async def test_others_are_lost_if_nftlb_was_restarted_or_lacks_what_it_had_but_not_if_it_lacked_it_before(
    both: Both,
) -> None:
    await both.put(served("nftlb"))
    assert await both.engines.drift("web--http") is None
    assert not await both.engines.reload("web--http")
    assert await both.engines.drift("web--http") is None
    both.nftlb.farms.clear()
    assert not await both.engines.reload("web--http")
    both.nftlb.was_restarted = True
    assert await both.engines.reload("web--http"), "though nobody knows of a farm that it had"
    assert not await both.engines.reload("web--http")


async def test_a_change_for_nftlb_that_goes_meanwhile_is_decided_again(both: Both) -> None:
    await both.put(served("nftables"))
    both.nftlb.reachable = False
    change = served("nftlb", "other", "10.96.0.11")
    applied = await both.applier.apply([FarmChange(change.name, change)])
    assert applied.decide_again
    assert both.engines.unsupported(change) is not None


async def test_where_only_nftlb_serves_its_absence_is_everybody_s(both: Both) -> None:
    await both.put(served("nftlb"))
    both.nftlb.reachable = False
    with pytest.raises(errors.EngineUnreachableError):
        await both.engines.load()


async def test_an_nftlb_that_hangs_is_left_at_once_and_one_that_is_away_after_a_while(both: Both) -> None:
    await both.engines.load()
    both.nftlb.reachable = False
    for _ in range(2):
        with pytest.raises(errors.EngineUnreachableError):
            await both.engines.load()
    both.clock.time += AWAY_AFTER_S
    await both.engines.load()
    assert both.engines.unreachable == "connection refused"
    both.nftlb.reachable = True
    await both.engines.load()
    both.nftlb.reachable, both.nftlb.hangs = False, True
    await both.engines.load()
    assert both.engines.unreachable


async def test_an_nftlb_whose_farms_were_never_read_is_waited_for(both: Both) -> None:
    both.nftlb.farms["web--http"] = served("nftlb")
    both.nftlb.reachable, both.nftlb.hangs = False, True
    both.clock.time += AWAY_AFTER_S
    with pytest.raises(errors.NftlbHangsError):
        await both.engines.load()


async def test_on_a_node_where_nftlb_never_had_farms_the_others_are_not_kept_waiting(both: Both) -> None:
    both.nftlb.reachable = False
    with pytest.raises(errors.EngineUnreachableError):
        await both.engines.load()
    both.clock.time += AWAY_AFTER_S
    await both.engines.load()
    await both.put(served("nftables"))
    assert both.engines.sent.keys() == {"web--http"}


async def test_without_nftlb_what_keeps_clients_out_is_still_written(both: Both) -> None:
    await both.put(served("nftlb"))
    await both.engines.load()
    both.nftlb.reachable, both.nftlb.hangs = False, True
    await both.engines.load()
    ranges = layout.refused(served("nftlb").listeners)
    change = FarmChange("web--http", keep=True, overlay=ranges, policies=ranges, policies_after=ranges)
    await both.applier.apply([change, FarmChange("unknown")])
    assert both.table.owned("web--http") == ranges
    assert both.table.owned(policies.rules_owner("web--http")) == ranges
    assert list(both.engines.sent) == ["web--http"]


async def test_clients_of_a_farm_that_is_withdrawn_without_nftlb_are_refused_unless_another_has_its_address(
    both: Both,
) -> None:
    await both.put(served("nftlb"))
    await both.engines.load()
    both.nftlb.reachable, both.nftlb.hangs = False, True
    await both.engines.load()
    await both.applier.apply([FarmChange("web--http")])
    given_up = layout.given_up(served("nftlb").listeners)
    assert both.table.owned("web--http") == given_up
    other = served("nftables", "other")
    await both.applier.apply([FarmChange(other.name, other), FarmChange("web--http")])
    assert both.table.owned("web--http") == given_up, "which is looked up for what the engine nftables does not serve"


async def test_clients_of_an_address_that_a_farm_leaves_with_nftlb_which_is_away_are_refused_unless_another_has_it(
    both: Both,
) -> None:
    addresses = [{"ip": ip, "ports": "80"} for ip in ("10.96.0.10", "10.96.0.11")]
    await both.put(node_farm(farm(addresses=addresses, engine="nftlb"), NodeFacts("here"), None))
    await both.engines.load()
    both.nftlb.reachable, both.nftlb.hangs = False, True
    await both.engines.load()
    moved, taking = served("nftables"), served("nftables", "taking", "10.96.0.11")
    left = layout.given_up(taking.listeners).elements
    refused: list[bool] = []
    apply = both.nftables.apply

    async def seen(changes: FarmChanges) -> Applied:
        refused.append(left <= both.table.owned(moved.name).elements)
        return await apply(changes)

    both.nftables.apply = seen  # type: ignore[method-assign] # a fake that tells more
    await both.applier.apply([FarmChange(moved.name, moved), FarmChange(taking.name, taking)])
    assert refused == [False], "its clients go from one farm to the other"
    assert left <= both.table.owned(moved.name).elements
    await both.applier.apply([FarmChange(taking.name)])
    assert refused == [False, True], "nftlb never serves them for the farm that has left"
    both.nftlb.reachable = True
    await both.engines.load()
    waiting = served("nftlb", "waiting", "10.96.0.11")
    both.applier.expect([FarmChange(moved.name, moved), FarmChange(waiting.name, waiting)], {})
    assert left <= both.table.owned(moved.name).elements, "it still has that farm, and not the one that is to be there"
    await both.applier.apply([FarmChange(moved.name, moved), FarmChange(waiting.name, waiting)])
    assert list(both.nftlb.farms) == [waiting.name]
    assert not both.table.owned(moved.name).elements & (left | layout.given_up(moved.listeners).elements)


async def test_clients_of_a_whole_address_stay_refused_where_another_farm_has_a_port_of_it(both: Both) -> None:
    addresses, backends = [{"ip": "10.96.0.10"}], [raw_backend("a", "10.244.0.2", port=None)]
    whole = node_farm(farm("whole", addresses=addresses, protocol="All", backends=backends), HERE, None)
    await both.put(whole)
    await both.engines.load()
    both.nftlb.reachable, both.nftlb.hangs = False, True
    await both.engines.load()
    port = served("nftables")
    rules = layout.refused(whole.listeners)
    waits = FarmChange(whole.name, keep=True, overlay=rules, policies=rules, policies_after=rules)
    await both.applier.apply([FarmChange(port.name, port), waits])
    assert both.table.owned(whole.name) == layout.given_up(whole.listeners), "its rules would be for both"
    await both.applier.apply([FarmChange(whole.name)])
    assert both.table.owned(whole.name) == layout.given_up(whole.listeners)


async def test_drift_of_either_engine_is_found_and_repaired_there(both: Both) -> None:
    await both.put(served("nftables"))
    await both.put(served("nftlb", "other", "10.96.0.11"))
    both.nftlb.deviations[None] = "a chain was changed"
    assert await both.engines.drift() == "a chain was changed"
    await both.engines.repair()
    assert (both.nftables.repaired, both.nftlb.repaired) == ([], [None])
    both.nftables.deviations["web--http"] = "a listener is gone"
    assert await both.engines.drift("web--http") == "a listener is gone"
    await both.engines.repair("web--http")
    assert both.nftables.repaired == ["web--http"]
    assert await both.engines.drift("nobody") == "no engine has it"


async def test_a_farm_of_an_absent_nftlb_has_no_rules_where_the_other_engine_serves_another(both: Both) -> None:
    loser, winner = served("nftlb"), served("nftables", "winner")
    await both.put(loser)
    await both.engines.load()
    both.nftlb.reachable, both.nftlb.hangs = False, True
    await both.engines.load()
    # Each is for a listener: the one that is lost, and one that stays.
    rules = layout.refused([*loser.listeners, Listener("10.96.0.10", "TCP", 81)])
    waits = FarmChange(loser.name, keep=True, overlay=rules, policies=rules, policies_after=rules)
    rest, given_up = layout.refused([Listener("10.96.0.10", "TCP", 81)]), layout.given_up(loser.listeners)
    owners = (loser.name, policies.rules_owner(loser.name))
    await both.applier.apply([FarmChange(winner.name, winner), waits])
    assert [both.table.owned(owner) for owner in owners] == [rest | given_up, rest]
    # So it does where the loop begins again.
    both.applier.expect([FarmChange(winner.name, winner), waits], {})
    assert [both.table.owned(owner) for owner in owners] == [rest | given_up, rest]
    await both.applier.apply([FarmChange(winner.name)])
    assert [both.table.owned(owner) for owner in owners] == [rest | given_up, rest], "nobody is let in whom it kept out"
