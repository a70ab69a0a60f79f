"""Set the agent's gauges when they are read."""

import time
from collections import Counter
from typing import get_args

from kube_nftlb import metrics
from kube_nftlb.agent.sync.farm_index import FarmState
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.nftlb import objects


class Gauges:
    """Counts only the farms that changed since the last time: there may be a quarter of a million backends."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._counted: dict[str, tuple[objects.Farm, Counter[str]]] = {}

    def refresh(self) -> None:
        """Set all gauges."""
        progress, backlog = self._reconciler.progress, self._reconciler.progress.backlog
        now = time.monotonic()
        metrics.set_states(metrics.NODE_FARMS, self._reconciler.states(), get_args(FarmState))
        metrics.set_states(metrics.NODE_BACKENDS, self._backends(), ("up", "off"))
        metrics.NODE_POLICIES.set(self._reconciler.policy_count)
        metrics.FARMS_WITHOUT_LOCAL_BACKENDS.set(self._reconciler.farms.without_local_backends())
        metrics.NFTLB_UP.set(not progress.nftlb_error)
        metrics.BACKLOG_SECONDS.set(now - backlog.waiting_since if backlog.waiting_since is not None else 0)
        metrics.LAST_SYNC.set(time.time() - (now - backlog.done_at) if backlog.done_at is not None else 0)

    def _backends(self) -> Counter[str]:
        known, self._counted = self._counted, {}
        total: Counter[str] = Counter()
        for name, farm in self._reconciler.served.items():
            counted = known.get(name)
            if counted is None or counted[0] is not farm:
                counted = (farm, Counter(backend.state for backend in farm.backends.values()))
            self._counted[name] = counted
            total.update(counted[1])
        return total
