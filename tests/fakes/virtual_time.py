"""An event loop that does not wait: what sleeps in a test takes no time."""

import asyncio
import math
import selectors
from typing import Any


class VirtualTime:
    """Makes the time of an event loop jump to its next timer when nothing else is left to do.

    Only for tests without sockets, threads and processes, which the loop does not wait for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._now = 1000.0
        self._loop = loop
        # Nothing public shows for how long the loop waits.
        selector: selectors.BaseSelector = vars(loop)["_selector"]
        self._select = selector.select
        vars(loop)["time"] = self.now
        self._set_resolution()
        vars(selector)["select"] = self._skip

    def now(self) -> float:
        """Return the seconds of the loop's clock."""
        return self._now

    def _skip(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        ready = self._select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self._now += max(timeout, 0)
            self._set_resolution()
        return ready

    def _set_resolution(self) -> None:
        """Have no timer fire early: what waits for a time that never comes would be tried again for ever."""
        vars(self._loop)["_clock_resolution"] = math.ulp(self._now)
