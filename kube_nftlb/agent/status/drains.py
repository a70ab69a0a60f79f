"""Count the open connections to backends that drain, for the status of the NftlbNode."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.clock import rest_s
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.api.conflicts import FarmKey, farm_key
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.node import DRAINING_SHOWN_MAX, DrainingBackend, NodeDraining
from kube_nftlb.netfilter.conntrack.table import Address
from kube_nftlb.reasons import FailureReason

INTERVAL_S = 5.0
_REST = 20
"""The node counts for at most one part in so many of the time, however many connections it tracks."""

_STAYS: frozenset[FailureReason] = frozenset(
    {"Refused", "Unsupported", "NftlbDefect", "NftlbUnreachable", "KernelFeatureMissing"}
)
"""The reasons for which a farm stays as it was, though another state is asked for."""

_log = structlog.get_logger()


class Counts(Protocol):
    """Counts connections."""

    async def count(self, backends: set[Address]) -> Counter[Address]:
        """Return the number of open connections to each backend that has any. Raises KernelError."""


class Drains:
    """Counts while anything drains. ``farms`` returns those that may, with their backends.

    ``may_serve`` returns True for a farm whose clients an engine serves, as far as is known.
    """

    def __init__(
        self,
        farms: Callable[[], Iterable[Farm]],
        may_serve: Callable[[FarmKey], bool],
        counter: Counts,
        progress: Progress,
        on_change: Callable[[], None],
    ) -> None:
        self._farms = farms
        self._may_serve = may_serve
        self._counter = counter
        self._progress = progress
        self._on_change = on_change

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except errors.KernelError as error:
                _log.warning("cannot count connections to draining backends, retrying", error=str(error))
            except Exception:
                # Whatever it is: without the count the agent serves as well.
                _log.exception("cannot count connections to draining backends, retrying")
            await asyncio.sleep(rest_s(time.monotonic() - began, _REST, INTERVAL_S, math.inf))

    async def look(self) -> None:
        """Count once."""
        # What is programmed by now may get no new connections while they are counted.
        watermark = self._progress.watermark
        farms = list(self._farms())
        if any(self._stays(farm_key(farm)) for farm in farms if draining([farm])):
            # The kernel may still send new connections to what is to drain.
            watermark = min(watermark, int(self._progress.draining.watermark or 0))
        backends = draining(farms)
        counted = await self._counter.count(backends) if backends else Counter[Address]()
        before, self._progress.draining = self._progress.draining, summary(len(backends), counted, watermark)
        if self._progress.draining != before:
            self._on_change()

    def _stays(self, key: FarmKey) -> bool:
        problem = self._progress.problems.get(key)
        return problem is not None and problem.reason in _STAYS and self._may_serve(key)


def draining(farms: Iterable[Farm]) -> set[Address]:
    """Return the addresses of backends that drain."""
    return {
        (backend.ip, backend.port or 0)
        for farm in farms
        for backend in farm.spec.backends
        if "drain" in (farm.spec.state, backend.state)
    }


def summary(backends: int, counted: Counter[Address], watermark: int) -> NodeDraining:
    """Return what the status shows: the backends with the most connections, and the sums."""
    if not backends:
        return NodeDraining()
    busiest = sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))[:DRAINING_SHOWN_MAX]
    return NodeDraining(
        watermark=str(watermark),
        backends=backends,
        connections=counted.total(),
        busiest=tuple(DrainingBackend(ip=ip, port=port or None, connections=n) for (ip, port), n in busiest),
    )
