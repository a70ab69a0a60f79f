"""The engine in the loop: what it sends to nftlb, and what it finds in the kernel."""

from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb import marks, translate
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.netfilter.conntrack.entries import UDP, Entry
from kube_nftlb.nftlb import objects
from tests.builders import farm, raw_backend
from tests.fakes.conntrack import endpoint, entry
from tests.fakes.nftlb import PATCHED
from tests.fakes.node import WEB, until
from tests.unit.agent.engine.nftlb.conftest import Node


async def test_a_restarted_agent_sends_nothing_if_nothing_has_changed(node: Node) -> None:
    await node.program([farm("a--http", persistence="srcip", scheduler="hash")], 20)
    before = len(node.nftlb.changes)
    await node.restart_agent()
    await node.program([farm("a--http", persistence="srcip", scheduler="hash")], 21)
    assert node.nftlb.changes[before:] == []


async def test_a_status_that_changes_a_farm_is_no_work(node: Node) -> None:
    await node.program([farm(generation=3, version=10)], 20)
    requests = len(node.nftlb.requests)
    await node.change(farm(generation=3, version=30))
    assert [r for r in node.nftlb.requests[requests:] if r[0] != "GET"] == []


async def test_a_farm_that_the_kernel_refuses_is_taken_out_and_the_others_stay(node: Node) -> None:
    await node.program([farm("good--http")], 20)
    node.reader.refused.add("bad--http")
    await node.change(farm("bad--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=21))
    assert list(node.nftlb.farms) == ["good--http"]
    assert node.loop.progress.problems[FarmKey("default", "bad--http")].reason == "Refused"
    assert ("DELETE", "/farms/good--http") not in node.nftlb.requests


async def test_a_farm_is_deleted_before_another_gets_its_address(node: Node) -> None:
    older, younger = farm("old--http"), farm("young--http", created="2026-02-01T00:00:00Z")
    await node.program([younger, older], 20)
    assert list(node.nftlb.farms) == ["old--http"]
    node.remove(FarmKey("default", "old--http"), 21)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["young--http"]
    assert [method for method, _ in node.nftlb.changes[-2:]] == ["DELETE", "POST"]


async def test_drift_while_stale_connections_are_cleaned_up_is_detected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")]
    await node.program([farm(persistence="srcip", backends=both)], 20)
    await node.passes(1)
    looks = 0

    async def find(*_: object) -> list[Entry]:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first is beside requests to nftlb
            node.nft.damage()
            node.reader.foreign_changes += 1
        return []

    monkeypatch.setattr(node.conntrack, "find", find)
    node.put(farm(persistence="srcip", backends=both[:1], generation=2, version=21))
    await until(lambda: node.loop.progress.drift_repaired > 0)


async def test_own_requests_and_transactions_are_no_drift(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    compare = node.engine.drift

    async def count(name: str | None = None) -> str | None:
        nonlocal looks
        looks += name is None
        return await compare(name)

    await node.program([farm()], 20)
    await node.passes(1)
    monkeypatch.setattr(node.engine, "drift", count)
    for version in range(21, 31):
        # A farm without backends has elements in the agent's own table.
        backends = [] if version % 2 else [raw_backend("a", "10.244.1.2")]
        node.put(farm(backends=backends, generation=version, version=version))
        await node.settle(version)
        await node.passes(1)
    assert looks == 0


async def test_an_nftlb_that_is_gone_is_noticed_without_a_change(node: Node) -> None:
    await node.program([farm()], 20)
    node.nftlb.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))


async def test_connections_are_refused_until_a_farm_has_a_backend(node: Node) -> None:
    await node.program([farm(backends=[])], 20)
    await until(lambda: list(node.nft.sets["no-endpoints-ip"]) == ["tcp . 10.96.0.10 . 80"])
    await node.change(farm(generation=2, version=21))
    await until(lambda: not node.nft.sets["no-endpoints-ip"])


async def test_what_cannot_be_sent_waits_until_nftlb_is_back(node: Node) -> None:
    node.nftlb.reachable = False
    node.list([farm(version=15)], 20)
    await until(lambda: bool(node.loop.progress.engine_error))
    assert node.loop.progress.watermark < 15
    node.nftlb.reachable = True
    await node.settle(20)
    assert list(node.nftlb.farms) == ["web--http"]
    assert node.loop.progress.engine_error is None


async def test_farms_that_nftlb_has_lost_are_sent_again(node: Node) -> None:
    await node.program([farm()], 20)
    node.nftlb.farms.clear()
    node.reader.foreign_changes += 1
    await until(lambda: "web--http" in node.nftlb.farms)


async def test_an_nftlb_that_was_restarted_with_an_older_state_gets_the_rest(node: Node) -> None:
    await node.program([farm(backends=[raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")])], 20)
    # Another process, another key, one backend less.
    del node.nftlb.farms["web--http"]["backends"]["b"]
    node.nftlb.key = "another key"
    (node.folder / "key").write_text("another key")
    node.reader.foreign_changes += 1
    await until(lambda: "b" in node.nftlb.farms["web--http"]["backends"])


def one_of_three(name: str, version: int, **more: Any) -> Farm:
    addresses = [{"ip": f"10.96.0.{ord(name)}", "ports": "80"}]
    return farm(f"{name}--http", addresses=addresses, generation=version, version=version, **more)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_restart_that_is_met_by_a_change_loses_no_other_farm(node: Node, *, refused: bool) -> None:
    await node.program([one_of_three("a", 20)], 20)
    await node.passes(5)
    await node.change(one_of_three("b", 21), one_of_three("c", 22))
    node.nftlb.refuses = {"b--http"} if refused else set()
    node.nftlb.end()
    assert list(node.nftlb.farms) == ["a--http"], "the start-up file is older"
    node.put(one_of_three("b", 23, scheduler="weight"))
    await until(lambda: bool(node.reason("b--http")) == refused and node.nftlb.farms.keys() >= {"a--http", "c--http"})
    node.nftlb.refuses = set()
    await until(lambda: node.nftlb.farms.keys() == {"a--http", "b--http", "c--http"} and node.loop.settled)


@pytest.mark.parametrize("older", [False, True])
async def test_a_restart_just_before_a_farm_is_verified_loses_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    await node.program([one_of_three("a", 19), *([one_of_three("c", 20)] if older else [])], 20)
    await node.passes(5)
    await node.change(one_of_three("c", 21, backends=[raw_backend("x", "10.244.1.8")]))
    drift = node.engine.drift

    async def after_a_restart(name: str | None = None) -> str | None:
        if name == "b--http" and not node.nftlb.ends:
            node.nftlb.end()
        return await drift(name)

    monkeypatch.setattr(node.engine, "drift", after_a_restart)
    node.put(one_of_three("b", 22))
    await until(lambda: node.nftlb.ends == 1)
    await node.passes(5)
    assert node.nftlb.farms.keys() == {"a--http", "b--http", "c--http"}
    assert node.nftlb.farms["c--http"]["backends"].keys() == {"x"}


async def test_a_farm_that_is_found_lost_when_another_deviates_is_sent_again(node: Node) -> None:
    await node.program([one_of_three("a", 19), one_of_three("b", 20)], 20)
    del node.nftlb.farms["a--http"]
    node.reader.stick("b--http")
    await node.change(one_of_three("b", 21, backends=[raw_backend("x", "10.244.1.8")]))
    await node.passes(5)
    assert "a--http" in node.nftlb.farms


async def test_a_new_agent_refuses_clients_until_nftlb_has_left_an_address(
    node: Node,
) -> None:
    ranges = [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]
    await node.program([farm(addresses=ranges)], 20)
    await node.restart_agent()
    before = len(node.nft.commands)
    await node.program([farm(addresses=[{"ip": "10.96.0.11", "ports": "80"}], generation=2, version=21)], 21)
    assert "given-up-ip { tcp . 10.96.0.10 . 80 }" in node.nft.commands[before]
    assert not node.nft.sets["given-up-ip"]


@pytest.mark.parametrize(("before", "after"), [(10, 10), (14, 5), (14, 14)])
async def test_all_backends_of_a_large_farm_can_be_exchanged_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """There are 14 marks here instead of 4,094."""
    for module in (marks, objects):
        monkeypatch.setattr(module, "MARK_LAST", 0xF)

    def backends(number: int, count: int) -> list[dict[str, Any]]:
        return [raw_backend(f"{number}-{each}", f"10.{number}.0.{each + 1}") for each in range(count)]

    await node.program([farm(backends=backends(1, before))], 20)
    await node.change(farm(backends=backends(2, after), generation=2, version=21))
    assert set(node.engine.mirror.present["web--http"].backends) == {f"2-{each}" for each in range(after)}
    assert not node.loop.progress.problems
    assert not node.nft.sets.get("no-endpoints-ip"), "nobody is refused any more"


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": "UDP"},
        {
            "protocol": "All",
            "addresses": [{"ip": "10.96.0.10", "ports": ""}],
            "backends": [{"name": "a", "ip": "10.244.1.2"}],
        },
    ],
)
async def test_flows_of_a_farm_that_went_while_no_agent_ran_are_forgotten(node: Node, changes: dict[str, Any]) -> None:
    node.conntrack.entries = [entry(endpoint("10.244.1.2"), protocol=UDP)]
    await node.program([farm(**changes)], 20)
    await node.restart_agent()
    await node.program([], 21)
    await node.connections.look()
    assert node.conntrack.entries == []


async def test_a_farm_that_cannot_be_translated_stays_and_stops_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.program([farm()], 20)
    before = dict(node.nftlb.farms["web--http"])
    real = translate.translate

    def broken(given: NodeFarm, present: objects.Farm | None) -> objects.Farm:
        if given.name == "web--http":
            raise RuntimeError("nobody thought of this")
        return real(given, present)

    monkeypatch.setattr("kube_nftlb.agent.engine.nftlb.engine.translate", broken)
    node.put(farm(generation=2, version=21, scheduler="weight"))
    await node.change(farm("other", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=22))
    assert (node.nftlb.farms["web--http"], "other" in node.nftlb.farms) == (before, True)
    assert "nobody thought of this" in node.loop.progress.problems[WEB].message


async def test_an_nftlb_without_patches_is_refused_with_a_sentence(node: Node) -> None:
    node.nftlb.version = ""
    await node.restart_agent()
    node.list([farm()], 20)
    await until(lambda: bool(node.loop.progress.engine_error))
    assert "lacks the patches of kube-nftlb" in (node.loop.progress.engine_error or "")
    await node.passes(5)
    assert not node.nftlb.changes
    node.nftlb.version = PATCHED
    await until(lambda: "web--http" in node.nftlb.farms)
