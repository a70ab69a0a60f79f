"""Farms that wait for the loop, are in progress, or are applied but not verified. Pure: no I/O."""

from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.fair_queue import FairQueue

BATCH_MAX = 32
BATCH_MIN = 2
"""Limits of farms per pass: whatever arrives meanwhile waits for no more than these."""
_PASS_S = 0.25
"""The target duration of a pass; an engine may take longer per farm the more farms it has."""


class Unverified(NamedTuple):
    """An applied farm: the resourceVersion since which it waits, when it was applied, and why it was refused."""

    since: int
    applied_at: float
    refused: str | None


class FarmQueue:
    """Farms by stage; a farm that changes again waits again."""

    def __init__(self, is_urgent: Callable[[FarmKey], bool]) -> None:
        """Urgent farms are added or removed: they matter more than one more backend of others."""
        self.waiting: FairQueue[FarmKey] = FairQueue(is_urgent, attrgetter("namespace"))
        self.in_progress: dict[FarmKey, int] = {}
        self.unverified: dict[FarmKey, Unverified] = {}
        self._batch = BATCH_MAX

    def add(self, keys: Iterable[FarmKey], since: int) -> None:
        """Queue farms, which may be out of date since a resourceVersion."""
        for key in keys:
            self.waiting.add(key, since)

    def take(self, last: Container[FarmKey] = ()) -> list[FarmKey]:
        """Move the next batch to those in progress, and return all in progress.

        Farms in ``last`` come after all others, and alone.
        """
        batch: dict[FarmKey, int] = {}
        put_off: dict[FarmKey, int] = {}
        while self.waiting and not batch:
            for key, since in self.waiting.take(self._batch).items():
                (put_off if key in last else batch)[key] = since
        if put_off and not batch:
            first = next(iter(put_off))
            batch[first] = put_off.pop(first)
        for key, since in put_off.items():
            self.waiting.add(key, since)
        self.in_progress |= batch
        return list(self.in_progress)

    def applied(
        self, refused: Mapping[FarmKey, str], incomplete: Iterable[FarmKey], now: float, seconds: float
    ) -> None:
        """Move farms in progress to the unverified ones; the pass took ``seconds`` until ``now``."""
        for key, since in self.in_progress.items():
            earlier = self.unverified.get(key, Unverified(since, now - seconds, None))
            self.unverified[key] = earlier._replace(since=min(since, earlier.since), refused=refused.get(key))
        for key in incomplete:
            if key in self.in_progress and key not in refused:
                self.waiting.add(key, self.in_progress[key])
        self._batch = fitting_batch(len(self.in_progress), seconds, self._batch)
        self.in_progress = {}

    def to_verify(self, limit: int, first: AbstractSet[FarmKey] = frozenset()) -> list[tuple[FarmKey, str | None]]:
        """Return the oldest unverified farms, those that are in ``first`` before others, each with why it was refused.

        A quarter of the limit is kept for others, which would wait for ever behind some that change all the time.
        Farms that wait again are among them: what was applied of these would else count as done, or never be done.
        """
        others = list(islice((key for key in self.unverified if key not in first), limit))
        early = sorted(self.unverified.keys() & first, key=lambda key: self.unverified[key].applied_at)
        early = early[: limit - min(limit // 4, len(others))]
        late = others[: limit - len(early)]
        return [(key, self.unverified[key].refused) for key in (*early, *late)]

    def verified(self, key: FarmKey) -> None:
        """Remove a farm that was compared with the kernel."""
        self.unverified.pop(key, None)

    def again(self, key: FarmKey) -> None:
        """Queue a farm again that cannot be verified, since it was first to be."""
        if (entry := self.unverified.pop(key, None)) is not None:
            self.waiting.add(key, entry.since)

    def overdue(self, limit_s: float, now: float) -> bool:
        """Return True if the oldest unverified farm was applied longer ago than the limit."""
        oldest = next(iter(self.unverified.values()), None)
        return oldest is not None and now - oldest.applied_at > limit_s

    def restart(self) -> None:
        """Queue everything again that is not verified."""
        for key in list(self.unverified):
            self.again(key)
        for key, since in self.in_progress.items():
            self.waiting.add(key, since)
        self.in_progress = {}

    @property
    def pending(self) -> set[FarmKey]:
        """Farms in any stage."""
        return {*self.waiting, *self.in_progress, *self.unverified}

    @property
    def oldest_since(self) -> int | None:
        """The lowest resourceVersion since which any farm waits, or None."""
        since = [*self.in_progress.values(), *(entry.since for entry in self.unverified.values())]
        if (waiting := self.waiting.oldest_since()) is not None:
            since.append(waiting)
        return min(since, default=None)

    def __contains__(self, key: object) -> bool:
        return key in self.waiting or key in self.in_progress or key in self.unverified

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_progress) + len(self.unverified)


def fitting_batch(done: int, seconds: float, before: int) -> int:
    """Return the size of the next batch, after one of ``done`` farms that took ``seconds``."""
    if done < BATCH_MIN:
        return before
    return max(BATCH_MIN, min(BATCH_MAX, round(done * _PASS_S / max(seconds, 1e-6))))
