"""Keys in the order of the resourceVersion since which something holds of them. No I/O."""

import bisect
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])


class Since(Generic[K]):
    """Keys with a resourceVersion each, of which those between two versions are found without a look at the others."""

    def __init__(self) -> None:
        self._since: dict[K, int] = {}
        self._ordered: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: K, since: int) -> None:
        """Put a key in, or at another place."""
        if self._since.get(key) != since:
            self.discard(key)
            self._since[key] = since
            bisect.insort(self._ordered, (since, key))

    def discard(self, key: K) -> None:
        """Take a key out, if it is there."""
        if (since := self._since.pop(key, None)) is not None:
            del self._ordered[bisect.bisect_left(self._ordered, (since, key))]

    def within(self, above: int, upto: int) -> list[K]:
        """Those behind one version, up to another."""
        first, last = (bisect.bisect_right(self._ordered, at, key=lambda entry: entry[0]) for at in (above, upto))
        return [key for _, key in self._ordered[first:last]]
