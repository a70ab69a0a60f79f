"""The rate of events, for decisions that wait for a burst to end. No I/O."""

import math


class Rate:
    """Counts the events of about the last second: old ones count less and less. Times are seconds of any clock."""

    def __init__(self) -> None:
        self._count = 0.0
        self._at = 0.0

    def add(self, now: float) -> None:
        """Count an event."""
        self._count = self._left(now) + 1
        self._at = now

    def below_in_s(self, per_s: float, now: float) -> float:
        """Return the seconds until the rate is below this one if nothing happens any more; 0 or less if it is."""
        return math.log(left / per_s) if (left := self._left(now)) > per_s else 0

    def _left(self, now: float) -> float:
        return self._count * math.exp(self._at - now)
