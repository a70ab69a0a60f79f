"""Detect changes of nftables by others, and schedule audits of all farms."""

from collections.abc import Iterable
from typing import Protocol


class ChangeWatch(Protocol):
    """Tells who changes nftables."""

    def others(self) -> set[str]:
        """Return the names of other programs that have changed nftables since the last call."""

    @property
    def pending(self) -> bool:
        """True if there are any."""


class ForeignChanges:
    """Remembers that others have changed nftables until everything was compared."""

    def __init__(self, watch: ChangeWatch) -> None:
        self._watch = watch
        self.suspected = False
        """True if somebody else may have changed nftables since everything was compared."""
        self.table_suspected = False
        """True if the agent table may have been changed."""
        self.programs: set[str] = set()
        """The names of those that have, since what was compared last."""
        self._were_compared = False

    @property
    def pending(self) -> bool:
        """True if others have made changes since ``notice`` was called."""
        return self._watch.pending

    def notice(self) -> None:
        """Look for changes since the last call."""
        if programs := self._watch.others():
            self.suspected = self.table_suspected = True
            self.programs = programs | (set() if self._were_compared else self.programs)
            self._were_compared = False

    def compared(self) -> None:
        """Note that everything was compared; the farms, one by one, come after it."""
        self.suspected = False
        self._were_compared = True


class Audit:
    """Rounds in which all farms are compared, a few at a time."""

    def __init__(self, every_s: float, batch: int) -> None:
        """Start a round ``every_s`` after a change of nftables, and take ``batch`` farms at a time."""
        self._every_s = every_s
        self._batch = batch
        self._due_at: float | None = None
        self._remaining: list[str] = []

    def changed(self, now: float) -> None:
        """Schedule a round after a change at ``now``, unless one is scheduled already."""
        self._due_at = self._due_at if self._due_at is not None else now + self._every_s

    def begin(self, now: float) -> None:
        """Schedule a round for as soon as possible."""
        self._due_at = now

    def due(self, now: float) -> bool:
        """Return True if it is time for a round. One in progress ends first, so that all farms get their turn."""
        return self._due_at is not None and now >= self._due_at and not self._remaining

    def start(self, names: Iterable[str]) -> None:
        """Start a round with these farms."""
        self._remaining, self._due_at = list(names), None

    def take(self) -> list[str]:
        """Return the next farms to compare."""
        batch, self._remaining = self._remaining[: self._batch], self._remaining[self._batch :]
        return batch
