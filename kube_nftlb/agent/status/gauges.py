"""Set the agent's gauges when they are read."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from kube_nftlb import metrics
from kube_nftlb.agent.announcing.summary import AddressState
from kube_nftlb.agent.node import connection_tracking
from kube_nftlb.agent.sync.counts import BackendState, FarmState
from kube_nftlb.agent.sync.reconciler import Reconciler


class Gauges:
    """Sets the agent's gauges."""

    def __init__(
        self, reconciler: Reconciler, sysctl_dir: Path, addresses: Callable[[], Counter[str]] = Counter
    ) -> None:
        """``addresses`` counts those of pools by AddressState."""
        self._reconciler = reconciler
        self._sysctl_dir = sysctl_dir
        self._addresses = addresses

    def refresh(self) -> None:
        """Set all gauges."""
        progress, counts = self._reconciler.progress, self._reconciler.counts
        lag = progress.lag
        now = time.monotonic()
        metrics.set_states(metrics.NODE_FARMS, counts.farms(), get_args(FarmState))
        metrics.set_states(metrics.NODE_BACKENDS, counts.backends(), get_args(BackendState))
        metrics.set_states(metrics.NODE_ADDRESSES, self._addresses(), get_args(AddressState))
        metrics.NODE_POLICIES.set(counts.policies)
        metrics.ENDPOINT_SLICE_CHANGES_PENDING.set(counts.endpoint_changes)
        metrics.FARMS_WITHOUT_LOCAL_BACKENDS.set(counts.without_local_backends())
        connections = connection_tracking.size(self._sysctl_dir)
        metrics.CONNTRACK_ENTRIES.set(connections.entries)
        metrics.CONNTRACK_LIMIT.set(connections.limit)
        metrics.NFTLB_UP.set(not progress.engine_error)
        metrics.LAG_SECONDS.set(now - lag.waiting_since if lag.waiting_since is not None else 0)
        metrics.LAST_SYNC.set(time.time() - (now - lag.done_at) if lag.done_at is not None else 0)
