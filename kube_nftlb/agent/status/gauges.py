"""Set the agent's gauges when they are read."""

import time
from collections import Counter
from typing import get_args

from kube_nftlb import metrics
from kube_nftlb.agent.sync.reconciler import FarmState, Reconciler


class Gauges:
    """Sets the agent's gauges."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    def refresh(self) -> None:
        """Set all gauges."""
        progress, lag = self._reconciler.progress, self._reconciler.progress.lag
        now = time.monotonic()
        metrics.set_states(metrics.NODE_FARMS, self._reconciler.states(), get_args(FarmState))
        metrics.set_states(metrics.NODE_BACKENDS, self._backends(), ("up", "off"))
        metrics.NODE_POLICIES.set(self._reconciler.policy_count)
        metrics.FARMS_WITHOUT_LOCAL_BACKENDS.set(self._reconciler.without_local_backends())
        metrics.NFTLB_UP.set(not progress.engine_error)
        metrics.LAG_SECONDS.set(now - lag.waiting_since if lag.waiting_since is not None else 0)
        metrics.LAST_SYNC.set(time.time() - (now - lag.done_at) if lag.done_at is not None else 0)

    def _backends(self) -> Counter[str]:
        farms = list(self._reconciler.programmed.values())
        up = sum(farm.scheduled for farm in farms)
        return Counter({"up": up, "off": sum(farm.endpoints for farm in farms) - up})
