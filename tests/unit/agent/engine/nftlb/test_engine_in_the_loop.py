"""The loop against an nftlb and a kernel that are not real: what it sends, and what it reports."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb import marks, translate
from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table import policies
from kube_nftlb.agent.table.feature_probe import FeatureProbe
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.netfilter.conntrack import Destination
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.client import NftlbClient
from tests.builders import farm, raw_backend, raw_farm
from tests.fakes.clock import FakeClock
from tests.fakes.nftlb import KEY, FakeConntrack, FakeKernel, FakeNft, FakeNftlb, FakePodLinks


class Node:
    """An agent's loop on a fake node."""

    def __init__(self, folder: Path, timing: Timing | None = None) -> None:
        self.folder = folder
        self.timing = timing or Timing()
        (folder / "key").write_text(KEY)
        self.nftlb, self.nft, self.conntrack = FakeNftlb(), FakeNft(), FakeConntrack()
        self.kernel = FakeKernel(self.nftlb, self.nft)
        self.clock = FakeClock()
        self.start([])

    def start(self, policies: list[dict[str, Any]] | None) -> None:
        client = NftlbClient("http://nftlb", self.folder / "key", transport=self.nftlb.transport())
        self.table = AgentTable(self.nft)
        self.engine = NftlbEngine(
            client, self.kernel, self.conntrack, self.nft, self.table, self.folder / "nftlb.json", self.clock
        )
        latency = ProgrammingLatency(datetime.now(UTC))
        self.inputs = Inputs(self.engine, FeatureProbe(self.nft), latency, self.clock)
        self.loop = Reconciler(
            self.inputs, self.engine, self.table, self.kernel, FakePodLinks(), self.clock, timing=self.timing
        )
        self.inputs.set_node(NodeFacts("node-1"), {})
        if policies is not None:
            self.inputs.replace_policies(policies, 1)
        self.task = asyncio.create_task(self.loop.run())

    async def passes(self, seconds: float) -> None:
        """Let time pass on the loop's clock."""
        until_ = self.clock.now() + seconds
        await until(lambda: self.clock.now() >= until_)

    async def restart_agent(self, policies: list[dict[str, Any]] | None = None) -> None:
        await self.stop()
        self.start(policies or [])

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def settle(self, version: int) -> None:
        await until(lambda: self.loop.progress.watermark >= version)


def translated(given: Farm) -> objects.Farm:
    return translate.translate(node_farm(given, NodeFacts(), None), None)


async def until(done: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    yield node
    await node.stop()


async def test_nothing_is_sent_before_the_first_complete_list(node: Node) -> None:
    node.nftlb.answer("POST", "/farms", json.dumps({"farms": [{"name": "left-over"}]}).encode())
    node.inputs.put(farm())
    await node.passes(1)
    assert list(node.nftlb.farms) == ["left-over"]


async def test_the_list_makes_nftlb_have_its_farms_and_no_others(node: Node) -> None:
    node.nftlb.answer("POST", "/farms", json.dumps({"farms": [{"name": "left-over"}]}).encode())
    node.inputs.replace_all([farm("a--http")], 20)
    await node.settle(20)
    assert list(node.nftlb.farms) == ["a--http"]


async def test_a_restarted_agent_with_nothing_changed_sends_nothing_that_changes_nftlb(node: Node) -> None:
    node.inputs.replace_all([farm("a--http", persistence="srcip", scheduler="hash")], 20)
    await node.settle(20)
    before = len(node.nftlb.changes)
    await node.restart_agent()
    node.inputs.replace_all([farm("a--http", persistence="srcip", scheduler="hash")], 21)
    await node.settle(21)
    assert node.nftlb.changes[before:] == []


async def test_a_status_that_changes_a_farm_is_no_work(node: Node) -> None:
    node.inputs.replace_all([farm(generation=3, version=10)], 20)
    await node.settle(20)
    requests = len(node.nftlb.requests)
    node.inputs.put(farm(generation=3, version=30))
    node.inputs.seen(30)
    await node.settle(30)
    assert [r for r in node.nftlb.requests[requests:] if r[0] != "GET"] == []


async def test_a_farm_that_the_kernel_refuses_is_taken_out_and_the_others_stay(node: Node) -> None:
    node.inputs.replace_all([farm("good--http")], 20)
    await node.settle(20)
    node.kernel.refused.add("bad--http")
    node.inputs.put(farm("bad--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=21))
    node.inputs.seen(21)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["good--http"]
    assert node.loop.progress.problems[FarmKey("default", "bad--http")].reason == "Refused"
    assert ("DELETE", "/farms/good--http") not in node.nftlb.requests


async def test_of_two_farms_with_one_address_only_the_older_is_sent_and_the_younger_follows_it(node: Node) -> None:
    older, younger = farm("old--http"), farm("young--http", created="2026-02-01T00:00:00Z")
    node.inputs.replace_all([younger, older], 20)
    await node.settle(20)
    assert list(node.nftlb.farms) == ["old--http"]
    node.inputs.remove(FarmKey("default", "old--http"), 21)
    node.inputs.seen(21)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["young--http"]
    changes = [path for method, path in node.nftlb.changes if method == "DELETE"] + ["POST"]
    assert changes[0] == "/farms/old--http"


async def test_a_farm_that_no_service_controls_any_more_loses_its_rank(node: Node) -> None:
    forged = farm("forged", owner="web", created="2025-01-01T00:00:00Z", version=5)
    node.inputs.replace_all([forged, farm(owner="web", version=6)], 6)
    await node.settle(6)
    assert list(node.nftlb.farms) == ["forged"]
    node.inputs.put(farm("forged", created="2025-01-01T00:00:00Z", version=7))
    node.inputs.seen(7)
    await node.settle(7)
    assert list(node.nftlb.farms) == ["web--http"]


async def test_a_farm_that_is_not_understood_is_reported_and_stays_as_it_was_until_it_is_gone(node: Node) -> None:
    key = FarmKey("default", "web--http")
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    node.inputs.put_unreadable(key, Problem("Invalid", "spec.mode: what"), 21)
    node.inputs.seen(21)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["web--http"]
    assert node.loop.progress.problems[key].reason == "Invalid"
    node.inputs.replace_all([], 22)
    await node.settle(22)
    assert node.nftlb.farms == {}
    assert node.loop.progress.problems == {}


async def test_nobody_gets_the_address_of_a_farm_that_is_not_understood(node: Node) -> None:
    node.nftlb.answer("POST", "/farms", json.dumps({"farms": [translated(farm()).wire()]}).encode())
    node.inputs.replace_all([farm("thief")], 20)
    node.inputs.put_unreadable(FarmKey("default", "web--http"), Problem("Invalid", "spec.mode: what"), 20)
    await node.settle(20)
    assert list(node.nftlb.farms) == ["web--http"]
    assert node.loop.progress.problems[FarmKey("default", "thief")].reason == "AddressInUse"


async def test_a_farm_that_recovers_is_no_longer_reported(node: Node) -> None:
    node.kernel.refused.add("web--http")
    node.inputs.replace_all([farm()], 20)
    await until(lambda: bool(node.loop.progress.problems))
    node.kernel.refused.clear()
    await until(lambda: not node.loop.progress.problems)
    assert list(node.nftlb.farms) == ["web--http"]


async def test_damage_done_just_before_a_change_of_ours_is_found(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    await until(lambda: node.loop.progress.drift_repaired == 0)
    await node.passes(1)
    node.nft.damage()
    node.kernel.foreign_changes += 1
    node.inputs.put(farm("b--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=21))
    node.inputs.seen(21)
    await until(lambda: node.loop.progress.drift_repaired > 0)


async def test_damage_done_while_connections_are_parted_from_a_backend_is_found(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")]
    node.inputs.replace_all([farm(protocol="UDP", backends=both)], 20)
    await node.settle(20)
    await node.passes(1)
    looks = 0

    async def release(*_: object) -> int:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first is beside requests to nftlb
            node.nft.damage()
            node.kernel.foreign_changes += 1
        return 0

    monkeypatch.setattr(node.conntrack, "release", release)
    node.inputs.put(farm(protocol="UDP", backends=both[:1], generation=2, version=21))
    await until(lambda: node.loop.progress.drift_repaired > 0)


async def test_what_the_agent_itself_does_to_nftables_is_no_damage(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    compare = node.engine.drift

    async def count(name: str | None = None) -> str | None:
        nonlocal looks
        looks += name is None
        return await compare(name)

    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    await node.passes(1)
    monkeypatch.setattr(node.engine, "drift", count)
    for version in range(21, 31):
        # A farm without backends has elements in the agent's own table.
        backends = [] if version % 2 else [raw_backend("a", "10.244.1.2")]
        node.inputs.put(farm(backends=backends, generation=version, version=version))
        node.inputs.seen(version)
        await node.settle(version)
        await node.passes(1)
    assert looks == 0


async def test_nothing_of_a_list_counts_as_done_before_all_of_it_is(node: Node) -> None:
    """A status written later moves a farm's resourceVersion past the one at which the operator saw its generation."""
    told: list[tuple[int, int]] = []
    node.loop._on_progress = lambda: told.append((node.loop.progress.watermark, len(node.nftlb.farms)))  # noqa: SLF001
    addresses = [[{"ip": f"10.97.0.{number}", "ports": "80"}] for number in range(1, 101)]
    farms = [farm(f"f{n:03}--http", addresses=a, version=150 + n) for n, a in enumerate(addresses)]
    node.inputs.replace_all(farms, 500)
    await node.settle(500)
    assert {watermark for watermark, there in told if there < 100} <= {0}


async def test_a_start_up_file_that_cannot_be_written_is_told_and_stops_nothing(node: Node) -> None:
    (node.folder / "nftlb.new").mkdir()
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    await until(lambda: "start-up file" in node.loop.progress.last_error)
    node.nft.damage()
    node.kernel.foreign_changes += 1
    await until(lambda: node.loop.progress.drift_repaired > 0)


async def test_an_nftlb_that_is_gone_is_noticed_without_a_change(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    node.nftlb.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))


async def test_connections_to_a_farm_without_backends_are_refused_until_there_is_one(node: Node) -> None:
    node.inputs.replace_all([farm(backends=[])], 20)
    await node.settle(20)
    await until(lambda: list(node.nft.sets["no-endpoints-ip"]) == ["tcp . 10.96.0.10 . 80"])
    node.inputs.put(farm(generation=2, version=21))
    node.inputs.seen(21)
    await node.settle(21)
    await until(lambda: not node.nft.sets["no-endpoints-ip"])


async def test_what_cannot_be_sent_is_sent_when_nftlb_is_back_and_not_counted_before(node: Node) -> None:
    node.nftlb.reachable = False
    node.inputs.replace_all([farm(version=15)], 20)
    await until(lambda: bool(node.loop.progress.engine_error))
    assert node.loop.progress.watermark < 15
    node.nftlb.reachable = True
    await node.settle(20)
    assert list(node.nftlb.farms) == ["web--http"]
    assert node.loop.progress.engine_error == ""


async def test_farms_that_nftlb_has_lost_are_sent_again(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    node.nftlb.farms.clear()
    node.kernel.foreign_changes += 1
    await until(lambda: "web--http" in node.nftlb.farms)


async def test_an_nftlb_that_was_restarted_with_an_older_state_gets_the_rest(node: Node) -> None:
    node.inputs.replace_all([farm(backends=[raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")])], 20)
    await node.settle(20)
    # Another process, another key, one backend less.
    del node.nftlb.farms["web--http"]["backends"]["b"]
    node.nftlb.key = "another key"
    (node.folder / "key").write_text("another key")
    node.kernel.foreign_changes += 1
    await until(lambda: "b" in node.nftlb.farms["web--http"]["backends"])


async def test_the_start_up_file_holds_what_is_in_the_kernel(node: Node) -> None:
    node.kernel.refused.add("bad--http")
    bad = farm("bad--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}])
    node.inputs.replace_all([farm(), bad], 20)
    await node.settle(20)

    def saved() -> list[dict[str, Any]]:
        path = node.folder / "nftlb.json"
        return json.loads(path.read_text())["farms"] if path.exists() else []

    await until(lambda: [entry["name"] for entry in saved()] == ["web--http"])


async def test_the_own_table_is_made_again_while_changes_come_without_pause(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)

    async def change() -> None:
        for version in range(21, 10_000):
            backends = [raw_backend("pod-a", f"10.244.{version // 250}.{version % 250 + 1}")]
            node.inputs.put(farm(backends=backends, generation=version, version=version))
            node.inputs.seen(version)
            await node.passes(1)

    changing = asyncio.create_task(change())
    await until(lambda: node.loop.progress.watermark > 25)
    node.nft.damage()
    node.kernel.foreign_changes += 1
    await until(lambda: node.nft.chains.keys() >= {"refuse", "unserved"})
    assert not changing.done()
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)


async def test_all_farms_are_compared_though_others_change_nftables_all_the_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.inputs.replace_all(
        [farm(name, addresses=[{"ip": f"10.96.0.{number}", "ports": "80"}]) for number, name in enumerate("abcdef", 1)],
        20,
    )
    await node.settle(20)

    async def meddle() -> None:
        while True:
            node.kernel.foreign_changes += 1
            await node.passes(1)

    compared = list[str]()
    drift = NftlbEngine.drift

    async def noted(self: NftlbEngine, name: str | None = None) -> str | None:
        compared.extend([name] if name is not None else [])
        return await drift(self, name)

    await until(lambda: node.loop.settled)
    monkeypatch.setattr(NftlbEngine, "drift", noted)
    meddling = asyncio.create_task(meddle())
    await until(lambda: len(compared) >= 18)
    meddling.cancel()
    await asyncio.gather(meddling, return_exceptions=True)
    assert {name[:1] for name in compared} == set("abcdef")


async def test_an_agent_that_begins_keeps_clients_from_an_address_that_leaves_until_nftlb_has_left_it(
    node: Node,
) -> None:
    ranges = [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]
    node.inputs.replace_all([farm(addresses=ranges)], 20)
    await node.settle(20)
    await node.restart_agent()
    before = len(node.nft.commands)
    node.inputs.replace_all([farm(addresses=[{"ip": "10.96.0.11", "ports": "80"}], generation=2, version=21)], 21)
    await node.settle(21)
    assert "tcp . 10.96.0.10 . 80 : goto refuse" in node.nft.commands[before]
    assert not [key for key in node.nft.sets["no-endpoints-ip"] if "10.96.0.10" in key]


async def test_addresses_of_retired_farms_are_not_kept_from_others_by_an_agent_that_begins(node: Node) -> None:
    a, b = (
        farm(name, family="ipv6", addresses=[{"ip": ip, "ports": "80"}], backends=[raw_backend("p", "fd00:1::1")])
        for name, ip in (("a", "fd00::1"), ("b", "fd00::2"))
    )
    node.inputs.replace_all([a, b], 20)
    await node.settle(20)
    node.inputs.remove(FarmKey("default", "a"), 21)
    node.inputs.seen(21)
    await node.settle(21)
    assert set(node.nftlb.farms) == {"a", "b"}
    await node.restart_agent()
    node.inputs.replace_all([b], 22)
    await node.settle(22)
    assert node.nft.sets["no-endpoints-ip6"] == {}


async def test_the_start_up_file_has_the_last_change_before_the_agent_ends(node: Node) -> None:
    node.inputs.replace_all([farm("a", addresses=[{"ip": "10.96.0.1", "ports": "80"}])], 20)
    await until(lambda: bool(node.nftlb.farms))
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    saved = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    assert [entry["name"] for entry in saved] == ["a"]


async def test_it_ends_with_the_pass_that_it_is_at(node: Node) -> None:
    node.inputs.replace_all(
        [farm(name, addresses=[{"ip": f"10.96.0.{n}", "ports": "80"}]) for n, name in enumerate("ab", 1)], 20
    )
    await until(lambda: bool(node.nftlb.farms))
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    assert list(node.nftlb.farms) == ["a", "b"]


async def test_the_own_table_is_made_again_when_somebody_removes_it(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    node.nft.damage()
    node.kernel.foreign_changes += 1
    await until(lambda: node.nft.chains.keys() >= {"refuse", "unserved"})
    assert node.loop.progress.drift_repaired >= 1


async def test_what_waits_for_an_nftlb_that_is_gone_is_overdue_until_it_is_back(node: Node) -> None:
    lag = node.loop.progress.lag
    assert lag.done_at is None
    node.inputs.replace_all([farm()], 20)
    await until(lambda: lag.done_at is not None and lag.waiting_since is None)
    node.nftlb.reachable = False
    node.inputs.put(farm(generation=2, version=21, scheduler="weight"))
    node.inputs.seen(21)
    await until(lambda: lag.overdue(0.1, node.clock.now()))
    node.nftlb.reachable = True
    await until(lambda: lag.waiting_since is None)


async def test_an_nftlb_that_is_gone_while_nothing_changes_keeps_nothing_waiting(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    node.nftlb.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))
    await node.passes(1)
    assert node.loop.progress.lag.waiting_since is None


async def test_changes_without_pause_are_counted_as_done_again_and_again(node: Node) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    began, version = set[float | None](), 20
    async with asyncio.timeout(20):
        while len(began - {None}) < 5:
            version += 1
            changed = raw_backend("a", f"10.244.1.{version % 200 + 1}")
            node.inputs.put(farm(generation=version, version=version, backends=[changed]))
            node.inputs.seen(version)
            began.add(node.loop.progress.lag.waiting_since)
            node.clock.time += 0.1
            await asyncio.sleep(0)


async def test_an_agent_that_has_never_reached_nftlb_has_done_nothing(node: Node) -> None:
    node.nftlb.reachable = False
    node.inputs.replace_all([], 20)
    await until(lambda: bool(node.loop.progress.engine_error))
    assert node.loop.progress.lag.done_at is None
    node.nftlb.reachable = True
    await until(lambda: node.loop.progress.lag.done_at is not None)


async def test_a_farm_that_needs_what_the_kernel_lacks_is_not_sent_and_told_so(node: Node) -> None:
    node.nft.lacks = ("queue num",)
    node.inputs.replace_all([farm(queue=3), farm("other", addresses=[{"ip": "10.96.0.11", "ports": "80"}])], 10)
    await node.settle(10)
    assert list(node.nftlb.farms) == ["other"]
    assert node.loop.progress.problems[KEY_OF_WEB].reason == "KernelFeatureMissing"
    assert "CONFIG_NFT_QUEUE" in node.loop.progress.problems[KEY_OF_WEB].message
    node.inputs.put(farm(generation=2, version=11))
    node.inputs.seen(11)
    await node.settle(11)
    assert sorted(node.nftlb.farms) == ["other", "web--http"]
    assert node.loop.progress.problems == {}


async def test_a_farm_that_comes_to_need_what_the_kernel_lacks_stays_as_it_was(node: Node) -> None:
    node.nft.lacks = ("queue num",)
    node.inputs.replace_all([farm(limits={"new": "5/second"})], 10)
    await node.settle(10)
    chains = dict(node.nft.chains)
    changes = list(node.nftlb.changes)
    node.inputs.put(farm(queue=3, generation=2, version=11))
    node.inputs.seen(11)
    await node.settle(11)
    assert node.nftlb.changes == changes
    assert node.nft.chains == chains
    assert node.loop.progress.problems[KEY_OF_WEB].reason == "KernelFeatureMissing"


async def test_the_options_of_a_farm_come_and_go_with_it(node: Node) -> None:
    node.inputs.replace_all([farm(limits={"new": "5/second"}, helper="ftp", log="input")], 10)
    await node.settle(10)
    assert any('ct helper set "helper-' in rule for rule in node.nft.chains["connections-web--http"])
    node.inputs.remove(KEY_OF_WEB, 11)
    node.inputs.seen(11)
    await node.settle(11)
    assert not [name for name in (*node.nft.chains, *node.nft.sets) if "web--http" in name]


KEY_OF_WEB = FarmKey("default", "web--http")


def raw_policy(name: str = "list", kind: str = "deny", version: int = 10, generation: int = 1) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "generation": generation, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"type": kind, "cidrs": ["10.0.0.0/8"]}}


def guarded(version: int = 10, ip: str = "10.96.0.10", **changes: Any) -> Farm:
    return farm(version=version, addresses=[{"ip": ip, "ports": "80"}], **{"policies": ["list"], **changes})


@pytest.fixture
def openings(node: Node, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What nftlb listened on without a guard, after any request to it and any command to nft."""
    found: set[str] = set()

    def look() -> None:
        for present in objects.parse({"farms": [node.nftlb._shown(f) for f in node.nftlb.farms.values()]}).values():  # noqa: SLF001 - a fake
            listened = {f"tcp . {port.ip} . {port.port}" for port in present.bound_ports() if present.backends}
            found.update(listened - node.nft.sets.get("policy-ip", {}).keys())

    answer, run = node.nftlb.answer, node.nft.run

    def answer_and_look(method: str, path: str, body: bytes) -> tuple[int, str]:
        answered = answer(method, path, body)
        look()
        return answered

    async def run_and_look(commands: str) -> None:
        await run(commands)
        look()

    monkeypatch.setattr(node.nftlb, "answer", answer_and_look)
    monkeypatch.setattr(node.nft, "run", run_and_look)
    return found


def rules_met(node: Node, ip: str = "10.96.0.10") -> list[str]:
    element = node.nft.sets.get("policy-ip", {}).get(f"tcp . {ip} . 80", "")
    return node.nft.chains.get(element.strip("{} ").rpartition(" ")[2], [])


DENIES = ["ip saddr @policy-default.list-ip drop"]


async def test_nothing_is_done_before_the_policies_are_listed(node: Node) -> None:
    await node.stop()
    node.start(policies=None)
    node.inputs.replace_all([guarded()], 20)
    await node.passes(1)
    assert node.nftlb.farms == {}
    node.inputs.replace_policies([raw_policy()], 20)
    await node.settle(20)
    assert rules_met(node) == DENIES


async def test_a_farm_with_policies_is_never_open(node: Node, openings: set[str]) -> None:
    node.inputs.put_policy(raw_policy(version=11))
    node.inputs.replace_all([guarded()], 20)
    await node.settle(20)
    assert rules_met(node) == DENIES
    node.inputs.put(guarded(generation=2, version=21, ip="10.96.0.11"))
    node.inputs.seen(21)
    await node.settle(21)
    assert (rules_met(node), rules_met(node, "10.96.0.11")) == ([], DENIES)
    await node.restart_agent([raw_policy(version=11)])
    node.inputs.replace_all([guarded(generation=3, version=22)], 22)
    await node.settle(22)
    assert rules_met(node) == DENIES
    node.nft.damage()
    node.kernel.foreign_changes += 1
    await until(lambda: rules_met(node) == DENIES)
    await node.restart_agent([])
    node.inputs.replace_all([], 23)
    await node.settle(23)
    assert node.nft.sets["policy-ip"] == {}
    assert openings == set()


async def test_policies_and_farms_go_at_once_in_any_order(node: Node, openings: set[str]) -> None:
    key, version = FarmKey("default", "web--http"), 30
    node.inputs.replace_all([], 20)
    for goes in ("farm first", "policy first", "reference first"):
        node.inputs.put_policy(raw_policy(version=version, generation=version))
        node.inputs.put(guarded(generation=version, version=version))
        node.inputs.seen(version)
        await node.settle(version)
        assert rules_met(node) == DENIES
        if goes == "farm first":
            node.inputs.remove(key, version + 1)
            node.inputs.remove_policy(raw_policy(version=version + 2))
        elif goes == "policy first":
            node.inputs.remove_policy(raw_policy(version=version + 1))
            node.inputs.remove(key, version + 2)
        else:
            node.inputs.put_policy(raw_policy("other", version=version, generation=version))
            node.inputs.put(guarded(generation=version + 1, version=version + 1, policies=["other"]))
            node.inputs.remove_policy(raw_policy(version=version + 2))
        node.inputs.seen(version + 2)
        await node.settle(version + 2)
        assert node.loop.progress.last_error == ""
        version += 10
    assert openings == set()


async def test_a_policy_that_is_missing_is_told_and_one_that_comes_opens_at_once(node: Node) -> None:
    key = FarmKey("default", "web--http")
    node.inputs.replace_all([guarded()], 20)
    await node.settle(20)
    assert rules_met(node) == ["drop"]
    assert "no NftlbPolicy 'list'" in node.loop.progress.problems[key].message
    node.inputs.put_policy(raw_policy(version=21))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    assert rules_met(node) == DENIES
    await until(lambda: not node.loop.progress.problems)
    assert node.loop.progress.watermark == 20, "what was told to be done stays so"
    node.inputs.remove_policy(raw_policy(version=22))
    await until(lambda: bool(node.loop.progress.problems))
    assert rules_met(node) == ["drop"]


async def test_a_farm_that_is_not_understood_keeps_its_guard_even_in_an_agent_that_is_new(
    node: Node, openings: set[str]
) -> None:
    node.inputs.put_policy(raw_policy())
    node.inputs.replace_all([guarded()], 20)
    await node.settle(20)
    await node.restart_agent([raw_policy()])
    refers = policies.raw_references(raw_farm(policies=["list"]))
    node.inputs.replace_all([], 21)
    node.inputs.put_unreadable(FarmKey("default", "web--http"), Problem("Invalid", "spec.mode: what"), 21, refers)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["web--http"]
    assert rules_met(node) == DENIES
    assert openings == set()


async def test_a_farm_whose_rules_the_kernel_refuses_is_told_so_and_hurts_nobody(node: Node) -> None:
    node.nft.lacks = ("limit rate over 3/",)
    limited = farm("limited--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}], limits={"new": "3/second"})
    node.inputs.replace_all([farm("a--http"), limited], 20)
    await node.settle(20)
    assert list(node.nftlb.farms) == ["a--http"], "without its limit it is not served at all"
    problem = node.loop.progress.problems[FarmKey("default", "limited--http")]
    assert (problem.reason, "limit rate" in problem.message) == ("Refused", True)
    node.inputs.put(farm("b--http", addresses=[{"ip": "10.96.0.12", "ports": "80"}], version=21))
    node.inputs.seen(21)
    await node.settle(21)
    assert "b--http" in node.nftlb.farms


async def test_a_farm_keeps_the_rules_it_has_where_the_kernel_refuses_other_ones(node: Node) -> None:
    ranges = [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]
    node.inputs.replace_all([farm(addresses=ranges)], 20)
    await node.settle(20)
    chains = {name: list(rules) for name, rules in node.nft.chains.items() if "ranges" in name}
    node.nft.lacks = ("limit rate over 3/",)
    node.inputs.put(farm(addresses=ranges, limits={"new": "3/second"}, generation=2, version=21))
    node.inputs.seen(21)
    await node.settle(21)
    assert node.loop.progress.problems[KEY_OF_WEB].reason == "Refused"
    assert "web--http" in node.nftlb.farms
    assert chains
    assert {name: node.nft.chains.get(name) for name in chains} == chains
    node.inputs.put(farm(addresses=ranges, generation=3, version=22))
    node.inputs.seen(22)
    await node.settle(22)
    assert KEY_OF_WEB not in node.loop.progress.problems


async def test_rules_that_the_kernel_refuses_are_tried_again(node: Node) -> None:
    node.nft.lacks = ("limit rate over 3/",)
    node.inputs.replace_all([farm(limits={"new": "3/second"})], 20)
    await node.settle(20)
    assert node.loop.progress.problems[KEY_OF_WEB].reason == "Refused"
    node.nft.lacks = ()
    await until(lambda: not node.loop.progress.problems)
    assert "web--http" in node.nftlb.farms


async def test_what_keeps_clients_out_survives_an_agent_that_cannot_do_what_a_farm_asks_for_now(node: Node) -> None:
    ranges = [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]
    node.inputs.replace_all([farm(addresses=ranges)], 20)
    await node.settle(20)
    node.nft.lacks = ("queue num",)
    wanted = farm(addresses=ranges, queue=3, generation=2, version=21)
    node.inputs.put(wanted)
    node.inputs.seen(21)
    await node.settle(21)
    await node.restart_agent()
    node.inputs.replace_all([wanted], 21)
    await node.settle(21)
    assert node.loop.progress.problems[KEY_OF_WEB].reason == "KernelFeatureMissing"
    assert "web--http" in node.nftlb.farms
    assert node.nft.sets["source-ranges-ip"]


@pytest.mark.parametrize("spec", [{"addresses": [{"sourceRanges": ["10.0.0.0/8"]}]}, {"limits": {"new": "5/second"}}])
async def test_nobody_gets_to_a_farm_of_which_a_restarted_agent_cannot_read_who_may(
    node: Node, spec: dict[str, Any]
) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    await node.restart_agent()
    raw = {"metadata": {"namespace": "default", "name": "web--http"}, "spec": {"mode": "newer", **spec}}
    node.inputs.replace_all([], 21)
    node.inputs.put_unreadable(KEY_OF_WEB, Problem("Invalid", "spec.mode: what"), 21, policies.raw_references(raw))
    await node.settle(21)
    assert "web--http" in node.nftlb.farms
    assert node.nft.sets["no-endpoints-ip"]


async def test_farms_in_the_mode_dsr_that_cannot_be_stop_nothing(node: Node) -> None:
    odd = farm(
        "odd--http",
        mode="dsr",
        addresses=[{"ip": "10.96.0.11", "ports": "80"}, {"type": "NodePort", "ports": "30080"}],
        backends=[],
    )
    node.inputs.replace_all([odd, farm("a--http")], 20)
    await node.settle(20)
    assert "a--http" in node.nftlb.farms
    assert node.loop.progress.problems[FarmKey("default", "odd--http")].reason == "AddressInUse"


@pytest.mark.parametrize(("before", "after"), [(10, 10), (14, 5), (14, 14)])
async def test_all_backends_of_a_large_farm_can_be_exchanged_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """There are 14 marks here instead of 4,094."""
    for module in (marks, objects):
        monkeypatch.setattr(module, "MARK_LAST", 0xF)

    def backends(number: int, count: int) -> list[dict[str, Any]]:
        return [raw_backend(f"{number}-{each}", f"10.{number}.0.{each + 1}") for each in range(count)]

    node.inputs.replace_all([farm(backends=backends(1, before))], 20)
    await node.settle(20)
    node.inputs.put(farm(backends=backends(2, after), generation=2, version=21))
    node.inputs.seen(21)
    await node.settle(21)
    assert set(node.engine.mirror.present["web--http"].backends) == {f"2-{each}" for each in range(after)}
    assert not node.loop.progress.problems
    assert not node.nft.sets.get("no-endpoints-ip"), "nobody is refused any more"


async def test_a_node_port_is_not_given_to_who_names_the_nodes_address(node: Node) -> None:
    node.inputs.set_node(NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)}), {})
    port = farm("port--http", addresses=[{"type": "NodePort", "ports": "30080"}])
    squatter = farm("a-squatter", addresses=[{"type": "ExternalIP", "ip": "172.31.0.11", "ports": "30000-30100"}])
    node.inputs.replace_all([squatter, port], 20)
    await node.settle(20)
    assert list(node.nftlb.farms) == ["port--http"]
    problem = node.loop.progress.problems[FarmKey("default", "a-squatter")]
    assert (problem.reason, "default/port--http" in problem.message) == ("AddressInUse", True)
    node.inputs.remove(FarmKey("default", "port--http"), 21)
    node.inputs.seen(21)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["a-squatter"]
    assert not node.loop.progress.problems


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
async def test_flows_of_a_farm_that_went_while_no_agent_ran_are_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    released: list[str] = []

    async def release(to: list[Destination], _: set[int]) -> int:
        released.extend({each.ip for each in to})
        return 0

    monkeypatch.setattr(node.conntrack, "release", release)
    node.inputs.replace_all([farm(**changes)], 20)
    await node.settle(20)
    await node.restart_agent()
    node.inputs.replace_all([], 21)
    await node.settle(21)
    assert released == ["10.96.0.10"]


async def test_an_address_is_not_given_away_by_a_farm_of_which_nobody_has_looked_yet_whether_it_can_change(
    node: Node,
) -> None:
    first = farm("a--http", addresses=[{"ip": "10.96.0.12", "ports": "80"}])
    node.inputs.replace_all([first, farm()], 20)
    await node.settle(20)
    node.nft.lacks = ("queue num",)
    # A pass has two, the new one and the first: that which has the address comes along because of it.
    node.inputs.put(farm("a--http", addresses=[{"ip": "10.96.0.13", "ports": "80"}], generation=2, version=21))
    node.inputs.put(farm(addresses=[{"ip": "10.96.0.11", "ports": "80"}], queue=3, generation=2, version=22))
    node.inputs.put(farm("late--http", version=23))
    node.inputs.seen(23)
    await node.settle(23)
    assert sorted(node.nftlb.farms) == ["a--http", "web--http"]
    assert ("DELETE", "/farms/late--http") not in node.nftlb.changes, "for a moment two farms had one address"
    assert node.loop.progress.problems[FarmKey("default", "late--http")].reason == "AddressInUse"
    assert node.loop.progress.problems[KEY_OF_WEB].reason == "KernelFeatureMissing"


@pytest.mark.parametrize(
    "impossible", [{"queue": 3}, {"flowOffload": True}], ids=["KernelFeatureMissing", "Unsupported"]
)
async def test_an_address_is_not_given_away_while_who_has_it_cannot_change(
    node: Node, impossible: dict[str, Any]
) -> None:
    other = [{"ip": "10.96.0.11", "ports": "80"}]
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    node.nft.lacks = ("queue num",)
    node.inputs.put(farm(addresses=other, **impossible, generation=2, version=21))
    node.inputs.put(farm("late--http", version=22))
    node.inputs.seen(22)
    await node.settle(22)
    assert list(node.nftlb.farms) == ["web--http"]
    assert node.loop.progress.problems[FarmKey("default", "late--http")].reason == "AddressInUse"
    node.inputs.put(farm(addresses=other, generation=3, version=23))
    node.inputs.seen(23)
    await until(lambda: set(node.nftlb.farms) == {"web--http", "late--http"})
    await until(lambda: not node.loop.progress.problems)


async def test_a_retired_farm_that_comes_back_is_served(node: Node) -> None:
    def six(name: str, ip: str, version: int) -> Farm:
        pods = [raw_backend("p", "fd00:1::1")]
        return farm(name, family="ipv6", addresses=[{"ip": ip, "ports": "80"}], backends=pods, version=version)

    node.inputs.replace_all([six("a", "fd00::1", 10), six("b", "fd00::2", 10)], 20)
    await node.settle(20)
    node.inputs.remove(FarmKey("default", "a"), 21)
    node.inputs.seen(21)
    await node.settle(21)
    assert node.nftlb.farms["a"]["backends"] == {}, "it is retired"
    node.inputs.put(six("a", "fd00::1", 22))
    node.inputs.seen(22)
    await node.settle(22)
    assert list(node.nftlb.farms["a"]["backends"]) == ["p"]


async def test_a_farm_that_cannot_be_translated_stays_and_stops_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.inputs.replace_all([farm()], 20)
    await node.settle(20)
    before = dict(node.nftlb.farms["web--http"])
    real = translate.translate

    def broken(given: NodeFarm, present: objects.Farm | None) -> objects.Farm:
        if given.name == "web--http":
            raise RuntimeError("nobody thought of this")
        return real(given, present)

    monkeypatch.setattr("kube_nftlb.agent.engine.nftlb.engine.translate", broken)
    node.inputs.put(farm(generation=2, version=21, scheduler="weight"))
    node.inputs.put(farm("other", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=22))
    node.inputs.seen(22)
    await node.settle(22)
    assert (node.nftlb.farms["web--http"], "other" in node.nftlb.farms) == (before, True)
    assert "nobody thought of this" in node.loop.progress.problems[KEY_OF_WEB].message
