"""Decide which of many waiting keys are next, so that none waits for a crowd of others. No I/O."""

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

_CROWD = 64
"""Keys of one group, or of all, from which on the newest of them gets turns."""

K = TypeVar("K", bound=Hashable)


class FairQueue(Generic[K]):
    """Waiting keys, each once, with the resourceVersion since which each waits.

    - Groups of keys, such as namespaces, take turns: the thousands of one do not delay those of another.
    - Urgent keys and all others take turns: a few urgent keys do not wait behind thousands.
    - In a crowd, the oldest and the newest key take turns: a single change does not wait for all earlier ones, and
      these wait no more than twice as long. Where all groups together are a crowd, the newest key of all gets one
      turn in eight.
    """

    def __init__(
        self,
        is_urgent: Callable[[K], bool] = lambda _: False,
        group: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self._is_urgent = is_urgent
        self._urgent: _Lane[K] = _Lane(group)
        self._others: _Lane[K] = _Lane(group)
        self._since: dict[K, int] = {}
        self._turns = itertools.count()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, key: object) -> bool:
        return key in self._since

    def __iter__(self) -> Iterator[K]:
        return iter(self._since)

    def add(self, key: K, since: int = 0) -> None:
        """Add a key, or look again if a waiting one is urgent. The lowest ``since`` of a waiting key counts."""
        self._since[key] = min(since, self._since.get(key, since))
        lane, other = (self._urgent, self._others) if self._is_urgent(key) else (self._others, self._urgent)
        other.discard(key)
        lane.add(key)

    def take(self, limit: int) -> dict[K, int]:
        """Remove and return up to ``limit`` keys, each with its ``since``; all of them come oldest first."""
        if len(self) <= limit:
            keys, self._since = self._since, {}
            self._urgent.clear()
            self._others.clear()
            return keys
        return {(key := self._next()): self._since.pop(key) for _ in range(limit)}

    def oldest_since(self) -> int | None:
        """Return the lowest ``since`` of all waiting keys, or None if none waits."""
        return min(self._since.values(), default=None)

    def _next(self) -> K:
        turn = next(self._turns)
        first, second = (self._urgent, self._others) if turn % 2 == 0 else (self._others, self._urgent)
        lane = first or second
        # Halved, so that neither lane always gives its oldest.
        if turn // 2 % 8 == 7 and len(lane) >= _CROWD:
            return lane.take_newest()
        return lane.take(newest=turn // 2 % 2 == 1)


class _Lane(Generic[K]):
    """Keys in the order of their arrival, in groups that take turns."""

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        self._groups: dict[Hashable, dict[K, None]] = {}
        self._arrived: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._arrived)

    def add(self, key: K) -> None:
        self._arrived[key] = None
        self._groups.setdefault(self._group(key), {})[key] = None

    def discard(self, key: K) -> None:
        self._arrived.pop(key, None)
        group = self._group(key)
        keys = self._groups.get(group, {})
        keys.pop(key, None)
        if not keys:
            self._groups.pop(group, None)

    def clear(self) -> None:
        self._groups.clear()
        self._arrived.clear()

    def take_newest(self) -> K:
        """Remove and return the key that arrived last, whatever its group."""
        key = next(reversed(self._arrived))
        self.discard(key)
        return key

    def take(self, *, newest: bool) -> K:
        """Remove and return a key of the group whose turn it is; with ``newest`` the newest one if it is a crowd."""
        group = next(iter(self._groups))
        keys = self._groups.pop(group)
        key = next(reversed(keys)) if newest and len(keys) >= _CROWD else next(iter(keys))
        del keys[key]
        del self._arrived[key]
        if keys:
            self._groups[group] = keys
        return key
