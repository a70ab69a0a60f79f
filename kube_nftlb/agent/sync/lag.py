"""Since when changes of farms have waited to be programmed. No I/O; times are seconds of any one clock."""


class Lag:
    """What waits is done when the watermark has come to where changes were when it began to wait.

    So while changes come without pause it is not the queue that must be empty, only what was in it a while ago.
    """

    def __init__(self) -> None:
        self.waiting_since: float | None = None
        """Since when changes wait; None where none does."""
        self.done_at: float | None = None
        """When changes that waited were all programmed for the last time; None where they never were."""
        self._until = 0

    def queued(self, changed_at: int, now: float) -> None:
        """Something is to be done; the newest of it since the resourceVersion ``changed_at``."""
        if self.waiting_since is None:
            self.waiting_since = now
            self._until = changed_at

    def advanced(self, watermark: int, changed_at: int, now: float, *, pending: bool) -> None:
        """Everything up to the watermark is programmed; ``pending`` tells whether there is anything after it."""
        if pending and (self.waiting_since is None or watermark < self._until):
            return
        self.done_at = now
        self.waiting_since = None
        if pending:
            self.queued(changed_at, now)

    def overdue(self, limit_s: float, now: float) -> bool:
        """Whether changes have waited for longer than the limit."""
        return self.waiting_since is not None and now - self.waiting_since > limit_s
