"""Leave out objects that do not fit the budget of their namespace, before anything of them is parsed or kept."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Set
from typing import Any, Generic, TypeVar

import structlog

from kube_nftlb import errors
from kube_nftlb.api.budgets import Budget, Rank
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import Resource

Json = dict[str, Any]
K = TypeVar("K", FarmKey, PolicyKey)

_RETRY_S = 5.0
_FIRST_S, _INTERVAL_MAX_S = 1.0, 60.0
"""The intervals between reads of one namespace: the first, and the longest."""
_CALM_S = 600.0
"""Time in seconds without a read after which a namespace's earlier ones are forgotten."""
_ONE_BY_ONE_MAX = 20

_log = structlog.get_logger()


class NamespaceBudgetFilter(Generic[K]):
    """The objects of one kind that a watch has reported.

    ``leave_out`` gets those that do not fit any more. Those that do again are read anew, since nothing is kept of them.
    """

    def __init__(
        self,
        budget: Budget[K],
        resource: Resource,
        rank: Callable[[Json], Rank],
        size: Callable[[Json], int],
        leave_out: Callable[[K], None],
    ) -> None:
        self._budget: Budget[K] = budget
        self._resource = resource
        self._rank = rank
        self._size = size
        self._leave_out: Callable[[K], None] = leave_out
        self._missing: dict[K, None] = {}
        self._pace = _Pace()
        self._wake = asyncio.Event()

    def admits(self, key: K, raw: Json) -> bool:
        """Add or replace an object. Return True if it fits."""
        self._update_missing(self._budget.put(key, self._rank(raw), self._size(raw)) - {key})
        self._missing.pop(key, None)
        return self.has(key)

    def has(self, key: K) -> bool:
        """Return True if an object fits."""
        return not self._budget.refuses(key)

    def remove(self, key: K) -> None:
        """Remove an object."""
        self._missing.pop(key, None)
        self._update_missing(self._budget.remove(key))

    def listed(self, present: Set[K], parsed: Collection[K]) -> None:
        """Remove all objects that a complete list lacks, and read those anew that turned out to fit in its course."""
        for key in [key for key in self._budget if key not in present]:
            self.remove(key)
        self._update_missing({key for key in present if self.has(key) and key not in parsed})

    def _update_missing(self, affected: Set[K]) -> None:
        for key in affected:
            if self.has(key):
                self._missing[key] = None
                self._wake.set()
            else:
                self._missing.pop(key, None)
                self._leave_out(key)

    async def read_missing(self, kube: Kube, put: Callable[[Json], None]) -> None:
        """Read objects that fit again, until cancelled; those of a namespace less and less often if that goes on."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._missing:
                now = asyncio.get_running_loop().time()
                due = {key.namespace: self._pace.due(key.namespace, now) for key in self._missing}
                namespace = min(due, key=lambda each: due[each])
                if due[namespace] > now:
                    # Meanwhile an object of another namespace may fit, which is due at once.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), due[namespace] - now)
                    self._wake.clear()
                    continue
                self._pace.read(namespace, due[namespace])
                try:
                    await self._read(kube, [key for key in self._missing if key.namespace == namespace], put)
                except (errors.KubeError, errors.KubeUnreachableError) as error:
                    _log.warning("cannot read objects, retrying", resource=self._resource.plural, error=str(error))
                    await asyncio.sleep(_RETRY_S)

    async def _read(self, kube: Kube, keys: list[K], put: Callable[[Json], None]) -> None:
        """Read objects of one namespace: a few one by one, many as the list of all."""
        if len(keys) > _ONE_BY_ONE_MAX:
            listing = await kube.list(self._resource, keys[0].namespace)
            found = {raw["metadata"]["name"]: raw for raw in listing.items}
        else:
            found = {}
            for key in keys:
                with contextlib.suppress(errors.NotFoundError):
                    found[key.name] = await kube.get(self._resource, key.name, key.namespace)
        for key in keys:
            # It may have been removed, or reported, meanwhile.
            if key not in self._missing:
                continue
            if key.name in found:
                put(found[key.name])
            # What is not there the watch is about to report.
            self._missing.pop(key, None)


class _Pace:
    """Decides when a namespace may be read: one whose objects turn again and again must not load the API server."""

    def __init__(self) -> None:
        self._intervals: dict[str, float] = {}
        self._read_at: dict[str, float] = {}

    def due(self, namespace: str, now: float) -> float:
        """Return when the next read of a namespace is due."""
        last = self._read_at.get(namespace)
        if last is None or now - last > _CALM_S:
            return now
        return max(now, last + self._intervals[namespace])

    def read(self, namespace: str, now: float) -> None:
        """Note a read; the next one has to wait for twice as long as this one had to."""
        calm = now - self._read_at.get(namespace, float("-inf")) > _CALM_S
        self._intervals[namespace] = _FIRST_S if calm else min(2 * self._intervals[namespace], _INTERVAL_MAX_S)
        self._read_at[namespace] = now
