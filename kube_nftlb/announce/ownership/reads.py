"""When Leases are read again that the segment contradicts: any host there can say so, as often as it likes. Pure."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

_FIRST_S, _MAX_S = 0.5, 10.0
"""How long a Lease rests that was read and has not changed; twice as long each time."""
_FAILED_MAX_S: Final = 2.0
"""How long at most one rests that could not be read."""
_QUIET_S: Final = 20.0
"""After this time without a read the first one counts as the first again."""
_PER_S: Final = 200
"""So many in any second: all of 500 addresses within three, as after a split of the segment, and not 1,000 a second."""
_NEVER: Final = (-math.inf, 0.0)


class Reads:
    """The reads of one node. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}
        """When each Lease was read, and how long it rests since."""
        self._recent: deque[float] = deque(maxlen=_PER_S)

    def take(self, wanted: Iterable[str], now: float) -> tuple[tuple[str, ...], float | None]:
        """Return the addresses whose Leases to read now, and when to ask again for the others; None if there are none.

        Those that were never read, or the longest time ago, come first.
        """
        taken, later = [], []
        for ip in sorted(wanted, key=lambda ip: self._last.get(ip, _NEVER)):
            at, rest_s = self._last.get(ip, _NEVER)
            due = max(at + rest_s, self._recent[0] + 1.0 if len(self._recent) == _PER_S else now)
            if now < due:
                later.append(due)
                continue
            self._last[ip] = now, min(2 * rest_s, _MAX_S) if now < at + _QUIET_S else _FIRST_S
            self._recent.append(now)
            taken.append(ip)
        return tuple(taken), min(later, default=None)

    def failed(self, ip: str) -> None:
        """Take note that its Lease could not be read: nobody knows that it has not changed."""
        if (last := self._last.get(ip)) is not None:
            self._last[ip] = last[0], min(last[1], _FAILED_MAX_S)

    def forget(self, ip: str) -> None:
        """Take note that its Lease has changed, or does not matter any more."""
        self._last.pop(ip, None)
