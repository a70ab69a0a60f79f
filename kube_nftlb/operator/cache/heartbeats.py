"""The agents that no longer report, though the API server could be asked. No I/O."""

from collections.abc import Callable

_INTERRUPTED_S = 30.0
"""Time in seconds without contact to the API server after which all agents have their time anew."""


class Heartbeats:
    """When each agent reported last. ``clock`` returns seconds.

    Only time in contact with the API server counts: while it is away nobody is silent, nor as soon as it is back.
    """

    def __init__(self, clock: Callable[[], float], silent_after_s: float) -> None:
        self.silent_after_s = silent_after_s
        self._clock = clock
        self._heard: dict[str, tuple[str, float]] = {}
        self._contact_at = self._contact_since = float("-inf")

    def heard(self, name: str, reported_at: str) -> None:
        """Take the time that an agent gives for its last report; one that gives none, of an older version, counts."""
        if self._heard.get(name, ("", 0.0))[0] != reported_at or not reported_at:
            self._heard[name] = reported_at, self._clock()

    def contact(self) -> None:
        """Note that the API server answers."""
        now = self._clock()
        if now - self._contact_at > _INTERRUPTED_S:
            self._contact_since = now
        self._contact_at = now

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._heard.pop(name, None)

    def silent(self) -> list[str]:
        """Return the nodes whose agents give the time of their reports, and have not reported for so long."""
        return sorted(
            name
            for name, (reported_at, at) in self._heard.items()
            if reported_at and self._contact_at - max(at, self._contact_since) > self.silent_after_s
        )
