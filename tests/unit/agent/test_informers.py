"""What of the API server's events is told to the inputs."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.informers import watch_farms
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table.policy_references import References
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.kube.resources import FARMS
from tests.builders import raw_farm
from tests.fakes.kube import FakeKube

Calls = list[tuple[str, Any]]


class RecordingInputs(Inputs):
    """Inputs that only record the calls."""

    def __init__(self) -> None:
        self.calls: Calls = []
        self.version = 0

    def replace_all(self, farms: Iterable[Farm], resource_version: int) -> None:
        self.calls.append(("all", sorted(farm.metadata.name for farm in farms)))

    def put(self, farm: Farm, since: int | None = None) -> None:
        self.calls.append(("put", farm.metadata.generation))

    def put_unreadable(
        self, key: FarmKey, problem: Problem, resource_version: int, refers: References | None = None
    ) -> None:
        self.calls.append(("refuse", problem.generation))

    def remove(self, key: FarmKey, resource_version: int) -> None:
        self.calls.append(("remove", key))

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
    inputs: RecordingInputs
    health_checks: RecordingHealthChecks


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    """A watch of a farm at version 12."""
    kube, inputs, health_checks = FakeKube(), RecordingInputs(), RecordingHealthChecks()
    kube.put(FARMS, raw_farm(version=12))
    task = asyncio.create_task(watch_farms(kube, inputs, health_checks))
    await kube.delivered()
    assert inputs.calls == [("all", ["web--http"])]
    inputs.calls.clear()
    health_checks.calls.clear()
    yield Watch(kube, inputs, health_checks)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def expired() -> errors.ExpiredError:
    return errors.ExpiredError(410, "Expired", "too old resource version")


async def test_a_status_is_not_told_and_yet_seen(watch: Watch) -> None:
    kube, inputs, health_checks = watch
    kube.put(FARMS, {**raw_farm(version=13), "status": {"reason": "AllNodes"}})
    await kube.delivered()
    assert (inputs.calls, health_checks.calls, inputs.version) == ([], [], 13)
    kube.bookmark(20)
    await kube.delivered()
    assert (inputs.calls, inputs.version) == ([], 20)


@pytest.mark.parametrize("changed", [{"generation": 2}, {"owner": "web"}])
async def test_what_makes_it_another_farm_is_told_once(watch: Watch, changed: dict[str, Any]) -> None:
    kube, inputs, health_checks = watch
    for version in (13, 14):
        kube.put(FARMS, raw_farm(version=version, **changed))
    await kube.delivered()
    told = [("put", changed.get("generation", 1))]
    assert (inputs.calls, health_checks.calls, inputs.version) == (told, told, 14)


async def test_an_unreadable_farm_is_refused_once_and_read_when_fixed(watch: Watch) -> None:
    kube, inputs, _ = watch
    for version in (13, 14):
        kube.put(FARMS, raw_farm(version=version, generation=2, scheduler="none such"))
    kube.put(FARMS, raw_farm(version=15, generation=3))
    await kube.delivered()
    assert inputs.calls == [("refuse", 2), ("put", 3)]


async def test_one_that_was_deleted_and_made_again_is_told_again(watch: Watch) -> None:
    kube, inputs, _ = watch
    kube.remove(FARMS, "web--http", "default", 13)
    kube.put(FARMS, raw_farm(version=14))
    await kube.delivered()
    assert inputs.calls == [("remove", FarmKey("default", "web--http")), ("put", 1)]


async def test_after_a_gap_in_the_watch_everything_is_told_again(watch: Watch) -> None:
    kube, inputs, _ = watch
    kube.watch_errors.append(expired())
    kube.remove(FARMS, "web--http", "default", 13, missed=True)
    kube.bookmark(15)
    await kube.delivered()
    kube.put(FARMS, raw_farm(version=16))
    await kube.delivered()
    assert inputs.calls == [("all", []), ("put", 1)]


async def test_a_list_with_one_that_cannot_be_read_refuses_that_one_alone(watch: Watch) -> None:
    kube, inputs, _ = watch
    kube.watch_errors.append(expired())
    kube.put(FARMS, raw_farm("other", version=15, scheduler="none such", generation=4))
    await kube.delivered()
    assert inputs.calls == [("refuse", 4), ("all", ["web--http"]), ("refuse", 4)]
