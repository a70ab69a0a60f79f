"""The frames that a link sends without being asked, at most 200 in any second. Pure; times are seconds of one clock."""

import heapq
from collections import deque
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, NamedTuple

_BURST: Final = 20
_PER_S: Final = 180
"""With the burst, 200 in any second."""


class Urgency(IntEnum):
    """What goes first while there is more than may be sent."""

    WATCH = 0
    """Whether a holder is there: a few for each node, every other frame at most while others wait."""
    TAKE = 1
    """The first announcement of an address: its clients wait."""
    ASK = 2
    REPEAT = 3


class _Due(NamedTuple):
    at: float
    urgency: Urgency
    number: int
    key: Hashable
    frame: bytes


class Pacer:
    """Frames with the times at which they are due. A key names what they are for."""

    def __init__(self) -> None:
        self._later: list[_Due] = []
        self._now: list[tuple[Urgency, int, _Due]] = []
        self._watching: deque[_Due] = deque()
        """Frames to be sent now of the urgency ``WATCH``, which ``_now`` does not have."""
        self._watched = False
        """Whether the last frame was of the urgency ``WATCH``."""
        self._waiting: dict[Hashable, set[int]] = {}
        """The numbers of the frames to be sent, by key; those of cancelled ones are missing."""
        self._allowed = float(_BURST)
        self._counted_at = 0.0
        self._number = 0

    def add(self, key: Hashable, frame: bytes, at: float, urgency: Urgency) -> None:
        """Send a frame at this time, or as soon as the rate allows it."""
        self._number += 1
        self._waiting.setdefault(key, set()).add(self._number)
        heapq.heappush(self._later, _Due(at, urgency, self._number, key, frame))

    def cancel(self, key: Hashable) -> None:
        """Send none of the frames that were added for this key."""
        self._waiting.pop(key, None)

    def waits(self, key: Hashable) -> bool:
        """Return whether frames for this key are yet to be sent."""
        return key in self._waiting

    def due(self, now: float) -> list[bytes]:
        """Return the frames to send now."""
        self._allowed = min(_BURST, self._allowed + max(0.0, now - self._counted_at) * _PER_S)
        self._counted_at = now
        while self._later and self._later[0].at <= now:
            due = heapq.heappop(self._later)
            if due.urgency is Urgency.WATCH:
                self._watching.append(due)
            else:
                heapq.heappush(self._now, (due.urgency, due.number, due))
        frames = []
        while (self._now or self._watching) and self._allowed >= 1:
            self._watched = bool(self._watching) and not (self._watched and self._now)
            due = self._watching.popleft() if self._watched else heapq.heappop(self._now)[2]
            if self._take(due):
                frames.append(due.frame)
                self._allowed -= 1
        return frames

    def wake(self) -> float | None:
        """Return when the next frame may be sent; None if there is none."""
        if self._now or self._watching:
            return self._counted_at + max(0.0, 1 - self._allowed) / _PER_S
        return self._later[0].at if self._later else None

    def _take(self, due: _Due) -> bool:
        """Return whether the frame was not cancelled, and forget it."""
        numbers = self._waiting.get(due.key, set())
        if due.number not in numbers:
            return False
        numbers.remove(due.number)
        if not numbers:
            del self._waiting[due.key]
        return True
