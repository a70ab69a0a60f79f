"""How many statuses are written in a second, and whose."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.sync.status_budget import StatusBudget
from tests.fakes.virtual_time import VirtualTime


class Writing:
    """Workers that write statuses as the operator's do, to an API server that takes a while for each."""

    def __init__(self, clock: Callable[[], float], most_per_s: float = 500) -> None:
        self.clock = clock
        self.budget = StatusBudget(most_per_s)
        self.queue: WorkQueue[FarmKey] = WorkQueue(clock, group=lambda key: key.namespace)
        self.written: list[tuple[float, FarmKey]] = []
        self.took_s = 0.005
        self.overloaded = False
        self.tasks = [asyncio.create_task(self.queue.work("status", self._write, self._until_budget)) for _ in range(4)]

    async def _until_budget(self) -> None:
        if (wait_s := self.budget.wait_s(self.clock())) > 0:
            await asyncio.sleep(wait_s)

    async def _write(self, key: FarmKey) -> None:
        self.budget.take(self.clock())
        await asyncio.sleep(self.took_s)
        self.budget.done(self.took_s, self.clock(), overloaded=self.overloaded)
        self.written.append((self.clock(), key))

    def add(self, namespace: str, number: int) -> None:
        for each in range(number):
            self.queue.add(FarmKey(namespace, f"web-{each}"))

    async def until_written(self, number: int) -> float:
        """Wait until so many are written; return for how many seconds."""
        begun = self.clock()
        while len(self.written) < number:
            await asyncio.sleep(0.1)
        return self.clock() - begun


@pytest.fixture
async def writing(virtual_time: VirtualTime) -> AsyncIterator[Writing]:
    writing = Writing(virtual_time.now)
    yield writing
    for task in writing.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_single_farm_never_waits_however_often_it_was_written(writing: Writing) -> None:
    for number in range(1, 600):
        writing.add("default", 1)
        await asyncio.sleep(0.1)
        assert len(writing.written) == number


async def test_8000_at_once_are_written_within_30_seconds(writing: Writing) -> None:
    writing.add("default", 8000)
    assert await writing.until_written(8000) <= 30


async def test_a_namespace_does_not_wait_for_the_thousands_of_another(writing: Writing) -> None:
    writing.add("crowd", 8000)
    await asyncio.sleep(5)
    for number in range(10):
        writing.add("default", number + 1)
        before = writing.clock()
        await asyncio.sleep(0.5)
        mine = [at - before for at, key in writing.written if key.namespace == "default" and at >= before]
        assert len(mine) == number + 1
        assert max(mine) < 0.3


async def test_namespaces_have_like_shares(writing: Writing) -> None:
    for namespace, number in (("a", 5000), ("b", 500), ("c", 500)):
        writing.add(namespace, number)
    await writing.until_written(900)
    shares = Counter(key.namespace for _, key in writing.written[:900])
    # One turn in eight is for the latest of all.
    assert all(250 <= shares[namespace] <= 400 for namespace in "abc")


async def test_a_burst_of_one_farm_is_one_write(writing: Writing) -> None:
    writing.add("crowd", 1000)
    for _ in range(20):
        writing.add("default", 1)
    await writing.until_written(1001)
    assert sum(key.namespace == "default" for _, key in writing.written) <= 2


async def test_it_gives_way_to_an_api_server_that_rejects_writes_and_recovers(writing: Writing) -> None:
    writing.overloaded = True
    writing.add("default", 2000)
    await asyncio.sleep(10)
    assert writing.budget.per_s == 10
    before = len(writing.written)
    await asyncio.sleep(10)
    assert 90 <= len(writing.written) - before <= 110, "it is never silent"
    writing.overloaded = False
    await asyncio.sleep(5)
    assert writing.budget.per_s >= 100


async def test_it_slows_down_where_writes_are_slow(writing: Writing) -> None:
    writing.took_s = 0.8
    writing.add("default", 2000)
    await asyncio.sleep(20)
    assert writing.budget.per_s <= 20


@pytest.mark.parametrize(("nodes", "most"), [(1, 500), (40, 500), (100, 200), (500, 40), (5000, 10)])
async def test_nodes_that_get_each_status_make_them_fewer(writing: Writing, nodes: int, most: int) -> None:
    writing.budget.set_nodes(nodes)
    writing.add("default", 8000)
    await asyncio.sleep(22)
    before = len(writing.written)
    await asyncio.sleep(1)
    assert writing.budget.per_s == most
    assert 0.8 * most <= len(writing.written) - before <= most + 4
