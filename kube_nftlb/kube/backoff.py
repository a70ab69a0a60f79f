"""The pauses between failed attempts at a key: each twice as long as the one before. No I/O."""

import zlib
from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

_FIRST_S = 0.1
_MAX_S = 15.0
_LASTING = 8
"""Failures in a row, of some ten seconds, after which they may be for good."""

K = TypeVar("K", bound=Hashable)


class Backoff(Generic[K]):
    """Counts the failures of each key."""

    def __init__(self) -> None:
        self._failures: Counter[K] = Counter()

    def failed(self, key: K) -> float:
        """Note a failure; return the seconds until the next attempt.

        Each key has a share of its own, from a half to all, of that pause: thousands that failed together, as while
        the API server is overloaded, do not come back together.
        """
        self._failures[key] += 1
        share = 0.5 + zlib.crc32(str(key).encode()) / (1 << 33)
        return share * min(_FIRST_S * 2.0 ** min(self._failures[key] - 1, 16), _MAX_S)

    def is_lasting(self, key: K) -> bool:
        """Return True if a key has failed so often in a row that it may fail for good."""
        return self._failures[key] >= _LASTING

    def lasting(self) -> int:
        """Return the number of such keys."""
        return sum(map(self.is_lasting, self._failures))

    def forget(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)
