"""The loop when the engine or the kernel fails, as a whole or for one farm."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.dsr.modes import Links, PodLink
from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.farm_objects import parse
from kube_nftlb.agent.model import Blocker
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import farm, raw_backend, raw_farm
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node
from tests.unit.agent.sync.test_reconciler import at

RANGES = [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]


async def test_an_engine_that_comes_back_gets_what_waited(node: Node) -> None:
    node.engine.reachable = False
    node.list([farm(version=15)], 20)
    await until(lambda: bool(node.loop.progress.engine_error))
    assert node.loop.progress.watermark < 15
    assert node.loop.progress.engine_error == "connection refused"
    node.engine.reachable = True
    await node.settle(20)
    assert list(node.engine.farms) == ["web--http"]
    await until(lambda: not node.loop.progress.engine_error)


async def test_an_unreachable_engine_is_retried_after_a_while(node: Node) -> None:
    node.engine.reachable = False
    loads = list[float]()
    load = node.engine.load

    async def noted() -> bool:
        loads.append(node.clock.now())
        return await load()

    node.engine.load = noted  # type: ignore[method-assign]  # noted, and called
    node.list([farm()], 20)
    await until(lambda: len(loads) >= 11)
    assert {round(later - earlier, 3) for earlier, later in pairwise(loads)} == {Timing().retry_s}


async def test_an_unreachable_engine_is_noticed_without_a_change(node: Node) -> None:
    await node.program([farm()], 20)
    node.engine.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))
    await node.passes(1)
    assert node.loop.progress.lag.waiting_since is None, "nothing waits"


async def test_changes_lag_while_the_engine_is_unreachable(node: Node) -> None:
    lag = node.loop.progress.lag
    assert lag.done_at is None
    node.list([farm()], 20)
    await until(lambda: lag.done_at is not None and lag.waiting_since is None)
    node.engine.reachable = False
    node.put(farm(generation=2, version=21, scheduler="weight"))
    await until(lambda: lag.overdue(0.1, node.clock.now()))
    node.engine.reachable = True
    await until(lambda: lag.waiting_since is None)


async def test_an_agent_that_has_never_reached_its_engine_has_done_nothing(node: Node) -> None:
    node.engine.reachable = False
    node.list([], 20)
    await until(lambda: bool(node.loop.progress.engine_error))
    assert node.loop.progress.lag.done_at is None
    node.engine.reachable = True
    await until(lambda: node.loop.progress.lag.done_at is not None)


async def test_an_unexpected_exception_does_not_end_the_loop(node: Node) -> None:
    await node.program([farm()], 20)
    node.engine.error = ValueError("nobody thought of this")
    began = node.clock.now()
    await node.change(farm(generation=2, version=21, scheduler="weight"))
    assert node.clock.now() - began >= Timing().unexpected_s
    assert any("nobody thought of this" in error for error in node.errors)
    assert node.engine.farms["web--http"].version.generation == 2
    assert node.loop.progress.last_error is None, "it is over"


async def test_a_refusal_of_the_whole_pass_is_retried(node: Node) -> None:
    node.engine.error = errors.KernelError("busy")
    await node.program([farm()], 20)
    assert "busy" in node.errors
    assert node.loop.progress.last_error is None, "it is over"
    assert node.loop.progress.engine_error is None


async def test_a_farm_that_is_refused_is_taken_out_and_retried(node: Node) -> None:
    await node.program([farm("good--http")], 20)
    node.engine.refused["bad--http"] = "out of marks"
    await node.change(farm("bad--http", addresses=at("10.96.0.11"), version=21))
    assert list(node.engine.farms) == ["good--http"]
    assert node.reason("bad--http") == "Refused"
    assert "out of marks" in node.loop.progress.problems[WEB._replace(name="bad--http")].message
    assert [name for name, _ in node.engine.changes] == ["good--http"]
    node.engine.refused.clear()
    await until(lambda: not node.loop.progress.problems)
    assert sorted(node.engine.farms) == ["bad--http", "good--http"]


async def test_a_farm_that_is_refused_again_and_again_is_retried_ever_less_often(node: Node) -> None:
    tried_at: list[float] = []
    apply = node.engine.apply

    async def noted(changes: FarmChanges) -> Applied:
        if any(changes.values()):
            tried_at.append(node.clock.now())
        return await apply(changes)

    node.engine.apply = noted  # type: ignore[method-assign]  # noted, and called
    node.engine.refused["web--http"] = "no"
    node.list([farm()], 20)
    await until(lambda: len(tried_at) >= 2)
    compared = node.engine.compared.count(None)
    await until(lambda: len(tried_at) >= 5)
    assert node.engine.compared.count(None) == compared, "a farm that the engine does not have spoils nothing"
    await until(lambda: len(tried_at) >= 10)
    delays = [later - earlier for earlier, later in pairwise(tried_at)]
    assert delays[0] < 3
    assert sorted(delays[:7]) == delays[:7]
    assert delays[-1] >= Timing().back_off_s
    assert node.engine.repaired == []


async def test_a_farm_without_backends_refuses_clients_and_has_not_failed(node: Node) -> None:
    await node.program([farm(backends=[])], 20)
    assert (node.state.may_serve(WEB), node.state.has_failed(WEB)) == (False, False)


async def test_a_farm_is_served_whose_change_is_refused_and_one_that_was_never_taken_or_refuses_clients_is_not(
    node: Node,
) -> None:
    node.engine.refused["web--http"] = "out of memory"
    await node.program([farm()], 20)
    assert (node.state.may_serve(WEB), node.state.has_failed(WEB)) == (False, True)
    node.engine.refused.clear()
    await node.change(farm(generation=2, version=21))
    assert node.state.may_serve(WEB)
    node.engine.refused["web--http"] = "out of memory"
    await node.change(farm(generation=3, version=22, scheduler="weight"))
    assert (node.reason(), node.state.may_serve(WEB)) == ("Refused", True)
    node.engine.refused.clear()
    node.engine.blockers["web--http"] = Blocker("PortsDiffer", "no", refuse_clients=True)
    await node.change(farm(generation=4, version=23))
    assert not node.state.may_serve(WEB)


async def test_a_farm_may_be_served_that_only_an_nftlb_knows_that_is_away(node: Node) -> None:
    other = farm("other--http", engine="nftables", addresses=[{"ip": "10.96.0.11", "ports": "80"}])
    await node.program([farm(), other], 20)
    await node.restart_agent()
    node.engine.farms.clear()
    node.engine.reachable, node.engine.hangs = False, True
    await node.program([farm(), other], 20)
    assert node.reason() == "NftlbUnreachable"
    assert node.state.may_serve(WEB)


async def test_an_update_that_is_refused_leaves_the_farm_as_it_was_and_is_retried(node: Node) -> None:
    await node.program([farm()], 20)
    node.engine.refused["web--http"] = "out of memory"
    await node.change(farm(generation=2, version=21, scheduler="weight"))
    assert node.reason() == "Refused"
    problem = node.loop.progress.problems[WEB]
    assert (problem.generation, "out of memory" in problem.message) == (2, True)
    assert "it stays as it was" in problem.message
    assert node.engine.farms["web--http"].version.generation == 1, "it is served all the same"
    await node.passes(3 * Timing().audit_every_s)
    assert node.reason() == "Refused"
    assert node.loop.progress.drift_repaired == 0, "a refusal is no drift"
    assert node.engine.farms["web--http"].version.generation == 1
    node.engine.refused.clear()
    await until(lambda: not node.loop.progress.problems)
    assert node.engine.farms["web--http"].version.generation == 2


@pytest.mark.parametrize("first", ["is verified", "is not verified yet"])
async def test_a_refused_change_never_counts_as_programmed_though_the_farm_changes_again(first: str) -> None:
    node = Node(Timing(verify_within_s=-1 if first == "is not verified yet" else 3))
    node.start([])
    await node.program([farm()], 20)
    node.engine.refused["web--http"] = "out of memory"
    apply, tried, turns = node.engine.apply, asyncio.Event(), asyncio.Semaphore(0)

    async def applied(changes: FarmChanges) -> Applied:
        outcome = await apply(changes)
        tried.set()
        await turns.acquire()
        return outcome

    def claims() -> bool:
        return node.loop.progress.watermark >= 21 and WEB not in node.loop.progress.failed

    node.engine.apply = applied  # type: ignore[method-assign]  # noted, and called
    node.put(farm(generation=2, version=21, scheduler="weight"))
    await tried.wait()
    if first == "is verified":
        turns.release()
        await node.settle(21)
        assert node.reason() == "Refused"
    tried.clear()
    node.put(farm(generation=3, version=30, scheduler="hash"))
    assert not claims()
    turns.release()
    await tried.wait()
    assert not claims(), "the kernel has neither change"
    node.engine.refused.clear()
    for _ in range(10):
        turns.release()
    await until(claims)
    assert node.engine.farms["web--http"].version.generation == 3
    await node.stop()


async def test_a_farm_that_changes_all_the_time_holds_no_watermark() -> None:
    node = Node(Timing(verify_within_s=-1))
    node.start([])
    await node.program([farm()], 20)
    apply = node.engine.apply
    version = 20

    async def applied(changes: FarmChanges) -> Applied:
        nonlocal version
        outcome = await apply(changes)
        version += 1
        node.put(farm(generation=version, version=version, scheduler=("weight", "rr")[version % 2]))
        await asyncio.sleep(0)
        return outcome

    node.engine.apply = applied  # type: ignore[method-assign]  # noted, and called
    node.put(farm(generation=2, version=20, scheduler="weight"))
    await until(lambda: node.loop.progress.watermark > 40)
    assert WEB in node.state.queue.waiting, "it has changed again"
    assert not node.loop.progress.problems
    await node.stop()


async def test_an_update_that_the_kernel_silently_refuses_leaves_the_farm_as_it_was(node: Node) -> None:
    await node.program([farm()], 20)
    revert = node.engine.revert

    async def reverted(name: str) -> bool:
        node.engine.deviations.clear()
        return await revert(name)

    node.engine.revert = reverted  # type: ignore[method-assign]  # the kernel has what it had
    node.engine.repair = node.engine.forget_stale  # type: ignore[assignment, method-assign]  # repairs nothing
    node.engine.deviations["web--http"] = "no such backend"
    await node.change(farm(generation=2, version=21, scheduler="weight"))
    assert node.reason() == "Refused"
    assert node.engine.farms["web--http"].version.generation == 1


@pytest.mark.parametrize("during", ["the plan", "the verification"])
async def test_a_farm_that_is_deleted_while_a_problem_of_it_is_found_is_not_reported_for_ever(
    node: Node, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    await node.program([farm()], 20)
    if during == "the plan":
        node.engine.blockers["web--http"] = Blocker("Unsupported", "no")
    else:
        node.engine.refused["web--http"] = "out of memory"
    works, method = (node.pod_links, "provide") if during == "the plan" else (node.engine, "revert")
    finds, removed = getattr(works, method), list[object]()

    async def removed_meanwhile(what: object) -> object:
        outcome = await finds(what)
        if not removed:
            node.engine.refused.clear()
            node.remove(WEB, 22)
            removed.append(what)
        return outcome

    monkeypatch.setattr(works, method, removed_meanwhile)
    node.put(farm(generation=2, version=21, scheduler="weight"))
    await node.settle(22)
    assert removed
    assert not node.engine.farms
    assert not node.loop.progress.problems


async def test_a_farm_whose_removal_is_refused_is_removed_later(node: Node) -> None:
    await node.program([farm()], 20)
    node.engine.refused["web--http"] = "out of memory"
    node.remove(WEB, 21)
    await node.settle(21)
    assert list(node.engine.farms) == ["web--http"]
    node.engine.refused.clear()
    await until(lambda: not node.engine.farms)


async def test_a_farm_of_an_earlier_agent_whose_removal_is_refused_is_removed_later(node: Node) -> None:
    await node.program([farm()], 20)
    await node.restart_agent()
    node.engine.refused["web--http"] = "out of memory"
    await node.program([], 21)
    assert list(node.engine.farms) == ["web--http"]
    node.engine.refused.clear()
    await until(lambda: not node.engine.farms)


async def test_a_farm_that_the_kernel_does_not_get_is_repaired_first(node: Node) -> None:
    node.engine.deviations["web--http"] = "no listener"
    await node.program([farm()], 20)
    assert node.engine.repaired == ["web--http"]
    assert node.loop.progress.problems == {}


async def test_a_farm_that_cannot_be_repaired_is_taken_out(node: Node) -> None:
    node.engine.deviations["web--http"] = "no listener"
    node.engine.irreparable.add("web--http")
    await node.program([farm(), farm("good--http", addresses=at("10.96.0.11"))], 20)
    assert list(node.engine.farms) == ["good--http"]
    assert node.reason() == "Refused"
    assert "no listener" in node.loop.progress.problems[WEB].message


async def test_a_farm_that_was_refused_is_tried_at_once_if_it_changes(node: Node) -> None:
    node.engine.refused["web--http"] = "no"
    await node.program([farm()], 20)
    node.engine.refused.clear()
    began = node.clock.now()
    await node.change(farm(generation=2, version=21))
    assert node.clock.now() - began < Timing().back_off_s
    assert list(node.engine.farms) == ["web--http"]
    assert node.loop.progress.problems == {}


async def test_trouble_of_the_engines_own_is_reported_and_stops_nothing(node: Node) -> None:
    node.engine.trouble = "cannot write a file"
    node.list([farm()], 20)
    await until(lambda: node.loop.progress.last_error == "cannot write a file")
    await node.change(farm(generation=2, version=21, scheduler="weight"))
    assert node.engine.farms["web--http"].version.generation == 2
    node.engine.trouble = None
    await until(lambda: node.loop.progress.last_error is None)


async def test_a_farm_that_the_engine_cannot_serve_is_reported(node: Node) -> None:
    node.engine.blockers["web--http"] = Blocker("Unsupported", "too many backends")
    await node.program([farm(), farm("b--http", addresses=at("10.96.0.11"))], 20)
    assert list(node.engine.farms) == ["b--http"]
    assert node.reason() == "Unsupported"


async def test_a_farm_that_refuses_clients_is_programmed_without_endpoints(node: Node) -> None:
    node.engine.blockers["web--http"] = Blocker("NftlbDefect", "no", refuse_clients=True)
    await node.program([farm()], 20)
    assert node.engine.farms["web--http"].endpoints == ()
    assert list(node.nft.sets["no-endpoints-ip"]) == ["tcp . 10.96.0.10 . 80"]
    assert node.reason() == "NftlbDefect"


async def test_a_farm_that_needs_a_missing_feature_is_not_programmed(node: Node) -> None:
    node.nft.lacks = ("queue num",)
    await node.program([farm(queue=3), farm("other", addresses=at("10.96.0.11"))], 10)
    assert list(node.engine.farms) == ["other"]
    assert node.reason() == "KernelFeatureMissing"
    assert "CONFIG_NFT_QUEUE" in node.loop.progress.problems[WEB].message
    await node.change(farm(generation=2, version=11))
    assert sorted(node.engine.farms) == ["other", "web--http"]
    assert node.loop.progress.problems == {}


async def test_a_farm_is_programmed_once_the_kernel_has_what_it_lacked(node: Node) -> None:
    node.nft.lacks = ("queue num",)
    await node.program([farm(queue=3)], 10)
    assert node.reason() == "KernelFeatureMissing"
    node.nft.lacks = ()
    await until(lambda: list(node.engine.farms) == ["web--http"] and node.loop.progress.problems == {})


async def test_a_farm_that_begins_to_need_a_missing_feature_stays(node: Node) -> None:
    node.nft.lacks = ("queue num",)
    await node.program([farm(limits={"new": "5/second"})], 10)
    chains, changes = dict(node.nft.chains), list(node.engine.changes)
    await node.change(farm(queue=3, generation=2, version=11))
    assert node.engine.changes == changes
    assert node.nft.chains == chains
    assert node.reason() == "KernelFeatureMissing"


async def test_a_restarted_agent_keeps_clients_out_of_a_farm_that_stays(node: Node) -> None:
    await node.program([farm(addresses=RANGES)], 20)
    node.nft.lacks = ("queue num",)
    wanted = farm(addresses=RANGES, queue=3, generation=2, version=21)
    node.put(wanted)
    await node.settle(21)
    await node.restart_agent()
    await node.program([wanted], 21)
    assert node.reason() == "KernelFeatureMissing"
    assert "web--http" in node.engine.farms
    assert node.nft.sets["source-ranges-ip"]


async def test_clients_of_a_deleted_farm_that_an_engine_keeps_are_refused(node: Node) -> None:
    await node.program([farm(addresses=[*RANGES, *at("10.96.0.11")])], 20)
    await node.restart_agent()
    node.engine.refused["web--http"] = "it hangs"
    await node.program([], 21)
    assert sorted(node.nft.sets["given-up-ip"]) == ["tcp . 10.96.0.10 . 80", "tcp . 10.96.0.11 . 80"]


async def test_clients_of_a_deleted_farm_of_which_only_an_nftlb_knows_that_hangs_are_refused(node: Node) -> None:
    other = farm("other--http", engine="nftables", addresses=at("10.96.0.12"))
    node.list([farm(addresses=RANGES), other], 20)
    await node.settle(20)
    await node.stop()
    node.start([])
    known = dict(node.engine.farms)
    node.engine.farms.clear()
    node.engine.reachable, node.engine.hangs = False, True
    # Its address was moved to another farm meanwhile, which nftlb does not serve.
    node.list([other, farm("taking--http", engine="nftables", addresses=at("10.96.0.10"))], 21)
    await node.settle(21)
    refused = ["tcp . 10.96.0.10 . 80"]
    assert (node.nft.sets["source-ranges-ip"], list(node.nft.sets["given-up-ip"])) == ({}, refused)
    node.remove(WEB._replace(name="taking--http"), 22)
    await node.settle(22)
    assert list(node.nft.sets["given-up-ip"]) == refused
    node.engine.farms.update(known)
    node.engine.reachable = True
    await until(lambda: not node.engine.farms)
    await until(lambda: not node.nft.sets["given-up-ip"])


async def test_farms_whose_rules_the_kernel_refuses_hurt_no_other(node: Node) -> None:
    node.nft.lacks = ("limit rate over 3/",)
    limited = farm("limited--http", addresses=at("10.96.0.11"), limits={"new": "3/second"})
    await node.program([farm("a--http"), limited], 20)
    assert list(node.engine.farms) == ["a--http"], "without its limit it is not served at all"
    problem = node.loop.progress.problems[WEB._replace(name="limited--http")]
    assert (problem.reason, "limit rate" in problem.message) == ("Refused", True)
    await node.change(farm("b--http", addresses=at("10.96.0.12"), version=21))
    assert "b--http" in node.engine.farms


async def test_a_farm_keeps_its_rules_if_the_kernel_refuses_the_new_ones(node: Node) -> None:
    await node.program([farm(addresses=RANGES)], 20)
    chains = {name: list(rules) for name, rules in node.nft.chains.items() if "ranges" in name}
    node.nft.lacks = ("limit rate over 3/",)
    await node.change(farm(addresses=RANGES, limits={"new": "3/second"}, generation=2, version=21))
    assert node.reason() == "Refused"
    assert node.engine.farms["web--http"].version.generation == 1
    assert chains
    assert {name: node.nft.chains.get(name) for name in chains} == chains
    await node.change(farm(addresses=RANGES, generation=3, version=22))
    assert node.loop.progress.problems == {}


async def test_a_refusal_counts_though_the_labels_changed_meanwhile(node: Node) -> None:
    run = node.nft.run
    raw = raw_farm(limits={"new": "3/second"}, version=21)
    raw["metadata"]["labels"] = {"team": "a"}
    await node.program([farm(limits={"new": "3/second"})], 20)

    async def labelled(commands: str) -> None:
        if "limit rate over 3/" in commands:
            node.state.put(Farm.model_validate(raw))
        await run(commands)

    node.nft.run = labelled  # type: ignore[method-assign]  # what happens meanwhile
    node.nft.lacks = ("limit rate over 3/",)
    node.nft.damage()
    await until(lambda: node.reason() == "Refused")


async def test_rules_that_the_kernel_refuses_are_retried(node: Node) -> None:
    node.nft.lacks = ("limit rate over 3/",)
    await node.program([farm(limits={"new": "3/second"})], 20)
    assert node.reason() == "Refused"
    node.nft.lacks = ()
    await until(lambda: not node.loop.progress.problems)
    assert "web--http" in node.engine.farms


async def test_farms_in_the_mode_dsr_that_cannot_be_served_stop_nothing(node: Node) -> None:
    addresses = [{"ip": "10.96.0.11", "ports": "80"}, {"type": "NodePort", "ports": "30080"}]
    await node.program([farm("odd--http", mode="dsr", addresses=addresses, backends=[]), farm("a--http")], 20)
    assert "a--http" in node.engine.farms
    assert node.reason("odd--http") == "AddressInUse"


def direct(name: str, ip: str, pod: str, **meta: Any) -> Farm:
    return farm(name, mode="dsr", addresses=[{"ip": ip, "ports": "80"}], backends=[raw_backend("pod", pod, 80)], **meta)


async def test_a_pod_that_is_seen_as_another_farm_is_planned_serves_its_own(node: Node) -> None:
    others = PodLink(2, "eth0", "02:00:00:00:00:02", "br0")
    node.pod_links.found = Links({"10.244.1.3": others}, {}, frozenset())
    await node.program([direct("web--http", "10.96.0.10", "10.244.1.2")], 20)
    assert node.reason() == "NoLocalBackend"
    node.pod_links.found = Links({"10.244.1.2": others._replace(namespace=3), "10.244.1.3": others}, {}, frozenset())
    node.put(direct("other--http", "10.96.0.11", "10.244.1.3", version=21))
    await node.settle(21)
    await until(lambda: node.reason() is None)


async def test_a_pod_that_could_not_be_given_the_address_is_tried_again(node: Node) -> None:
    node.pod_links.incomplete = True
    await node.program([direct("web--http", "10.96.0.10", "10.244.1.2")], 20)
    provided = node.pod_links.calls
    await until(lambda: node.pod_links.calls > provided)


async def test_a_field_that_the_agent_does_not_know_is_named_and_the_farm_is_served(node: Node) -> None:
    newer = parse(raw_farm(colour="green"))
    assert isinstance(newer, Farm)
    await node.program([newer], 20)
    assert list(node.engine.farms) == ["web--http"]
    problem = node.loop.progress.problems[WEB]
    assert (problem.reason, problem.harmless) == ("NoEffect", True)
    assert problem.message.startswith("spec.colour: this agent")
    await node.change(farm(generation=2, version=21))
    await until(lambda: not node.loop.progress.problems)


@pytest.mark.parametrize(
    ("newer", "field"),
    [
        ({"addresses": [{"ip": "10.96.0.10", "ports": "80", "admits": "friends"}]}, "spec.addresses[0].admits"),
        ({"backends": [], "backendsFrom": [{"service": "web", "cluster": "a"}]}, "spec.backendsFrom[0].cluster"),
    ],
)
async def test_a_farm_with_a_field_that_may_say_who_connects_to_what_stays_as_it_was(
    node: Node, newer: dict[str, Any], field: str
) -> None:
    await node.program([farm()], 20)
    unreadable = parse(raw_farm(generation=2, **newer))
    assert isinstance(unreadable, Problem)
    assert (unreadable.reason, unreadable.generation) == ("Invalid", 2)
    assert unreadable.message.startswith(f"{field}: this agent")
    node.state.put_unreadable(WEB, unreadable, 21)
    node.state.seen(21)
    await node.settle(21)
    assert node.engine.farms["web--http"].version.generation == 1
    assert node.reason() == "Invalid"


async def test_a_farm_that_the_kernel_refuses_of_the_engine_it_moves_to_is_served_as_it_was(node: Node) -> None:
    await node.program([farm(engine="nftables")], 20)
    node.engine.deviations["web--http"] = "the kernel does not have it"
    node.engine.irreparable.add("web--http")
    node.put(farm(engine="nftlb", generation=2, version=21))
    await node.settle(21)
    assert node.reason() == "Refused"
    assert "it stays as it was" in node.loop.progress.problems[WEB].message
    await node.passes(10)
    assert (list(node.nftables.farms), list(node.engine.farms)) == (["web--http"], [])
    node.engine.deviations.clear()
    await until(lambda: list(node.engine.farms) == ["web--http"])
    await until(lambda: not node.nftables.farms and node.reason() is None)


async def test_pods_keep_the_addresses_of_farms_that_may_still_be_served_as_an_earlier_agent_left_them(
    node: Node,
) -> None:
    await node.program([farm(engine="nftables")], 19)
    await node.restart_agent()
    node.list([], 20)
    node.put_unreadable(WEB, 20)
    await node.settle(20)
    await until(lambda: bool(node.pod_links.tidied_for("web--http")))
    assert node.pod_links.tidied_for("gone") is False
    node.engine.reachable, node.engine.hangs = False, True
    await until(lambda: bool(node.pod_links.tidied_for("gone")))
    node.engine.reachable = True
    await until(lambda: node.pod_links.tidied_for("gone") is False)


@pytest.mark.parametrize(("others", "is_mostly_nftlb"), [("nftlb", True), ("nftables", False)])
async def test_a_farm_that_waits_for_its_engine_lags_and_holds_no_other_up(
    node: Node, others: str, is_mostly_nftlb: bool
) -> None:
    progress = node.loop.progress
    lag, other_lag = progress.lag, progress.other_lag

    def other(number: int, **fields: Any) -> Farm:
        return farm(f"f{number}", engine=others, addresses=[{"ip": f"10.96.1.{number}", "ports": "80"}], **fields)

    node.list([farm(), *map(other, range(3))], 20)
    await until(lambda: lag.done_at is not None and lag.waiting_since is None)
    node.engine.blockers["web--http"] = Blocker("NftlbUnreachable", "it hangs")
    node.put(farm(generation=2, version=21, scheduler="weight"))
    await until(lambda: node.reason() == "NftlbUnreachable")
    await until(lambda: lag.overdue(1, node.clock.now()))
    await node.change(other(0, generation=2, version=22, scheduler="weight"))
    await until(lambda: other_lag.waiting_since is None)
    assert lag.overdue(1, node.clock.now())
    assert progress.lag_of([WEB]) is lag
    assert progress.lag_of([FarmKey("default", "f0")]) is other_lag
    assert progress.node_lag is (lag if is_mostly_nftlb else other_lag)
    node.engine.blockers.clear()
    node.put(farm(generation=3, version=23, scheduler="weight"))
    await until(lambda: lag.waiting_since is None)
