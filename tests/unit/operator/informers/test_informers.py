"""Farms come into the cache page by page, and one that nobody can read stops none of the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kube_nftlb import errors
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, SERVICE_CIDRS
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.informers.informers import Informers
from kube_nftlb.operator.informers.kinds import WATCHED
from tests.builders import endpoint, raw_service_farm, raw_slice
from tests.fakes.kube import FakeKube


@pytest.fixture
def cache() -> Cache:
    return Cache()


@contextlib.asynccontextmanager
async def watching(kube: FakeKube, cache: Cache) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(Informers(kube, Ingest(cache), lambda _: None).run(FARMS))
    await kube.delivered()
    try:
        yield task
    finally:
        task.cancel()


async def test_of_what_is_listed_no_more_than_the_name_is_kept(cache: Cache) -> None:
    kube = FakeKube()
    kube.put(FARMS, raw_service_farm(name="a", version=3))
    async with watching(kube, cache):
        assert FarmKey("default", "a") in dict(cache.farms.items())
    assert kube.listed == [{"metadata": {"namespace": "default", "name": "a", "resourceVersion": "3"}}]


async def test_what_is_not_on_the_list_is_gone_unless_it_is_younger(cache: Cache) -> None:
    for name, version in (("old", 5), ("young", 11)):
        Ingest(cache).put(FARMS, raw_service_farm(name=name, version=version))
    async with watching(FakeKube(version=10), cache):
        pass
    assert {key.name for key, _ in cache.farms.items()} == {"young"}


async def test_an_object_that_cannot_be_read_is_passed_over(cache: Cache) -> None:
    kube = FakeKube()
    poison = raw_service_farm(name="poison", version=12)
    poison["metadata"]["generation"] = "none"
    async with watching(kube, cache) as task:
        kube.put(FARMS, poison)
        kube.put(FARMS, raw_service_farm(name="good", version=13))
        await kube.delivered()
        assert not task.done()
    assert "good" in {key.name for key, _ in cache.farms.items()}


async def test_all_kinds_are_waited_for(cache: Cache) -> None:
    kube = FakeKube(version=1)
    watch = Informers(kube, Ingest(cache), lambda _: None)
    runs = [asyncio.create_task(watch.run(resource)) for resource in WATCHED[:-1]]
    listed = asyncio.create_task(watch.until_listed())
    await kube.delivered()
    assert not listed.done()
    runs.append(asyncio.create_task(watch.run(WATCHED[-1])))
    await asyncio.wait_for(listed, 1)
    for run in runs:
        run.cancel()


async def test_a_cluster_without_service_cidrs_is_not_waited_for(cache: Cache) -> None:
    kube = FakeKube(version=1)
    kube.list_errors.append(errors.NotFoundError(404, "NotFound", "no such resource"))
    watch = Informers(kube, Ingest(cache), lambda _: None)
    run = asyncio.create_task(watch.run(SERVICE_CIDRS))
    await kube.delivered()
    others = [asyncio.create_task(watch.run(resource)) for resource in WATCHED if resource is not SERVICE_CIDRS]
    await asyncio.wait_for(watch.until_listed(), 1)
    for task in (run, *others):
        task.cancel()


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_list_with_an_older_state_than_is_known_is_one_of_a_restored_etcd(cache: Cache, is_gone: bool) -> None:
    """``etcdutl snapshot restore --bump-revision``: the list is newer than all that was seen, its objects are not."""
    ingest = Ingest(cache)
    ingest.put(FARMS, raw_service_farm(name="a", version=8))
    if is_gone:
        ingest.remove(FARMS, raw_service_farm(name="a", version=9))
    kube = FakeKube()
    kube.put(FARMS, raw_service_farm(name="a", version=5))
    kube.version = 1000
    with pytest.raises(errors.RestoredError, match="nftlbfarms a is older than it was before"):
        await Informers(kube, ingest, lambda _: None).run(FARMS)


async def test_a_list_from_the_memory_of_a_server_that_lags_is_none(cache: Cache) -> None:
    Ingest(cache).put(FARMS, raw_service_farm(name="a", version=8))
    kube = FakeKube()
    kube.put(FARMS, raw_service_farm(name="a", version=5))
    async with watching(kube, cache) as task:
        assert not task.done()


@pytest.mark.usefixtures("virtual_time")
async def test_a_slice_that_was_cut_is_read_again_once_there_is_room() -> None:
    kube, cache = FakeKube(), Cache(endpoints_max=2)
    changed: list[Affected] = []
    informers = Informers(kube, Ingest(cache), changed.append)
    Ingest(cache).put(FARMS, raw_service_farm())
    for name, service in (("other-1", "other"), ("web-1", "web")):
        raw = raw_slice(endpoint("10.244.0.1"), endpoint("10.244.0.2"), name=name, service=service, version=7)
        Ingest(cache).put(ENDPOINT_SLICES, kube.put(ENDPOINT_SLICES, raw))
    web = ServiceKey("default", "web")
    task = asyncio.create_task(informers.read_cut_slices())
    await asyncio.sleep(100)
    assert cache.slices.index.is_cut(web)
    Ingest(cache).forget(ENDPOINT_SLICES, ("default", "other-1"), 8)
    await asyncio.sleep(41)
    assert not cache.slices.index.is_cut(web)
    assert [len(each.endpoints) for each in cache.slices.index.of(web)] == [2]
    assert [{key.name for key in each.farms} for each in changed] == [{"web--http"}]
    task.cancel()
