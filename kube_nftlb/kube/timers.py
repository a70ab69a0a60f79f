"""Keys that come due, each once. No I/O."""

import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

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
