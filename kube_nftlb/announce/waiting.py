"""Wait for what a loop has done."""

import asyncio
import contextlib
from collections.abc import Callable


async def until_done(done: Callable[[], bool], looked: asyncio.Event, patience_s: float) -> None:
    """Return once ``done``, which is asked anew whenever ``looked`` is set; wait no longer than ``patience_s``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while not done():
                looked.clear()
                await looked.wait()
