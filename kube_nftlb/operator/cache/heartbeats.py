"""The agents that no longer report, though the API server could be asked. No I/O."""

from collections.abc import Callable


class Heartbeats:
    """When each agent reported last. ``clock`` returns seconds.

    Time counts only up to the last contact with the API server: while it is away nobody is silent.
    """

    def __init__(self, clock: Callable[[], float], silent_after_s: float) -> None:
        self.silent_after_s = silent_after_s
        self._clock = clock
        self._heard: dict[str, tuple[str, float]] = {}
        self._contact_at = float("-inf")

    def heard(self, name: str, reported_at: str) -> None:
        """Take the time that an agent gives for its last report; one that gives none, of an older version, counts."""
        now = self._contact_at = self._clock()
        if self._heard.get(name, ("", 0.0))[0] != reported_at or not reported_at:
            self._heard[name] = reported_at, now

    def contact(self) -> None:
        """Note that the API server has told the state of all nodes."""
        self._contact_at = self._clock()

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._heard.pop(name, None)

    def silent(self) -> list[str]:
        """Return the nodes whose agents give the time of their reports, and have not reported for so long."""
        return sorted(
            name
            for name, (reported_at, at) in self._heard.items()
            if reported_at and self._contact_at - at > self.silent_after_s
        )
