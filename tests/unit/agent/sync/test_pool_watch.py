"""Farms wait for the list of pools as the agent begins, but not for ever."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.announcing import pool_watch
from kube_nftlb.agent.announcing.pool_watch import PoolWatch
from kube_nftlb.kube.resources import ADDRESS_POOLS
from tests.builders import farm
from tests.fakes.kube import FakeKube
from tests.fakes.node import until
from tests.unit.agent.sync.conftest import Node

AWAY = errors.KubeUnreachableError("connection refused")
FORBIDDEN = errors.KubeError(403, "Forbidden", "may not list")
POOL = {
    "metadata": {"name": "a", "generation": 1},
    "spec": {"ranges": ["192.0.2.0/28"]},
    "status": {
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Valid",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-02T00:00:00Z",
            }
        ]
    },
}


@asynccontextmanager
async def watching(kube: FakeKube, node: Node) -> AsyncIterator[PoolWatch]:
    watch = PoolWatch(kube, node.state, lambda _, __: None)
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
    kube.put(ADDRESS_POOLS, POOL)
    kube.list_errors.extend([AWAY, AWAY])
    async with watching(kube, node) as watch:
        await eventually(lambda: len(kube.list_errors) == 1)
        assert not node.state.complete
        await eventually(lambda: watch.knows_pools)
        await node.settle(20)
    assert len([each for each in node.nft.commands if "unserved-pools" in each]) == 1


async def test_an_agent_that_may_not_list_pools_goes_without(node: Node) -> None:
    kube = FakeKube()
    kube.list_errors.extend([FORBIDDEN] * 99)
    async with watching(kube, node) as watch:
        await node.settle(20)
        assert not watch.knows_pools
    assert list(node.engine.farms) == ["web--http"]


async def test_a_list_that_is_not_answered_holds_farms_up_for_some_seconds_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_watch, "_WAIT_S", 0.3)
    kube = FakeKube()
    kube.list_errors.extend([AWAY] * 99)
    async with watching(kube, node) as watch:
        await eventually(lambda: node.state.complete_but_for_pools)
        await until(lambda: node.clock.now() > 3)
        assert not node.state.complete
        await eventually(lambda: node.state.complete)
        await node.settle(20)
        assert not watch.knows_pools
