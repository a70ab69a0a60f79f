"""Hold a Lease in a thread of its own: a loop that is busy for seconds must not cost the leadership."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import structlog

_GRACE_S = 3.0
"""Maximum time in seconds to stop once the Lease is lost: other programs wait 5 s longer than this one to lead."""
_LOST = 1
"""The exit status of a program that did not stop in time."""

C = TypeVar("C")

_log = structlog.get_logger()


class Holder(Protocol):
    """The holder of a Lease, in any event loop (``lease.Lease``)."""

    leading: asyncio.Event

    @property
    def is_certain(self) -> bool:
        """Return whether a leader leads for certain."""

    async def run(self) -> None:
        """Acquire the Lease, then renew it. Raises LeaseLostError when it is lost."""

    async def release(self) -> None:
        """Release the Lease if this replica holds it."""


class LeaseThread:
    """Runs a Lease in a thread, with an event loop and a connection of its own."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AbstractAsyncContextManager[C]]],
        make: Callable[[C], Holder],
        exit_: Callable[[int], None] = os._exit,
        grace_s: float = _GRACE_S,
    ) -> None:
        """``connect`` and ``make`` are called in the thread.

        ``exit_`` ends a program that still runs ``grace_s`` after a loss.
        """
        self.leading = asyncio.Event()
        """Set while this replica is the leader."""
        self._connect = connect
        self._make = make
        self._exit = exit_
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._ended: asyncio.Future[None] | None = None
        self._holder: Holder | None = None
        self._stops = False
        self._stopping: Callable[[], None] = lambda: None

    @property
    def is_certain(self) -> bool:
        """Return whether a leader leads for certain, and no other one while it stood still."""
        return self._holder is not None and self._holder.is_certain

    async def run(self) -> None:
        """Hold the Lease. Raises LeaseLostError when it is lost. If cancelled, the Lease is held until ``release``."""
        self._ended = self._loop.run_in_executor(self._executor, lambda: asyncio.run(self._hold()))
        await asyncio.shield(self._ended)

    async def release(self) -> None:
        """Release the Lease, and end the thread."""
        self._stops = True
        if self._ended is not None:
            self._stopping()
            await asyncio.gather(self._ended, return_exceptions=True)
        self._executor.shutdown(wait=False)

    async def _hold(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def stopping() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)

        self._stopping = stopping
        if self._stops:
            # Before there was anything to stop.
            return
        async with await self._connect() as connection:
            self._holder = holder = self._make(connection)
            running = asyncio.create_task(holder.run())
            others = [asyncio.create_task(self._announce(holder)), asyncio.create_task(stop.wait())]
            await asyncio.wait([running, others[1]], return_when=asyncio.FIRST_COMPLETED)
            lost = running.done()
            for task in (running, *others):
                task.cancel()
            await asyncio.gather(running, *others, return_exceptions=True)
            if lost:
                self._lost()
                running.result()
            await holder.release()

    async def _announce(self, holder: Holder) -> None:
        await holder.leading.wait()
        self._loop.call_soon_threadsafe(self.leading.set)

    def _lost(self) -> None:
        """Have the program end even if its loop is too busy to notice."""
        self._loop.call_soon_threadsafe(self.leading.clear)
        timer = threading.Timer(self._grace_s, self._end)
        timer.daemon = True
        timer.start()

    def _end(self) -> None:
        _log.error("the Lease is lost, and the program did not stop in time")
        self._exit(_LOST)
