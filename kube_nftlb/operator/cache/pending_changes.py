"""Changes of Services that are not in farms yet. No I/O."""

from collections import Counter
from collections.abc import Iterable

from kube_nftlb.endpointslices.slices import ServiceKey


class PendingChanges:
    """Counts changes by Service, from ``note`` to ``done``. What is noted after ``begin`` waits for the next one."""

    def __init__(self) -> None:
        self._waiting: Counter[ServiceKey] = Counter()
        self._in_work: Counter[ServiceKey] = Counter()

    def note(self, keys: Iterable[ServiceKey]) -> None:
        """Add a change to each of these Services."""
        self._waiting.update(keys)

    def begin(self, key: ServiceKey) -> None:
        """Start work on a Service, with all of its changes that are not done."""
        if count := self._waiting.pop(key, 0):
            self._in_work[key] += count

    def done(self, key: ServiceKey) -> None:
        """Drop the changes of a Service that work was begun on: its farms have them."""
        self._in_work.pop(key, None)

    def forget(self) -> None:
        """Drop everything, before all Services are reconciled anyway."""
        self._waiting.clear()
        self._in_work.clear()

    def pending(self) -> int:
        """Return the number of all changes that are not done."""
        return self._waiting.total() + self._in_work.total()
