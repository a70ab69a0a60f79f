"""Farms come into the store page by page, and one that nobody can read stops none of the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.client import Listing, WatchEvent
from kube_nftlb.kube.resources import FARMS
from kube_nftlb.operator.cache.store import Store
from kube_nftlb.operator.informers.ingest import FOLLOWED, Intake
from kube_nftlb.operator.informers.reflector import Reflector
from tests.unit.operator.objects import raw_farm

Json = dict[str, Any]


class _Kube:
    """An API server that has these objects, and then tells of these events."""

    def __init__(self, listed: list[Json], events: list[WatchEvent]) -> None:
        self.listed, self.events = listed, events
        self.kept: list[Json] = []

    async def list(self, *_: object, transform: Any, **__: object) -> Listing:
        self.kept = [transform(raw) for raw in self.listed]
        return Listing(self.kept, "10")

    async def watch(self, *_: object, **__: object) -> AsyncIterator[WatchEvent]:
        for event in self.events:
            yield event
        await asyncio.Event().wait()


@pytest.fixture
def store() -> Store:
    return Store()


@contextlib.asynccontextmanager
async def watching(kube: _Kube, store: Store) -> AsyncIterator[asyncio.Task[None]]:
    watch = Reflector(kube, Intake(store), lambda _: None)  # type: ignore[arg-type] # what is asked of it is there
    task = asyncio.create_task(watch.run(FARMS))
    await asyncio.sleep(0.01)
    try:
        yield task
    finally:
        task.cancel()


async def test_of_what_is_listed_no_more_than_the_name_is_kept(store: Store) -> None:
    kube = _Kube([raw_farm(name="a", version=3)], [])
    async with watching(kube, store):
        assert FarmKey("default", "a") in dict(store.farms.items())
    assert kube.kept == [{"metadata": {"namespace": "default", "name": "a"}}]


async def test_what_is_not_on_the_list_is_gone_unless_it_is_younger(store: Store) -> None:
    for name, version in (("old", 5), ("young", 11)):
        Intake(store).take(FARMS, None, raw_farm(name=name, version=version))
    async with watching(_Kube([], []), store):
        pass
    assert {key.name for key, _ in store.farms.items()} == {"young"}


async def test_an_object_that_cannot_be_read_is_passed_over(store: Store) -> None:
    poison = raw_farm(name="poison", version=12)
    poison["metadata"]["generation"] = "none"
    events = [WatchEvent("ADDED", poison), WatchEvent("ADDED", raw_farm(name="good", version=13))]
    async with watching(_Kube([], events), store) as task:
        assert not task.done()
    assert "good" in {key.name for key, _ in store.farms.items()}


async def test_all_kinds_are_waited_for(store: Store) -> None:
    watch = Reflector(_Kube([], []), Intake(store), lambda _: None)  # type: ignore[arg-type] # as above
    runs = [asyncio.create_task(watch.run(resource)) for resource in FOLLOWED[:-1]]
    listed = asyncio.create_task(watch.until_listed())
    await asyncio.sleep(0.01)
    assert not listed.done()
    runs.append(asyncio.create_task(watch.run(FOLLOWED[-1])))
    await asyncio.wait_for(listed, 1)
    for run in runs:
        run.cancel()
