"""The rate at which the statuses of farms are written: what the API server can take, whoever they are of. No I/O."""

_FIRST_PER_S = 100.0
_LEAST_PER_S = 10.0
_GROWTH_PER_S = 20.0
"""How much faster the rate is after each second in which it was too low, and writes were quick."""
_SLOW_S = 0.5
"""A write that takes longer shows that the API server has enough to do."""
_SLOW_FACTOR, _OVERLOADED_FACTOR = 0.8, 0.5
_REDUCED_EVERY_S = 1.0
"""Writes that are under way together tell of the same load."""
_EVENTS_PER_S = 20_000.0
"""The rate at which the API server sends statuses to nodes: each agent watches the farms, and gets each status."""


class StatusBudget:
    """Tokens for writes, one each; those of a second can be saved. Times are seconds of any clock.

    The rate grows steadily while writes wait for it and are quick, and falls by a factor when the API server is slow or
    rejects them, as the window of TCP does (additive increase, multiplicative decrease).
    """

    def __init__(self, most_per_s: float) -> None:
        self._most_per_s = most_per_s
        self._nodes = 1
        self._rate = _FIRST_PER_S
        self._tokens = self.per_s
        self._filled_at: float | None = None
        self._grown_at = 0.0
        self._reduced_at = float("-inf")

    @property
    def per_s(self) -> float:
        """The current rate."""
        return min(self._rate, self._limit)

    def set_nodes(self, number: int) -> None:
        """Take the number of nodes that get each status."""
        self._nodes = number

    def wait_s(self, now: float) -> float:
        """Return the seconds until a write may begin; 0 for now."""
        self._fill(now)
        # Not less than a clock can tell.
        return 0.0 if self._tokens >= 1 else max((1 - self._tokens) / self.per_s, 0.001)

    def is_scarce(self, now: float) -> bool:
        """Return True if more is written than half the rate."""
        self._fill(now)
        return self._tokens < self.per_s / 2

    def take(self, now: float) -> None:
        """Note that a write begins."""
        self._fill(now)
        self._tokens -= 1

    def done(self, took_s: float, now: float, *, overloaded: bool) -> None:
        """Note the end of a write, and if the API server, or the way to it, failed under its load."""
        since_s, self._grown_at = min(now - self._grown_at, 1.0), now
        if overloaded or took_s > _SLOW_S:
            if now - self._reduced_at >= _REDUCED_EVERY_S:
                self._reduced_at = now
                self._rate = max(self.per_s * (_OVERLOADED_FACTOR if overloaded else _SLOW_FACTOR), self._floor)
                self._tokens = min(self._tokens, self._rate)
        elif self.is_scarce(now):
            self._rate = min(self.per_s + _GROWTH_PER_S * since_s, self._limit)

    @property
    def _floor(self) -> float:
        return min(_LEAST_PER_S, self._most_per_s)

    @property
    def _limit(self) -> float:
        return max(min(self._most_per_s, _EVENTS_PER_S / max(self._nodes, 1)), self._floor)

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            self._tokens = min(self._tokens + (now - self._filled_at) * self.per_s, self.per_s)
        self._filled_at = now
