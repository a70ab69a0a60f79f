"""Leave out objects that do not fit the budget of their namespace, before anything of them is parsed or kept."""

import asyncio
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

_log = structlog.get_logger()


class Admission(Generic[K]):
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
        self._wake = asyncio.Event()

    def admits(self, key: K, raw: Json) -> bool:
        """Add or replace an object. Return True if it fits."""
        self._turn(self._budget.put(key, self._rank(raw), self._size(raw)) - {key})
        self._missing.pop(key, None)
        return self.has(key)

    def has(self, key: K) -> bool:
        """Return True if an object fits."""
        return not self._budget.refuses(key)

    def remove(self, key: K) -> None:
        """Remove an object."""
        self._missing.pop(key, None)
        self._turn(self._budget.remove(key))

    def listed(self, present: Set[K], parsed: Collection[K]) -> None:
        """Remove all objects that a complete list lacks, and read those anew that turned out to fit in its course."""
        for key in [key for key in self._budget if key not in present]:
            self.remove(key)
        self._turn({key for key in present if self.has(key) and key not in parsed})

    def _turn(self, turned: Set[K]) -> None:
        for key in turned:
            if self.has(key):
                self._missing[key] = None
                self._wake.set()
            else:
                self._missing.pop(key, None)
                self._leave_out(key)

    async def read_missing(self, kube: Kube, put: Callable[[Json], None]) -> None:
        """Read objects that fit again, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._missing:
                key = next(iter(self._missing))
                try:
                    raw = await kube.get(self._resource, key.name, key.namespace)
                except errors.NotFoundError:
                    # The watch is about to report it.
                    self._missing.pop(key, None)
                except (errors.KubeError, errors.KubeUnreachableError) as error:
                    _log.warning("cannot read an object, retrying", resource=self._resource.plural, error=str(error))
                    await asyncio.sleep(_RETRY_S)
                else:
                    # It may have been removed, or reported, meanwhile.
                    if key in self._missing:
                        put(raw)
