"""Time as the agent's loop sees it: injected, so that no test waits."""

import asyncio
import time
from typing import Protocol


def rest_s(took_s: float, times: float = 4, least_s: float = 0.1, most_s: float = 10.0) -> float:
    """Return how long to rest after work that may keep the node busy: so many times as long as it took, within bounds.

    So by default it has a fifth of the time, unless it takes longer than 2.5 s.
    """
    return min(max(least_s, times * took_s), most_s)


class Clock(Protocol):
    """Tells the time, and waits."""

    def now(self) -> float:
        """Return the time in seconds, which never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait until the event is set, for at most this many seconds. Return True if it is set."""


class MonotonicClock:
    """The time of this machine."""

    def now(self) -> float:
        """Return ``time.monotonic``."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait until the event is set, for at most this many seconds. Return True if it is set."""
        # Not asyncio.wait_for: until Python 3.12 it ignores a cancellation that comes just after the event.
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True
