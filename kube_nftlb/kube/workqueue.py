"""A queue of keys that have to be looked at again; a key is in it once, and in the hands of one worker at a time."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

_CROWD = 64

K = TypeVar("K", bound=Hashable)


class _Lane(Generic[K]):
    """Keys in the order in which they came, by their groups, which take turns."""

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        self._groups: dict[Hashable, dict[K, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, key: K) -> bool:
        return key in self._groups.get(self._group(key), ())

    def add(self, key: K) -> None:
        self._groups.setdefault(self._group(key), {})[key] = None

    def take(self, *, last: bool) -> K:
        """The first key of the group whose turn it is; of a crowd the last one, if it is to be."""
        group = next(iter(self._groups))
        keys = self._groups.pop(group)
        key = next(reversed(keys)) if last and len(keys) >= _CROWD else next(iter(keys))
        del keys[key]
        if keys:
            self._groups[group] = keys
        return key


class WorkQueue(Generic[K]):
    """Keys in the order in which they came due. ``clock`` tells the time in seconds.

    A key that is added while it is being worked on is handed out again afterwards. Keys for which ``is_urgent`` holds
    when they come due share the turns with all others, one by one: so a few of them do not wait behind thousands. And
    where there is a crowd every other of its turns is for the key that came last: a single change does not wait until
    all that were made before it are done, and these wait no more than twice as long. Groups of keys, such as
    namespaces, take turns: the thousands of one do not keep those of another waiting.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        is_urgent: Callable[[K], bool] = lambda _: False,
        group: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._is_urgent = is_urgent
        self._urgent: _Lane[K] = _Lane(group)
        self._ready: _Lane[K] = _Lane(group)
        self._turns = itertools.count()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._running: set[K] = set()
        self._again: dict[K, float] = {}
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._progressed_at = 0.0

    def __len__(self) -> int:
        return len(self._urgent) + len(self._ready) + len(self._due) + len(self._running)

    def add(self, key: K, delay_s: float = 0) -> None:
        """Have a key handed out, at once or after a while; the earlier of two times counts."""
        due = self._clock() + delay_s
        if key in self._running:
            self._again[key] = min(due, self._again.get(key, due))
        elif key not in self._ready and key not in self._urgent:
            if self._idle.is_set():
                self._progressed_at = self._clock()
            if delay_s <= 0:
                self._due.pop(key, None)
                self._make_ready(key)
                self._wake.set()
            elif due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, next(self._order), key))
                self._wake.set()

    def add_all(self, keys: Iterable[K]) -> None:
        """Have keys handed out at once."""
        for key in keys:
            self.add(key)

    async def get(self) -> K:
        """The next key that is due; give it back with ``done``."""
        # Most of thousands need no write, and what was written for others is to be answered meanwhile.
        await asyncio.sleep(0)
        while True:
            wait_s = self._promote()
            if self._urgent or self._ready:
                key = self._take()
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
        """The work on a key is over."""
        self._running.discard(key)
        self._progressed_at = self._clock()
        if (due := self._again.pop(key, None)) is not None:
            self.add(key, due - self._clock())
        if not self._busy:
            self._idle.set()

    def stalled_s(self) -> float:
        """For how long no key was taken or done although there are some to do; 0 where there are none."""
        return self._clock() - self._progressed_at if self._busy else 0

    async def until_idle(self) -> None:
        """Return when nothing is due and nothing is being worked on."""
        await self._idle.wait()

    @property
    def _busy(self) -> bool:
        return bool(self._urgent or self._ready or self._running)

    def _make_ready(self, key: K) -> None:
        (self._urgent if self._is_urgent(key) else self._ready).add(key)
        self._idle.clear()

    def _take(self) -> K:
        turn = next(self._turns)
        first, second = (self._urgent, self._ready) if turn % 2 == 0 else (self._ready, self._urgent)
        lane = first or second
        # By the second digit, so that neither of the two always gives its first.
        return lane.take(last=turn // 2 % 2 == 1)

    def _promote(self) -> float | None:
        """Make ready what has come due; the seconds until the next, None where there is none."""
        while self._later:
            due, _, key = self._later[0]
            if self._due.get(key) != due:
                heapq.heappop(self._later)  # It was made ready, or put earlier, since.
            elif (wait_s := due - self._clock()) > 0:
                return wait_s
            else:
                heapq.heappop(self._later)
                del self._due[key]
                self._make_ready(key)
        return None
