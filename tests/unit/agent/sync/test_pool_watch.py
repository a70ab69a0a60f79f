"""Farms wait for the list of pools as the agent begins, but not for ever."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.announcing import pool_watch
from kube_nftlb.agent.announcing.pool_watch import PoolWatch
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.kube.resources import ADDRESS_POOLS
from tests.builders import farm
from tests.builders.pools import raw_judged, raw_pool
from tests.fakes.kube import FakeKube
from tests.unit.agent.sync.conftest import Node

AWAY = errors.KubeUnreachableError("connection refused")


@asynccontextmanager
async def watching(kube: FakeKube, node: Node) -> AsyncIterator[PoolWatch]:
    watch = PoolWatch(kube, node.state, lambda _: None)
    task = asyncio.create_task(watch.run())
    node.list([farm()], 20)
    yield watch
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def eventually(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0.01)


async def test_a_failure_that_may_pass_is_waited_for(node: Node) -> None:
    kube = FakeKube()
    kube.put(ADDRESS_POOLS, raw_judged(raw_pool()))
    kube.list_errors.extend([AWAY, AWAY])
    async with watching(kube, node) as watch:
        await eventually(lambda: len(kube.list_errors) == 1)
        assert not node.state.complete
        await eventually(lambda: watch.knows_pools)
        await node.settle(20)
    assert len([each for each in node.nft.commands if "unserved-pools" in each]) == 1


async def test_pools_that_change_together_are_judged_together(node: Node) -> None:
    kube, found = FakeKube(), list[Pools]()
    kube.put(ADDRESS_POOLS, raw_judged(raw_pool("p0")))
    task = asyncio.create_task(PoolWatch(kube, node.state, found.append).run())
    await eventually(lambda: len(found) == 1)
    for number in range(1, 50):
        raw = raw_judged(raw_pool(f"p{number}", f"198.51.100.{number}/32"))
        kube.put(ADDRESS_POOLS, {**raw, "metadata": {**raw["metadata"], "resourceVersion": None}})
    await eventually(lambda: len(found[-1].all) == 50)
    assert len(found) <= 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("status", [403, 404])
async def test_an_agent_that_may_not_list_pools_goes_without(
    node: Node, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(pool_watch, "_WAIT_S", math.inf)
    kube = FakeKube()
    kube.list_errors.extend([errors.KubeError(status, "Reason", "no pools here")] * 99)
    async with watching(kube, node) as watch:
        await node.settle(20)
        assert not watch.knows_pools
    assert list(node.engine.farms) == ["web--http"]


@pytest.mark.parametrize(("status", "begins"), [(403, False), (404, True)])
async def test_addresses_of_pools_whose_definition_is_gone_are_announced_after_a_while(
    node: Node, monkeypatch: pytest.MonkeyPatch, status: int, begins: bool
) -> None:
    monkeypatch.setattr(pool_watch, "_WAIT_S", 0.3)
    kube = FakeKube()
    kube.list_errors.extend([errors.KubeError(status, "Reason", "no pools here")] * 99)
    async with watching(kube, node) as watch:
        await asyncio.sleep(0.2)
        assert not watch.knows_pools
        if begins:
            await eventually(lambda: watch.knows_pools)
        else:
            await asyncio.sleep(1.5)
            assert not watch.knows_pools


async def test_a_definition_must_be_gone_all_the_while(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_watch, "_WAIT_S", 0.05)
    watch, gone = PoolWatch(FakeKube(), node.state, lambda _: None), errors.NotFoundError(404, "NotFound", "no pools")
    known = []
    for error in (gone, AWAY, gone, gone):
        watch._failed(error)  # noqa: SLF001 - as the reflector would call it
        known.append(watch.knows_pools)
        await asyncio.sleep(0.1)
    assert known == [False, False, False, True]


async def test_a_list_that_is_not_answered_holds_farms_up_for_some_seconds_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_watch, "_WAIT_S", 0.3)
    kube = FakeKube()
    kube.list_errors.extend([AWAY] * 99)
    began = time.monotonic()
    async with watching(kube, node) as watch:
        await eventually(lambda: node.state.complete)
        assert time.monotonic() - began > 0.3
        await node.settle(20)
        assert not watch.knows_pools
