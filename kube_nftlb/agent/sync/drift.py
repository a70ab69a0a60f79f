"""Detect foreign nftables transactions, and schedule audits of all farms."""

from collections.abc import Awaitable, Callable, Iterable

from kube_nftlb.agent.engine.base import TransactionCount

_GENERATIONS = 2**32
"""The kernel's generation counter wraps around here."""


class DriftDetector:
    """Compares the kernel's count of transactions with our own."""

    def __init__(self, generation: Callable[[], Awaitable[int]], ours: Callable[[], TransactionCount]) -> None:
        """Take ``generation``, the number of the kernel's last transaction, and ``ours``, the count of our own."""
        self._read_generation = generation
        self._ours = ours
        self._generation = 0
        self._counted = ours()
        self.suspected = False
        """True if somebody else has changed nftables since everything was compared."""
        self.table_suspected = False
        """True if the agent table may have been changed."""

    async def notice(self) -> None:
        """Check for foreign transactions since the last call. Call it before and after changes of our own.

        The number of transactions per request to a daemon is unknown: foreign ones beside it are left to the audit.
        """
        before, self._counted = self._counted, self._ours()
        last, self._generation = self._generation, await self._read_generation()
        transactions = (self._generation - last) % _GENERATIONS
        if (
            self._counted.requests == before.requests
            and transactions > self._counted.transactions - before.transactions
        ):
            self.suspected = self.table_suspected = True


class Audit:
    """Rounds in which all farms are compared, a few at a time."""

    def __init__(self, every_s: float, batch: int) -> None:
        """Start a round ``every_s`` after a change of nftables, and take ``batch`` farms at a time."""
        self._every_s = every_s
        self._batch = batch
        self._due_at: float | None = None
        self._left: list[str] = []

    def changed(self, now: float) -> None:
        """Schedule a round after a change at ``now``, unless one is scheduled already."""
        self._due_at = self._due_at if self._due_at is not None else now + self._every_s

    def begin(self, now: float) -> None:
        """Schedule a round for as soon as possible."""
        self._due_at = now

    def due(self, now: float) -> bool:
        """Return True if it is time for a round. One in progress ends first, so that all farms get their turn."""
        return self._due_at is not None and now >= self._due_at and not self._left

    def start(self, names: Iterable[str]) -> None:
        """Start a round with these farms."""
        self._left, self._due_at = list(names), None

    def take(self) -> list[str]:
        """Return the next farms to compare."""
        taken, self._left = self._left[: self._batch], self._left[self._batch :]
        return taken
