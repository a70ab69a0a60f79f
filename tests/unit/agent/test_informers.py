"""What of the API server's events is told to the reconciler."""

import asyncio
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.informers import watch_farms
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.resources import FARMS
from tests.builders import raw_farm
from tests.fakes.kube import FakeKube


class Told:
    """A reconciler and the health checks in one, which only remember."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.version = 0

    def replace_all(self, farms, version=None):
        self.calls.append(("all", sorted(farm.metadata.name for farm in farms)))

    def put(self, farm):
        self.calls.append(("put", farm.metadata.generation))

    def put_unreadable(self, key, problem, version, refers):
        self.calls.append(("refuse", problem.generation))

    def remove(self, key, version=None):
        self.calls.append(("remove", key))

    def seen(self, version):
        self.version = version


@pytest.fixture
async def watch():
    """An API server that is watched, and what was told; a farm is there, at version 12."""
    kube, reconciler, health_checks = FakeKube(), Told(), Told()
    kube.put(FARMS, raw_farm(version=12))
    task = asyncio.create_task(watch_farms(kube, reconciler, health_checks))
    await kube.delivered()
    assert reconciler.calls == [("all", ["web--http"])]
    reconciler.calls.clear()
    health_checks.calls.clear()
    yield kube, reconciler, health_checks
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def expired():
    return errors.ExpiredError(410, "Expired", "too old resource version")


async def test_a_status_is_not_told_and_yet_seen(watch):
    kube, reconciler, health_checks = watch
    kube.put(FARMS, {**raw_farm(version=13), "status": {"reason": "AllNodes"}})
    await kube.delivered()
    assert (reconciler.calls, health_checks.calls, reconciler.version) == ([], [], 13)
    kube.bookmark(20)
    await kube.delivered()
    assert (reconciler.calls, reconciler.version) == ([], 20)


@pytest.mark.parametrize("changed", [{"generation": 2}, {"owner": "web"}])
async def test_what_makes_it_another_farm_is_told_once(watch, changed):
    kube, reconciler, health_checks = watch
    for version in (13, 14):
        kube.put(FARMS, raw_farm(version=version, **changed))
    await kube.delivered()
    told = [("put", changed.get("generation", 1))]
    assert (reconciler.calls, health_checks.calls, reconciler.version) == (told, told, 14)


async def test_one_that_cannot_be_read_is_refused_once_and_read_when_it_is_mended(watch):
    kube, reconciler, _ = watch
    for version in (13, 14):
        kube.put(FARMS, raw_farm(version=version, generation=2, scheduler="none such"))
    kube.put(FARMS, raw_farm(version=15, generation=3))
    await kube.delivered()
    assert reconciler.calls == [("refuse", 2), ("put", 3)]


async def test_one_that_was_deleted_and_made_again_is_told_again(watch):
    kube, reconciler, _ = watch
    kube.remove(FARMS, "web--http", "default", 13)
    kube.put(FARMS, raw_farm(version=14))
    await kube.delivered()
    assert reconciler.calls == [("remove", FarmKey("default", "web--http")), ("put", 1)]


async def test_after_a_gap_in_the_watch_everything_is_told_again(watch):
    kube, reconciler, _ = watch
    kube.watch_errors.append(expired())
    kube.remove(FARMS, "web--http", "default", 13, missed=True)
    kube.bookmark(15)
    await kube.delivered()
    kube.put(FARMS, raw_farm(version=16))
    await kube.delivered()
    assert reconciler.calls == [("all", []), ("put", 1)]


async def test_a_list_with_one_that_cannot_be_read_refuses_that_one_alone(watch):
    kube, reconciler, _ = watch
    kube.watch_errors.append(expired())
    kube.put(FARMS, raw_farm("other", version=15, scheduler="none such", generation=4))
    await kube.delivered()
    assert reconciler.calls == [("refuse", 4), ("all", ["web--http"]), ("refuse", 4)]
