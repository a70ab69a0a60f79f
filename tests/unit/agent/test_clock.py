import asyncio

import pytest

from kube_nftlb.agent.clock import MonotonicClock


@pytest.mark.parametrize("steps", range(4))
async def test_who_is_cancelled_just_after_the_event_does_not_go_on(steps: int) -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(MonotonicClock().wait(event, 60))
    await asyncio.sleep(0.01)
    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    if done:
        assert await waiting
    else:
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_wait_tells_whether_the_event_came() -> None:
    event = asyncio.Event()
    assert not await MonotonicClock().wait(event, 0.01)
    event.set()
    assert await MonotonicClock().wait(event, 0)
