"""The election over a fake API server that refuses what has another version by now, as the real one does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from kube_nftlb import errors
from kube_nftlb.kube.leader_election import DURATION_S, RENEW_DEADLINE_S, RETRY_S
from kube_nftlb.kube.lease import Lease
from kube_nftlb.kube.resources import LEASES
from tests.fakes.kube import FakeKube

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
async def kube() -> FakeKube:
    return FakeKube()


def replica(kube: FakeKube, name: str) -> Lease:
    return Lease(kube, "here", "it", asyncio.get_running_loop().time, name)


def touch(kube: FakeKube, **spec: object) -> None:
    """Somebody else writes the Lease."""
    known = kube.find(LEASES, "it", "here")
    assert known is not None
    kube.put(LEASES, {"metadata": {"name": "it", "namespace": "here"}, "spec": {**known["spec"], **spec}})


@contextlib.asynccontextmanager
async def running(*leases: Lease) -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(each.run()) for each in leases]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(2 * DURATION_S):
        while not check():
            await asyncio.sleep(RENEW_DEADLINE_S)


def holder(kube: FakeKube) -> str:
    found = kube.find(LEASES, "it", "here")
    return str(found["spec"]["holderIdentity"]) if found else ""


async def test_one_of_many_leads_and_goes_on_leading(kube: FakeKube) -> None:
    replicas = [replica(kube, f"r{number}") for number in range(5)]
    async with running(*replicas):
        await until(lambda: any(each.leading.is_set() for each in replicas))
        leader = next(each for each in replicas if each.leading.is_set())
        for _ in range(40):
            await asyncio.sleep(RETRY_S / 2)
            assert [each for each in replicas if each.leading.is_set()] == [leader]
        assert kube.version > 5, "it is renewed"


async def test_who_gives_the_lease_back_is_followed_at_once(kube: FakeKube) -> None:
    one, two = replica(kube, "one"), replica(kube, "two")
    async with running(one) as [task]:
        await until(one.leading.is_set)
        async with running(two):
            await asyncio.sleep(2 * DURATION_S)
            assert not two.leading.is_set()
            task.cancel()
            await asyncio.wait([task])
            await one.release()
            async with asyncio.timeout(RETRY_S):
                await two.leading.wait()
    found = kube.find(LEASES, "it", "here")
    assert found is not None
    assert found["spec"]["leaseTransitions"] == 1


async def test_a_leader_that_is_silent_is_followed_after_the_duration(kube: FakeKube) -> None:
    one, two = replica(kube, "one"), replica(kube, "two")
    async with running(one) as [task]:
        await until(one.leading.is_set)
        async with running(two):
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(DURATION_S - RETRY_S)
            assert not two.leading.is_set()
            assert holder(kube) == "one"
            await until(two.leading.is_set)
            assert holder(kube) == "two"


async def test_a_leader_that_cannot_renew_ends_before_anybody_else_may_lead(kube: FakeKube) -> None:
    one = replica(kube, "one")
    async with running(one) as [task]:
        await until(one.leading.is_set)
        kube.away = True
        with pytest.raises(errors.LeaseLostError, match="could not be renewed"):
            await asyncio.wait_for(asyncio.shield(task), DURATION_S)
        assert not one.leading.is_set()


@pytest.mark.parametrize("clock", [0, 1])
async def test_a_leader_that_stood_still_leads_for_certain_only_once_it_has_renewed_the_lease(
    kube: FakeKube, clock: int
) -> None:
    loop, stood_s = asyncio.get_running_loop(), [0.0, 0.0]
    one = Lease(kube, "here", "it", loop.time, "one", lambda: tuple(loop.time() + each for each in stood_s))
    async with running(one):
        await until(one.leading.is_set)
        for _ in range(40):
            await asyncio.sleep(RETRY_S / 2)
            assert one.is_certain
        stood_s[clock] = DURATION_S
        assert not one.is_certain, "another may lead"
        await asyncio.sleep(RETRY_S)
        assert one.is_certain, "none did"
        kube.away = True
        stood_s[clock] *= 2
        await asyncio.sleep(RETRY_S)
        assert not one.is_certain


async def test_a_leader_whose_lease_is_anothers_ends(kube: FakeKube) -> None:
    one = replica(kube, "one")
    async with running(one) as [task]:
        await until(one.leading.is_set)
        touch(kube, holderIdentity="thief")
        with pytest.raises(errors.LeaseLostError, match="was taken by 'thief'"):
            await asyncio.wait_for(asyncio.shield(task), 2 * DURATION_S)
    await one.release()
    assert holder(kube) == "thief", "what is another's is not given back"


async def test_a_leader_bears_with_changes_that_leave_it_the_lease(kube: FakeKube) -> None:
    one = replica(kube, "one")
    async with running(one) as [task]:
        await until(one.leading.is_set)
        touch(kube, leaseTransitions=9)
        await asyncio.sleep(RENEW_DEADLINE_S)
        kube.remove(LEASES, "it", "here")
        await until(lambda: holder(kube) == "one")
        await asyncio.sleep(RENEW_DEADLINE_S)
        assert not task.done()


async def test_an_api_server_that_is_away_at_first_is_waited_for(kube: FakeKube) -> None:
    kube.away = True
    one = replica(kube, "one")
    async with running(one):
        await asyncio.sleep(RENEW_DEADLINE_S)
        kube.away = False
        await until(one.leading.is_set)


async def test_a_watch_that_ends_ends_a_replica_that_waits(kube: FakeKube) -> None:
    one, two = replica(kube, "one"), replica(kube, "two")
    async with running(one):
        await until(one.leading.is_set)
        async with running(two) as [task]:
            await asyncio.sleep(RETRY_S)
            kube.watch_errors.append(errors.RestoredError("etcd was restored"))
            touch(kube)
            with pytest.raises(errors.RestoredError):
                await asyncio.wait_for(asyncio.shield(task), RETRY_S)
