"""Changes of Services and EndpointSlices that are not in farms yet, and when the oldest was made. No I/O."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from kube_nftlb.operator.cache.slices import ServiceKey


class PendingChange(NamedTuple):
    """The pending changes of one Service: their number by kind, and when the oldest was made in the cluster."""

    services: int = 0
    slices: int = 0
    made_at: datetime | None = None


class PendingChanges:
    """Changes by Service, from ``note`` to ``done``. What is noted after ``begin`` waits for the next ``begin``."""

    def __init__(self) -> None:
        self._waiting: dict[ServiceKey, PendingChange] = {}
        self._in_work: dict[ServiceKey, PendingChange] = {}

    def note(self, keys: Iterable[ServiceKey], change: PendingChange) -> None:
        """Add a change to each of these Services."""
        for key in keys:
            self._waiting[key] = _joined(self._waiting.get(key), change)

    def begin(self, key: ServiceKey) -> PendingChange:
        """Start work on a Service; return all of its changes that are not done."""
        change = _joined(self._in_work.get(key), self._waiting.pop(key, PendingChange()))
        self._in_work[key] = change
        return change

    def done(self, key: ServiceKey) -> None:
        """Drop the changes of a Service that ``begin`` returned: its farms have them."""
        self._in_work.pop(key, None)

    def forget(self) -> None:
        """Drop everything, before all Services are reconciled anyway."""
        self._waiting.clear()
        self._in_work.clear()

    def pending(self) -> PendingChange:
        """Return the sum of all changes that are not done."""
        return _sum((self._waiting, self._in_work))


def _joined(one: PendingChange | None, other: PendingChange) -> PendingChange:
    if one is None:
        return other
    times = [time for time in (one.made_at, other.made_at) if time is not None]
    return PendingChange(one.services + other.services, one.slices + other.slices, min(times, default=None))


def _sum(tables: Iterable[Mapping[ServiceKey, PendingChange]]) -> PendingChange:
    total = PendingChange()
    for table in tables:
        for change in table.values():
            total = _joined(total, change)
    return total
