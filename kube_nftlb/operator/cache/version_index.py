"""Keys ordered by resourceVersion. No I/O."""

import bisect
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])


class VersionIndex(Generic[K]):
    """Finds the keys between two resourceVersions without a scan of all."""

    def __init__(self) -> None:
        self._since: dict[K, int] = {}
        self._ordered: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys."""
        return iter(self._since)

    def add(self, key: K, since: int) -> None:
        """Add a key, or move it to another resourceVersion."""
        if self._since.get(key) != since:
            self.discard(key)
            self._since[key] = since
            bisect.insort(self._ordered, (since, key))

    def discard(self, key: K) -> None:
        """Remove a key, if present."""
        if (since := self._since.pop(key, None)) is not None:
            del self._ordered[bisect.bisect_left(self._ordered, (since, key))]

    def within(self, above: int, upto: int) -> list[K]:
        """Return the keys after one resourceVersion, up to and including another."""
        first, last = (bisect.bisect_right(self._ordered, at, key=lambda entry: entry[0]) for at in (above, upto))
        return [key for _, key in self._ordered[first:last]]
