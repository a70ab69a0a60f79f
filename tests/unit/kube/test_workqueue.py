import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_nftlb.kube.workqueue import WorkQueue

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def queue() -> WorkQueue[Any]:
    return WorkQueue(lambda: asyncio.get_running_loop().time())


async def take_all(queue: WorkQueue[Any]) -> list[Any]:
    taken = []
    while True:
        try:
            async with asyncio.timeout(0.5):
                taken.append(await queue.get())
        except TimeoutError:
            return taken
        queue.done(taken[-1])


async def test_keys_come_once_and_in_order(queue: WorkQueue[Any]) -> None:
    queue.add_all(["a", "b", "a"])
    assert await take_all(queue) == ["a", "b"]


async def test_a_key_in_work_is_handed_out_again_only_afterwards(queue: WorkQueue[Any]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    queue.done("a")
    assert await queue.get() == "a"


async def test_a_delayed_key_comes_when_it_is_due_and_sooner_when_added_again(queue: WorkQueue[Any]) -> None:
    queue.add("late", 60)
    queue.add("soon", 0.005)
    assert await take_all(queue) == ["soon"]
    queue.add("late")
    assert await take_all(queue) == ["late"]
    assert len(queue) == 0


async def test_a_later_time_does_not_put_a_key_off(queue: WorkQueue[Any]) -> None:
    queue.add("a", 0.005)
    queue.add("a", 60)
    assert await take_all(queue) == ["a"]


async def test_idle_means_that_nothing_is_due_or_in_work(queue: WorkQueue[Any]) -> None:
    queue.add("a")
    waiting = asyncio.create_task(queue.until_idle())
    await asyncio.sleep(0)
    key = await queue.get()
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(key)
    await waiting


async def test_a_waiting_worker_is_woken(queue: WorkQueue[Any]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await waiting == "a"


async def test_a_queue_stalls_when_its_keys_are_neither_taken_nor_done() -> None:
    now = [100.0]
    queue: WorkQueue[Any] = WorkQueue(lambda: now[0])
    assert queue.stalled_s() == 0
    now[0] = 500
    queue.add("a")
    queue.add("later", 1000)
    now[0] = 510
    assert queue.stalled_s() == 10
    assert await queue.get() == "a"
    assert queue.stalled_s() == 0
    now[0] = 530
    queue.add("b")
    assert queue.stalled_s() == 20
    queue.done("a")
    assert queue.stalled_s() == 0
    assert await queue.get() == "b"
    queue.done("b")
    now[0] = 600
    assert queue.stalled_s() == 0


async def test_what_is_urgent_takes_turns_with_the_rest() -> None:
    queue: WorkQueue[Any] = WorkQueue(lambda: 0.0, str.isupper)
    queue.add_all(["a", "b", "c", "d"])
    queue.add_all(["A", "B"])
    assert len(queue) == 6
    taken = [await queue.get() for _ in range(6)]
    assert sorted(taken[:4]) == ["A", "B", "a", "b"]
    assert [key for key in taken if key.islower()] == ["a", "b", "c", "d"]
    for key in taken:
        queue.done(key)
    await asyncio.wait_for(queue.until_idle(), 1)


async def test_in_a_crowd_the_last_has_every_other_turn_and_nobody_starves(queue: WorkQueue[Any]) -> None:
    queue.add_all(range(1000))
    taken = []
    for late in range(1000, 1100):
        queue.add(late)
        for _ in range(4):
            taken.append(await queue.get())
            queue.done(taken[-1])
        assert late in taken, "it came last"
    assert taken.count(0) == 1
    assert [key for key in taken if key < 200] == list(range(200)), "half of the turns are for those that wait longest"
    rest = await take_all(queue)
    assert sorted(taken + rest) == list(range(1100))


async def test_a_group_does_not_wait_for_the_thousands_of_another() -> None:
    queue: WorkQueue[Any] = WorkQueue(lambda: 0.0, group=lambda key: key[0])
    queue.add_all([f"a{number}" for number in range(1000)])
    queue.add_all(["b0", "b1", "c0"])
    queue.add_all([f"a{number}" for number in range(1000, 2000)])
    taken = [await queue.get() for _ in range(8)]
    assert [key for key in taken if key[0] != "a"] == ["b0", "c0", "b1"]
    assert len(queue) == 2003
    rest = await take_all(queue)
    assert len({*taken, *rest}) == 2003


async def test_in_two_crowds_both_take_the_last_too() -> None:
    queue: WorkQueue[Any] = WorkQueue(lambda: asyncio.get_running_loop().time(), lambda key: key >= 1000)
    queue.add_all([*range(100), *range(1000, 1100)])
    taken = [await queue.get() for _ in range(8)]
    assert sorted(taken) == [0, 1, 98, 99, 1000, 1001, 1098, 1099]


async def test_it_tells_how_many_of_a_group_wait() -> None:
    queue: WorkQueue[str] = WorkQueue(lambda: 0.0, group=lambda key: key[0])
    for key, delay_s in (("a1", 0), ("a2", 5), ("a2", 1), ("b1", 0), ("a2", 0)):
        queue.add(key, delay_s)
    assert (queue.waiting("a"), queue.waiting("b"), queue.waiting("c")) == (2, 1, 0)
    taken = await queue.get()
    queue.add(taken)
    queue.add(taken)
    assert (queue.waiting("a"), queue.waiting("b")) == (1, 1)
    queue.done(taken)
    assert queue.waiting(taken[0]) == 2 - (taken[0] == "b")


async def test_a_reminder_does_not_wait_until_it_is_due(queue: WorkQueue[Any]) -> None:
    queue.remind("a", 30)
    queue.remind("a", 60)
    assert (len(queue), queue.waiting(None)) == (0, 0)
    assert await take_all(queue) == []
    queue.add("a")
    assert await take_all(queue) == ["a"], "it can be queued as ever"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(28)
    assert not waiting.done()
    await asyncio.sleep(2)
    assert waiting.done(), "the earliest time counts"
    queue.remind("a", 1)
    await asyncio.sleep(2)
    assert await take_all(queue) == [], "a worker has it"
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_a_worker_that_waits_hears_of_a_reminder(queue: WorkQueue[Any]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.1)
    queue.remind("a", 5)
    assert await asyncio.wait_for(waiting, 6) == "a"


async def test_a_defect_with_one_key_stops_no_other_and_is_tried_again_in_a_minute(queue: WorkQueue[Any]) -> None:
    handled: list[tuple[float, str]] = []

    async def handle(key: str) -> None:
        handled.append((asyncio.get_running_loop().time() - began, key))
        if key == "bad":
            raise RuntimeError("a defect")

    began = asyncio.get_running_loop().time()
    with capture_logs() as logs:
        worker = asyncio.create_task(queue.work("farm", handle))
        queue.add_all(["bad", "good"])
        await asyncio.sleep(61)
        worker.cancel()
    assert [(round(at), key) for at, key in handled] == [(0, "bad"), (0, "good"), (60, "bad")]
    assert [(each["event"], each["key"]) for each in logs] == [("cannot reconcile farm", "bad")] * 2
