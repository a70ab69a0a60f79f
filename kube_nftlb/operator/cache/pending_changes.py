"""Which changes of Services and EndpointSlices wait to become farms, and since when. No I/O."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from kube_nftlb.operator.cache.slices import ServiceKey


class Change(NamedTuple):
    """All changes of one Service that wait: how many of each kind, and when the oldest was made in the cluster."""

    services: int = 0
    slices: int = 0
    made_at: datetime | None = None


class Changes:
    """Changes wait until ``done`` is told of their Service; what comes in after ``begin`` waits for the next time."""

    def __init__(self) -> None:
        self._waiting: dict[ServiceKey, Change] = {}
        self._in_work: dict[ServiceKey, Change] = {}

    def note(self, keys: Iterable[ServiceKey], change: Change) -> None:
        """These Services have changed."""
        for key in keys:
            self._waiting[key] = _joined(self._waiting.get(key), change)

    def begin(self, key: ServiceKey) -> Change:
        """A Service is looked at; all of its changes that are not done."""
        change = _joined(self._in_work.get(key), self._waiting.pop(key, Change()))
        self._in_work[key] = change
        return change

    def done(self, key: ServiceKey) -> None:
        """What was begun is in the farms."""
        self._in_work.pop(key, None)

    def forget(self) -> None:
        """Whoever looks at everything needs not know what has changed, and what it finds was another's to write."""
        self._waiting.clear()
        self._in_work.clear()

    def pending(self) -> Change:
        """All changes that are not done, of all Services."""
        return _sum((self._waiting, self._in_work))


def _joined(one: Change | None, other: Change) -> Change:
    if one is None:
        return other
    times = [time for time in (one.made_at, other.made_at) if time is not None]
    return Change(one.services + other.services, one.slices + other.slices, min(times, default=None))


def _sum(tables: Iterable[Mapping[ServiceKey, Change]]) -> Change:
    total = Change()
    for table in tables:
        for change in table.values():
            total = _joined(total, change)
    return total
