"""Wait for the first lists, and say so if that takes long."""

import asyncio
from collections.abc import Callable

_WARN_EVERY_S = 30.0


async def until_set(event: asyncio.Event, warn: Callable[[], None]) -> None:
    """Wait for an event; call ``warn`` after each half minute in which it has not come."""
    while not event.is_set():
        try:
            async with asyncio.timeout(_WARN_EVERY_S):
                await event.wait()
        except TimeoutError:
            warn()
