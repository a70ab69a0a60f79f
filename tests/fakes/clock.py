"""A clock that goes as fast as the loop waits: no test sleeps."""

import asyncio


class FakeClock:
    """Time passes only while somebody waits, and then at once."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        await asyncio.sleep(0)
        if event.is_set():
            return True
        self.time += seconds
        return False
