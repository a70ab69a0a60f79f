"""The lag of changes that wait to be programmed. No I/O; times are seconds of any one clock."""

Versions = tuple[int, ...]
"""One resourceVersion for each watch; those of different watches are not compared."""


class Lag:
    """Changes count as done when the watermarks reach the latest changes at the time when they began to wait.

    So while changes come without pause the queue need not become empty, only what was in it must be done.
    """

    def __init__(self) -> None:
        self.waiting_since: float | None = None
        """The time since which changes wait, or None."""
        self.done_at: float | None = None
        """The time at which all waiting changes were last programmed; None before the first."""
        self._until: Versions = ()

    def queued(self, latest: Versions, now: float) -> None:
        """Note that changes wait, the ``latest`` at these resourceVersions."""
        if self.waiting_since is None:
            self.waiting_since = now
            self._until = latest

    def advanced(self, watermarks: Versions, latest: Versions, now: float, *, pending: bool) -> None:
        """Note that everything up to the watermarks is programmed; ``pending`` if changes after them wait."""
        behind = any(watermark < until for watermark, until in zip(watermarks, self._until, strict=False))
        if pending and (self.waiting_since is None or behind):
            return
        self.done_at = now
        self.waiting_since = None
        if pending:
            self.queued(latest, now)

    def overdue(self, limit_s: float, now: float) -> bool:
        """Return True if changes have waited for longer than the limit."""
        return self.waiting_since is not None and now - self.waiting_since > limit_s
