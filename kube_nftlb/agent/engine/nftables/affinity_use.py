"""Watch how full the maps of remembered clients are: who is new does not keep its endpoint once one is full."""

from collections.abc import Iterable

import structlog

from kube_nftlb import metrics
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TableFamily
from kube_nftlb.agent.engine.nftables.reading import ElementReader

_log = structlog.get_logger()

EVERY_S = 30
_MUCH = 0.8
"""The share above which the log names a namespace; the chart's alert has the same."""


class AffinityUse:
    """Counts remembered clients, for the metrics and the log."""

    def __init__(self, reader: ElementReader) -> None:
        self._reader = reader
        self._crowded: set[tuple[TableFamily, str]] = set()
        self._due = float("-inf")
        metrics.AFFINITY_LIMIT.set(layout.AFFINITY_MAX)

    async def check(self, maps: Iterable[tuple[TableFamily, str]], now: float) -> None:
        """Count the clients of these families and namespaces, if that is due at ``now``, in seconds of a clock.

        Raises KernelError.
        """
        if now < self._due:
            return
        self._due = now + EVERY_S
        counts = {each: await self._reader.count(layout.affinity_map(*each)) for each in maps}
        metrics.AFFINITY_CLIENTS.set(max(counts.values(), default=0))
        crowded = {each for each, count in counts.items() if count > _MUCH * layout.AFFINITY_MAX}
        for family, namespace in sorted(crowded - self._crowded):
            clients = counts[family, namespace]
            _log.warning("the memory of session affinity is nearly full", namespace=namespace, clients=clients)
        self._crowded = crowded
