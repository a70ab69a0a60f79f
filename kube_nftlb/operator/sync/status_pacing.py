"""Decide when a farm has a status worth writing: one that shows a state at rest, or one that lasts. No I/O.

A farm's own history never delays it: how many statuses are written is for ``StatusBudget`` to say.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.api.reports import patience_s
from kube_nftlb.kube.rate import Rate

LIST = frozenset({"backends", "omitted_backends"})
"""The fields of a status that list its backends."""
_WORDS = LIST | {"conditions", "nodes", "reason"}
"""Those that also differ where nodes have only not confirmed endpoints yet."""
_AWAITED_REASONS = frozenset({"Pending", "EndpointsPending"})
_SCARCE_FACTOR = 10
"""How much longer statuses that nodes have not confirmed wait while others need the budget."""
_LIST_AGAIN_S = 1.0
_OFTEN = 3
"""The number of statuses after which a farm is one whose endpoints change often."""


@dataclass(frozen=True)
class StatusTiming:
    """Times in seconds."""

    patience_s: float = 0.6
    """The time that a status waits for the nodes to confirm what it shows; then it says which ones it waits for.

    It is so where few endpoints change, and longer above that (``api.reports``).
    """
    late_s: float = 5.0
    """The same if it would show nothing else: backends that were replaced by as many."""
    quiet_s: float = 1.0
    """The time for which the endpoints of a farm must rest for its backends to be listed.

    It is that many times as long as endpoints of all farms change in a second: where they never rest, only the numbers
    of backends follow.
    """
    quiet_max_s: float = 30.0


class _Endpoints(NamedTuple):
    """The resourceVersion of a farm's endpoints, since when it has them, and until when they do not rest."""

    version: int
    at: float
    restless_until: float


class _Oldest(NamedTuple):
    """The oldest change of a farm's endpoints that some node has not programmed, and since when."""

    version: int
    at: float


class StatusPacing:
    """Remembers what each farm waits for. Times are seconds of any clock."""

    def __init__(self, timing: StatusTiming) -> None:
        self._timing = timing
        self._changes = Rate()
        self._endpoints: dict[FarmKey, _Endpoints] = {}
        self._outdated: dict[FarmKey, float] = {}
        """Since when the written statuses differ from the state that they show."""
        self._oldest: dict[FarmKey, _Oldest] = {}
        self._written: Counter[FarmKey] = Counter()

    def restless_s(self, key: FarmKey, version: int, now: float) -> float:
        """Return for how many seconds the backends of a farm are not listed; 0 or less if they are.

        ``version`` is the resourceVersion of its endpoints.
        """
        known = self._endpoints.get(key)
        if known is None:
            known = self._endpoints[key] = _Endpoints(version, float("-inf"), float("-inf"))
        elif known.version != version:
            self._changes.note(now)
            timing = self._timing
            quiet_s = min(max(self._changes.per_s(now), 1.0) * timing.quiet_s, timing.quiet_max_s)
            until = now + quiet_s if now - known.at < quiet_s else now
            known = self._endpoints[key] = _Endpoints(version, now, until)
        return known.restless_until - now

    def wait_s(
        self, key: FarmKey, status: FarmStatus, fields: Collection[str], reached: int, now: float, *, scarce: bool
    ) -> float:
        """Return the seconds until a status may be written; 0 or less for now.

        ``fields`` are those that differ from what is written, ``reached`` the resourceVersion up to which all nodes
        have programmed endpoints. ``scarce`` says that others need the budget.
        """
        timing, outdated = self._timing, self._outdated.setdefault(key, now)
        oldest = self._oldest.get(key)
        if oldest is None or oldest.version <= reached:
            endpoints = self._endpoints.get(key)
            oldest = self._oldest[key] = _Oldest(endpoints.version if endpoints is not None else 0, now)
        if not any(condition.reason in _AWAITED_REASONS for condition in status.conditions):
            return _LIST_AGAIN_S if scarce and LIST.issuperset(fields) else 0
        patience = patience_s(timing.patience_s, self._changes.per_s(now))
        due = outdated + max(patience, timing.patience_s * _SCARCE_FACTOR if scarce else 0)
        if _WORDS.issuperset(fields) and not _is_pending(status):
            due = max(due, oldest.at + timing.late_s)
        return due - now

    def written(self, key: FarmKey, now: float) -> float:
        """Note that a status is being written. Return for how many seconds the one before was out of date."""
        self._written[key] += 1
        return now - self._outdated.pop(key, now)

    def pays_off(self, key: FarmKey) -> bool:
        """Return True if a write may be spent on a farm to make the next ones cheaper: it has had several."""
        return self._written[key] >= _OFTEN

    def spent(self, key: FarmKey) -> None:
        """Note that it was spent."""
        del self._written[key]

    def unchanged(self, key: FarmKey) -> None:
        """Note that a status is as it was written."""
        self._outdated.pop(key, None)
        self._oldest.pop(key, None)

    def forget(self, key: FarmKey) -> None:
        """Forget a deleted farm."""
        self.unchanged(key)
        self._endpoints.pop(key, None)
        self._written.pop(key, None)


def _is_pending(status: FarmStatus) -> bool:
    """Return True if nodes have not programmed the farm itself."""
    return any(condition.reason == "Pending" for condition in status.conditions)
