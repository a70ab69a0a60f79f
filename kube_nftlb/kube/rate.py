"""How often something happens. No I/O."""

from collections import deque

_WINDOW_S = 10.0
_COUNTED_MAX = 1000


class Rate:
    """The rate of events over the last ten seconds, up to 100 per second. Times are seconds of any clock."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=_COUNTED_MAX)

    def note(self, now: float) -> None:
        """Count an event."""
        self._at.append(now)

    def per_s(self, now: float) -> float:
        """Return the number of events per second."""
        while self._at and self._at[0] <= now - _WINDOW_S:
            self._at.popleft()
        return len(self._at) / _WINDOW_S
