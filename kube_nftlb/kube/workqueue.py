"""The queue of keys to reconcile: a key waits in it once, and one worker at a time has it. It has timers for later."""

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import structlog

from kube_nftlb.kube.fair_queue import FairQueue

_DEFECT_RETRY_S = 60.0

_log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Keys with the time at which each is due, in seconds of any clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: object) -> bool:
        return key in self._due

    def set(self, key: K, due: float) -> bool:
        """Set when a key is due; of two times the earlier counts. Return True if this one does."""
        if due >= self._due.get(key, float("inf")):
            return False
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        return True

    def cancel(self, key: K) -> None:
        """Forget a key, if present."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """Return when the next key is due, or None if there is none."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # Cancelled, or moved to an earlier time, since.
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> Iterator[K]:
        """Remove and yield the keys that have come due, in the order of their times."""
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            yield key


class WorkQueue(Generic[K]):
    """Keys handed out as they come due, in the order that ``FairQueue`` decides. ``clock`` returns seconds.

    A key that is added while a worker has it is handed out again once the worker is done. ``is_urgent`` is asked when
    a key comes due.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        is_urgent: Callable[[K], bool] = lambda _: False,
        group: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._group = group
        self._ready: FairQueue[K] = FairQueue(is_urgent, group)
        self._waiting: Counter[Hashable] = Counter()
        self._later: Timers[K] = Timers()
        self._reminders: Timers[K] = Timers()
        self._running: set[K] = set()
        self._again: dict[K, float] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._progressed_at = 0.0

    def __len__(self) -> int:
        return len(self._ready) + len(self._later) + len(self._running)

    def waiting(self, group: Hashable) -> int:
        """Return the number of keys of a group that no worker has yet."""
        return self._waiting[group]

    def add(self, key: K, delay_s: float = 0) -> None:
        """Queue a key, to be handed out after ``delay_s`` seconds; the earlier of two times counts."""
        due = self._clock() + delay_s
        if key in self._running:
            self._again[key] = min(due, self._again.get(key, due))
        elif key not in self._ready:
            if self._idle.is_set():
                self._progressed_at = self._clock()
            if key not in self._later:
                self._waiting[self._group(key)] += 1
            if delay_s <= 0:
                self._later.cancel(key)
                self._make_ready(key)
                self._wake.set()
            elif self._later.set(key, due):
                self._wake.set()

    def remind(self, key: K, delay_s: float) -> None:
        """Queue a key in ``delay_s`` seconds, at the earliest of all such times; until then it does not wait."""
        if self._reminders.set(key, self._clock() + delay_s):
            self._wake.set()

    def add_all(self, keys: Iterable[K]) -> None:
        """Queue keys without a delay."""
        for key in keys:
            self.add(key)

    async def get(self) -> K:
        """Wait for the next key that is due; call ``done`` with it afterwards."""
        # Most keys need no write: let answers to the writes for other keys in.
        await asyncio.sleep(0)
        while True:
            wait_s = self._promote()
            if self._ready:
                (key,) = self._ready.take(1)
                self._remove_waiting(self._group(key))
                self._running.add(key)
                self._progressed_at = self._clock()
                return key
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def done(self, key: K) -> None:
        """Give a key back after the work on it."""
        self._running.discard(key)
        self._progressed_at = self._clock()
        if (due := self._again.pop(key, None)) is not None:
            self.add(key, due - self._clock())
        if not self._busy:
            self._idle.set()

    async def work(
        self,
        what: str,
        handle: Callable[[K], Awaitable[float | None]],
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Hand out keys until cancelled. ``handle`` returns the seconds until a key is due again, None if it is not.

        What it raises is logged as a failure to reconcile ``what``, and the key is due again in a minute: a defect with
        one must not stop the others. ``before`` is awaited before each key.
        """
        while True:
            if before is not None:
                await before()
            key = await self.get()
            try:
                delay_s = await handle(key)
            except Exception:
                _log.exception(f"cannot reconcile {what}", key=str(key))
                delay_s = _DEFECT_RETRY_S
            finally:
                self.done(key)
            if delay_s is not None:
                self.add(key, delay_s)

    def stalled_s(self) -> float:
        """Return the seconds since a key was last taken or done; 0 if none is due."""
        return self._clock() - self._progressed_at if self._busy else 0

    async def until_idle(self) -> None:
        """Wait until no key is due and no worker has one."""
        await self._idle.wait()

    def _remove_waiting(self, group: Hashable) -> None:
        self._waiting[group] -= 1
        if not self._waiting[group]:
            del self._waiting[group]

    @property
    def _busy(self) -> bool:
        return bool(self._ready or self._running)

    def _make_ready(self, key: K) -> None:
        self._ready.add(key)
        self._idle.clear()

    def _promote(self) -> float | None:
        """Make ready what has come due; return the seconds until the next key is, or None if there is none."""
        now = self._clock()
        for key in self._later.take(now):
            self._make_ready(key)
        self.add_all(self._reminders.take(now))
        dues = [due for due in (self._later.next_due(), self._reminders.next_due()) if due is not None]
        return min(dues) - now if dues else None
