"""Notice that somebody else has changed nftables, and compare every farm once more in the background."""

from collections.abc import Awaitable, Callable, Iterable

from kube_nftlb.agent.engine.base import TransactionCount

_GENERATIONS = 2**32
"""Where the kernel's number of transactions begins anew."""


class DriftDetector:
    """Compares the kernel's count of transactions with our own."""

    def __init__(self, generation: Callable[[], Awaitable[int]], ours: Callable[[], TransactionCount]) -> None:
        """``generation`` is the number of the kernel's last transaction; ``ours`` is what we did ourselves."""
        self._read_generation = generation
        self._ours = ours
        self._generation = 0
        self._counted = ours()
        self.suspected = False
        """True if somebody else has changed nftables since everything was compared."""
        self.table_suspected = False
        """True if the agent table may have been changed."""

    async def notice(self) -> None:
        """Look, before and after we may change nftables ourselves, whether somebody else has since the last time.

        How many transactions a daemon made of a request is not known. What others did beside one is found by the audit.
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
    """Rounds in which all farms are compared once more, a few at a time."""

    def __init__(self, every_s: float, batch: int) -> None:
        """A round begins ``every_s`` after a change of nftables, and takes ``batch`` farms at a time."""
        self._every_s = every_s
        self._batch = batch
        self._due_at: float | None = None
        self._left: list[str] = []

    def changed(self, now: float) -> None:
        """Begin a round some time after a change; an earlier one is not put off."""
        self._due_at = self._due_at if self._due_at is not None else now + self._every_s

    def begin(self, now: float) -> None:
        """Begin a round as soon as possible."""
        self._due_at = now

    def due(self, now: float) -> bool:
        """Return True if a round is to begin. One that has begun is ended first, or its end would never be compared."""
        return self._due_at is not None and now >= self._due_at and not self._left

    def start(self, names: Iterable[str]) -> None:
        """Begin a round with these farms."""
        self._left, self._due_at = list(names), None

    def take(self) -> list[str]:
        """Return the next farms to compare."""
        taken, self._left = self._left[: self._batch], self._left[self._batch :]
        return taken
