"""Objects of which a cache had room for a part alone are read again, once it has room."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.endpointslices.index import SliceIndex, SliceKey
from kube_nftlb.endpointslices.slices import parse_slice
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.read_again import read_again
from kube_nftlb.kube.resources import ENDPOINT_SLICES, JsonObject, Resource
from tests.builders import endpoint, raw_slice
from tests.fakes.kube import FakeKube

pytestmark = pytest.mark.usefixtures("virtual_time")


class Watched(FakeKube):
    """Has an index of slices, which follows them as by a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SliceIndex(endpoints_max=4)
        self.meanwhile: Callable[[], None] = lambda: None
        """Happens between an answer and its arrival."""

    def happen(self, name: str, count: int) -> None:
        """Have a slice with so many endpoints."""
        ips = (f"10.244.0.{number}" for number in range(1, count + 1))
        raw = raw_slice(*map(endpoint, ips), name=name, version=self.version + 1)
        self.take(self.put(ENDPOINT_SLICES, raw))

    def vanish(self, name: str) -> None:
        self.remove(ENDPOINT_SLICES, name, "default")
        self.index.put(key(name), None)

    def take(self, raw: JsonObject) -> None:
        self.index.put(key(raw["metadata"]["name"]), parse_slice(raw))

    async def list(self, resource: Resource, namespace: str | None = None, **how: Any) -> Listing:
        listing = await super().list(resource, namespace, **how)
        self.meanwhile()
        return listing

    def has(self, name: str) -> int:
        found = self.index.get(key(name))
        return len(found.endpoints) if found is not None else 0


def key(name: str) -> SliceKey:
    return "default", name


@contextlib.asynccontextmanager
async def reading(kube: Watched) -> AsyncIterator[None]:
    task = asyncio.create_task(read_again(kube, ENDPOINT_SLICES, kube.index, kube.take))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_slice_that_was_cut_is_whole_once_there_is_room() -> None:
    kube = Watched()
    for name in ("a", "b", "c"):
        kube.happen(name, 3)
    assert [kube.has(name) for name in "abc"] == [3, 1, 0]
    async with reading(kube):
        await asyncio.sleep(100)
        assert kube.lists == [], "there is no room"
        kube.vanish("a")
        await asyncio.sleep(50)
        assert sorted(map(kube.has, "bc")) == [1, 3]
        asked = len(kube.lists)
        await asyncio.sleep(1000)
        assert len(kube.lists) == asked <= 2, "it is full again"


async def test_what_changed_while_it_was_read_stays_as_the_watch_has_reported_it() -> None:
    kube = Watched()
    kube.happen("a", 3)
    kube.happen("b", 3)
    kube.vanish("a")
    kube.meanwhile = lambda: kube.happen("b", 2)
    async with reading(kube):
        await asyncio.sleep(50)
    assert kube.has("b") == 2


async def test_an_api_server_that_is_away_is_asked_again() -> None:
    kube = Watched()
    kube.happen("a", 3)
    kube.happen("b", 3)
    kube.vanish("a")
    kube.list_errors.append(errors.KubeUnreachableError("away"))
    async with reading(kube):
        await asyncio.sleep(100)
    assert kube.has("b") == 3
