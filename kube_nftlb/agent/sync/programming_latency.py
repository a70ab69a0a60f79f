"""Measure the time from a change in the cluster to this node's kernel (kube-proxy's network programming latency)."""

from datetime import UTC, datetime

from kube_nftlb import metrics
from kube_nftlb.api.conflicts import FarmKey


class ProgrammingLatency:
    """Measures each change once. Changes before ``begun`` waited for this agent's start, and do not count.

    The times are those of the trigger time annotation of EndpointSlices, as for kube-proxy.
    """

    def __init__(self, begun: datetime) -> None:
        self._begun = begun
        self._waiting: dict[FarmKey, datetime] = {}
        self._last: dict[FarmKey, datetime] = {}

    def changed(self, key: FarmKey, made_at: datetime | None) -> None:
        """Start measuring a change that was made then, if that is known. The oldest of several pending ones counts."""
        if made_at is None or made_at <= self._last.get(key, self._begun):
            return
        self._last[key] = made_at
        self._waiting.setdefault(key, made_at)

    def programmed(self, key: FarmKey) -> None:
        """Observe the latency of a farm that was verified."""
        if (made_at := self._waiting.pop(key, None)) is not None:
            # The clock that stamped the change may be ahead.
            metrics.PROGRAMMING_SECONDS.observe(max(0.0, (datetime.now(UTC) - made_at).total_seconds()))

    def dropped(self, key: FarmKey) -> None:
        """Stop measuring a farm that is not programmed for now: the wait would not be latency."""
        self._waiting.pop(key, None)

    def gone(self, key: FarmKey) -> None:
        """Forget a removed farm."""
        self._waiting.pop(key, None)
        self._last.pop(key, None)
