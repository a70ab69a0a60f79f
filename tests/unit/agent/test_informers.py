"""The events of the API server that reach the loop."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from kube_nftlb import errors, names
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.informers import watch_farms, watch_policies, watch_slices
from kube_nftlb.agent.sync.farm_index import FarmIndex
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.policy_references import References
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import SliceIndex, SliceKey
from kube_nftlb.endpointslices.slices import Slice, parse_slice
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, POLICIES
from kube_nftlb.limits import NamespaceLimits
from tests.builders import endpoint, raw_farm, raw_policy, raw_slice
from tests.fakes.kube import FakeKube
from tests.fakes.nft import FakeNft
from tests.unit.agent.sync.conftest import Node

Calls = list[tuple[str, Any]]


class RecordingInputs(LoopState):
    """A state that only records the calls."""

    def __init__(self) -> None:
        self.calls: Calls = []
        self.version = self.seen_version = 0
        self.index = FarmIndex(Policies(), FeatureProbe(FakeNft()))

    def replace_all(self, farms: Iterable[Farm], resource_version: int, unreadable: Collection[FarmKey] = ()) -> None:
        self.calls.append(("all", sorted(farm.metadata.name for farm in farms)))

    def put(self, farm: Farm, since: int | None = None) -> None:
        self.calls.append(("put", farm.metadata.generation))

    def put_unreadable(
        self, key: FarmKey, problem: Problem, resource_version: int, refers: References | None = None
    ) -> None:
        self.calls.append(("refuse", problem.generation))

    def remove(self, key: FarmKey, resource_version: int) -> None:
        self.calls.append(("remove", key))

    def resolved(self, farm: Farm) -> Farm:
        return farm

    def caught_up(self, watermark: str, resource_version: int) -> None:
        pass

    def replace_policies(self, raws: Iterable[Any], resource_version: int) -> None:
        self.calls.append(("all", sorted(raw["metadata"]["name"] for raw in raws)))

    def put_policy(self, raw: Any) -> None:
        self.calls.append(("put", raw["metadata"]["name"]))

    def remove_policy(self, raw: Any) -> None:
        self.calls.append(("remove", raw["metadata"]["name"]))

    def refuse_policy(self, key: PolicyKey) -> None:
        self.calls.append(("refuse", key.name))

    def policies_seen(self, resource_version: int) -> None:
        self.version = resource_version

    def seen(self, resource_version: int) -> None:
        self.version = resource_version


class RecordingHealthChecks(HealthCheckPorts):
    """Health checks that only record the calls."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def replace_all(self, farms: Iterable[Farm]) -> None:
        self.calls.append(("all", sorted(farm.metadata.name for farm in farms)))

    def put(self, farm: Farm) -> None:
        self.calls.append(("put", farm.metadata.generation))

    def remove(self, key: FarmKey) -> None:
        self.calls.append(("remove", key))


class Watch(NamedTuple):
    """An API server that is watched, and what is called for its events."""

    kube: FakeKube
    state: RecordingInputs
    health_checks: RecordingHealthChecks


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    """A watch of a farm at version 12."""
    kube, state, health_checks = FakeKube(), RecordingInputs(), RecordingHealthChecks()
    kube.put(FARMS, raw_farm(version=12))
    task = asyncio.create_task(watch_farms(kube, state, health_checks, NamespaceLimits(farms=4)))
    await kube.delivered()
    assert state.calls == [("all", ["web--http"])]
    state.calls.clear()
    health_checks.calls.clear()
    yield Watch(kube, state, health_checks)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def expired() -> errors.ExpiredError:
    return errors.ExpiredError(410, "Expired", "too old resource version")


async def test_a_status_is_not_told_and_yet_seen(watch: Watch) -> None:
    kube, state, health_checks = watch
    kube.put(FARMS, {**raw_farm(version=13), "status": {"reason": "AllNodes"}})
    await kube.delivered()
    assert (state.calls, health_checks.calls, state.version) == ([], [], 13)
    kube.bookmark(20)
    await kube.delivered()
    assert (state.calls, state.version) == ([], 20)


async def test_labels_are_told_though_they_change_no_generation(watch: Watch) -> None:
    kube, state, _ = watch
    for version, labels in ((13, {"team": "a", "tier": "1"}), (14, {"tier": "1", "team": "a"}), (15, {"team": "a"})):
        raw = raw_farm(version=version)
        kube.put(FARMS, {**raw, "metadata": {**raw["metadata"], "labels": labels}})
    await kube.delivered()
    assert state.calls == [("put", 1), ("put", 1)], "their order makes no difference"


@pytest.mark.parametrize("changed", [{"generation": 2}, {"owner": "web"}])
async def test_what_makes_it_another_farm_is_told_once(watch: Watch, changed: dict[str, Any]) -> None:
    kube, state, health_checks = watch
    for version in (13, 14):
        kube.put(FARMS, raw_farm(version=version, **changed))
    await kube.delivered()
    told = [("put", changed.get("generation", 1))]
    assert (state.calls, health_checks.calls, state.version) == (told, told, 14)


async def test_an_unreadable_farm_is_refused_once_and_read_when_fixed(watch: Watch) -> None:
    kube, state, _ = watch
    for version in (13, 14):
        kube.put(FARMS, raw_farm(version=version, generation=2, scheduler="none such"))
    kube.put(FARMS, raw_farm(version=15, generation=3))
    await kube.delivered()
    assert state.calls == [("refuse", 2), ("put", 3)]


async def test_one_that_was_deleted_and_made_again_is_told_again(watch: Watch) -> None:
    kube, state, _ = watch
    kube.remove(FARMS, "web--http", "default", 13)
    kube.put(FARMS, raw_farm(version=14))
    await kube.delivered()
    assert state.calls == [("remove", FarmKey("default", "web--http")), ("put", 1)]


async def test_after_a_gap_in_the_watch_everything_is_told_again(watch: Watch) -> None:
    kube, state, _ = watch
    kube.watch_errors.append(expired())
    kube.remove(FARMS, "web--http", "default", 13, missed=True)
    kube.bookmark(15)
    await kube.delivered()
    kube.put(FARMS, raw_farm(version=16))
    await kube.delivered()
    assert state.calls == [("all", []), ("put", 1)]


async def test_a_list_with_an_older_farm_than_is_known_ends_the_agent(watch: Watch) -> None:
    """etcd was restored from a backup, and its revision raised: the farm may never be told again."""
    kube, _, _ = watch
    task = next(each for each in asyncio.all_tasks() if "watch_farms" in repr(each))
    kube.watch_errors.append(expired())
    kube.put(FARMS, raw_farm(version=5))
    kube.bookmark(1000)
    with pytest.raises(errors.RestoredError, match="nftlbfarms web--http is older than it was before"):
        await asyncio.wait_for(asyncio.shield(task), 5)


async def test_an_unexpected_error_while_farms_are_read_anew_ends_the_agent(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is restarted, and reads them then. Otherwise they would never be programmed, and nobody would know."""
    kube, _, _ = watch
    task = next(each for each in asyncio.all_tasks() if "watch_farms" in repr(each))

    async def fails(*_: object) -> None:
        raise TypeError("no farm")

    monkeypatch.setattr(kube, "get", fails)
    for number in range(1, 5):
        created = f"2026-01-{20 + number}T00:00:00Z"
        kube.put(FARMS, raw_farm(f"f{number}", created=created, version=kube.version + 1))
    await kube.delivered()
    kube.remove(FARMS, "f1", "default")
    with pytest.raises(TypeError, match="no farm"):
        await asyncio.wait_for(asyncio.shield(task), 5)


async def test_a_list_with_one_that_cannot_be_read_refuses_that_one_alone(watch: Watch) -> None:
    kube, state, _ = watch
    kube.watch_errors.append(expired())
    kube.put(FARMS, raw_farm("other", version=15, scheduler="none such", generation=4))
    await kube.delivered()
    assert state.calls == [("refuse", 4), ("all", ["web--http"]), ("refuse", 4)]


async def test_an_unreadable_farm_stays_as_it_was_also_in_a_list() -> None:
    addresses = [{"type": "LoadBalancer", "ip": "192.0.2.10", "ports": "80"}]
    spec: dict[str, Any] = {"owner": "web", "addresses": addresses, "healthCheckNodePort": 32000}
    kube, node, health_checks = FakeKube(), Node(), RecordingHealthChecks()
    node.start([])
    kube.put(FARMS, raw_farm(version=12, **spec))
    kube.put(FARMS, raw_farm("young", owner="young", created="2026-02-01T00:00:00Z", version=13, addresses=addresses))
    task = asyncio.create_task(watch_farms(kube, node.state, health_checks, NamespaceLimits()))
    await kube.delivered()
    await node.settle(13)
    kube.watch_errors.append(expired())
    kube.put(FARMS, raw_farm(version=15, generation=2, scheduler="none such", **spec))
    kube.bookmark(16)
    await kube.delivered()
    await node.settle(16)
    await node.stop()
    task.cancel()
    assert node.reason() == "Invalid"
    assert FarmKey("default", "web--http") in node.state.load_balancers.farms.get("192.0.2.10"), "the node announces it"
    assert node.state.index.losers == {FarmKey("default", "young")}, "nobody else gets its listener"
    assert health_checks.calls[-1] == ("all", ["web--http", "young"])


class SliceCalls(RecordingInputs):
    """A state that records the slices that it gets, as name, IPs and resourceVersion."""

    def put_slice(self, key: SliceKey, new: Slice | None, version: int, made_at: datetime | None) -> list[Farm]:
        self.calls.append((key[1], (new and [each.ip for each in new.endpoints], version, made_at)))
        return [Farm.model_validate(raw_farm(generation=version))]

    def slices_listed(self, present: Collection[SliceKey], version: int) -> list[Farm]:
        self.calls.append(("all", sorted(name for _, name in present)))
        return []

    def slices_seen(self, version: int) -> None:
        self.version = version


async def test_slices_are_told_and_farms_with_health_checks_follow_them() -> None:
    kube, state, health_checks = FakeKube(), SliceCalls(), RecordingHealthChecks()
    kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.2"), version=7))
    task = asyncio.create_task(watch_slices(kube, state, health_checks))
    await kube.delivered()
    assert state.calls == [("web-1", (["10.244.1.2"], 7, None)), ("all", ["web-1"])]
    state.calls.clear()
    timed = raw_slice(endpoint("10.244.1.3"), name="web-2", version=8)
    timed["metadata"]["annotations"] = {names.ANNOTATION_TRIGGER_TIME: "2026-01-01T00:00:01Z"}
    kube.put(ENDPOINT_SLICES, timed)
    kube.put(ENDPOINT_SLICES, {**raw_slice(name="web-3", version=9), "endpoints": [{"addresses": 7}]})
    kube.remove(ENDPOINT_SLICES, "web-1", "default", 10)
    await kube.delivered()
    assert state.calls == [
        ("web-2", (["10.244.1.3"], 8, datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))),
        ("web-3", (None, 9, None)),
        ("web-1", (None, 10, None)),
    ]
    assert state.version == 10
    assert [call for call in health_checks.calls if call[0] == "put"][-1] == ("put", 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.usefixtures("virtual_time")
async def test_a_slice_that_was_cut_is_told_again_once_there_is_room() -> None:
    kube, state, health_checks = FakeKube(), SliceCalls(), RecordingHealthChecks()
    state.index.slices = slices = SliceIndex(endpoints_max=1)
    raw = raw_slice(endpoint("10.244.1.2"), version=7)
    raw["metadata"]["annotations"] = {names.ANNOTATION_TRIGGER_TIME: "2026-01-01T00:00:01Z"}
    for name in ("other-1", "web-1"):
        slices.put(("default", name), parse_slice(raw))
    kube.put(ENDPOINT_SLICES, raw)
    task = asyncio.create_task(watch_slices(kube, state, health_checks))
    await kube.delivered()
    kube.bookmark(9)
    slices.put(("default", "other-1"), None)
    state.calls.clear()
    await asyncio.sleep(41)
    assert state.calls == [("web-1", (["10.244.1.2"], 7, None))]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_farms_beyond_the_limit_are_left_out_until_there_is_room(watch: Watch) -> None:
    def put(number: int, generation: int = 1) -> None:
        created = f"2026-01-0{number}T00:00:00Z"
        watch.kube.put(FARMS, raw_farm(f"f{number}", created=created, generation=generation, version=100 - number))

    for number in (5, 4, 3):
        put(number)
    await watch.kube.delivered()
    watch.state.calls.clear()
    put(2, generation=7)
    await watch.kube.delivered()
    assert watch.state.calls == [("remove", FarmKey("default", "f5")), ("put", 7)], "the youngest makes room"
    watch.state.calls.clear()
    watch.kube.put(FARMS, raw_farm("f6", created="2026-01-06T00:00:00Z", generation=8, version=99))
    await watch.kube.delivered()
    assert watch.state.calls == [("remove", FarmKey("default", "f6"))], "it is not there for the agent"
    watch.state.calls.clear()
    watch.kube.remove(FARMS, "f3", "default")
    async with asyncio.timeout(10):
        while len(watch.state.calls) < 2:
            await asyncio.sleep(0.001)
    assert watch.state.calls == [("remove", FarmKey("default", "f3")), ("put", 1)], "the next one is read anew"


async def test_what_a_list_shows_to_be_beyond_the_limit_is_left_out() -> None:
    kube, state, health_checks = FakeKube(), RecordingInputs(), RecordingHealthChecks()
    for number in range(9):
        kube.put(FARMS, raw_farm(f"f{number}", created=f"2026-01-{20 - number}T00:00:00Z", version=number + 1))
    task = asyncio.create_task(watch_farms(kube, state, health_checks, NamespaceLimits(farms=4)))
    await kube.delivered()
    task.cancel()
    assert state.calls[-1] == ("all", ["f5", "f6", "f7", "f8"])


async def test_policies_beyond_the_limits_are_left_out_until_there_is_room() -> None:
    kube, state = FakeKube(), RecordingInputs()

    def put(name: str, ranges: int) -> None:
        kube.put(POLICIES, raw_policy(name, cidrs=["10.0.0.0/8"] * ranges, version=kube.version + 1))

    for name in ("c", "b", "a"):
        put(name, 5)
    task = asyncio.create_task(watch_policies(kube, state, NamespaceLimits(policies=2, policy_ranges=20)))
    await kube.delivered()
    assert state.calls == [("refuse", "c"), ("all", ["a", "b"]), ("refuse", "c")]
    state.calls.clear()
    put("a", 21)
    async with asyncio.timeout(10):
        while len(state.calls) < 2:
            await asyncio.sleep(0.001)
    assert sorted(state.calls) == [("put", "c"), ("refuse", "a")], "one that is too large makes room"
    state.calls.clear()
    kube.remove(POLICIES, "b", "default")
    put("a", 15)
    async with asyncio.timeout(10):
        while ("put", "a") not in state.calls:
            await asyncio.sleep(0.001)
    assert state.calls == [("remove", "b"), ("put", "a")]
    task.cancel()
