"""The lag of changes that wait to be programmed. No I/O; times are seconds of any one clock."""


class Lag:
    """Changes count as done when the watermark reaches the latest change at the time when they began to wait.

    So while changes come without pause the queue need not become empty, only what was in it must be done.
    """

    def __init__(self) -> None:
        self.waiting_since: float | None = None
        """Since when changes wait, or None."""
        self.done_at: float | None = None
        """When all waiting changes were last programmed; None before the first time."""
        self._until = 0

    def queued(self, changed_at: int, now: float) -> None:
        """Note that changes wait, the latest at the resourceVersion ``changed_at``."""
        if self.waiting_since is None:
            self.waiting_since = now
            self._until = changed_at

    def advanced(self, watermark: int, changed_at: int, now: float, *, pending: bool) -> None:
        """Note that everything up to the watermark is programmed; ``pending`` if changes after it wait."""
        if pending and (self.waiting_since is None or watermark < self._until):
            return
        self.done_at = now
        self.waiting_since = None
        if pending:
            self.queued(changed_at, now)

    def overdue(self, limit_s: float, now: float) -> bool:
        """Return True if changes have waited for longer than the limit."""
        return self.waiting_since is not None and now - self.waiting_since > limit_s
