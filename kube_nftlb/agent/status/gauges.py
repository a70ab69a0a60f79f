"""Set the agent's gauges when they are read."""

import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import get_args

from kube_nftlb import metrics
from kube_nftlb.agent.announcing.summary import AddressState
from kube_nftlb.agent.node import connection_tracking
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.api.node import NodeBGP


class Gauges:
    """Sets the agent's gauges."""

    def __init__(
        self,
        state: LoopState,
        reconciler: Reconciler,
        sysctl_dir: Path,
        addresses: Callable[[], Counter[tuple[str, str]]] = Counter,
        bgp: Callable[[], NodeBGP] = NodeBGP,
    ) -> None:
        """``addresses`` counts those of each pool by AddressState; ``bgp`` returns what the status tells of BGP."""
        self._state = state
        self._reconciler = reconciler
        self._sysctl_dir = sysctl_dir
        self._addresses = addresses
        self._bgp = bgp

    def refresh(self) -> None:
        """Set all gauges. No farm is decided on for that: anybody may ask, and tenants choose how large farms are."""
        progress = self._state.progress
        lag, now = progress.lag, time.monotonic()
        farms = farm_states(self._state)
        metrics.set_states(metrics.NODE_FARMS, farms, farms)
        sent = list(self._reconciler.sent.values())
        up = sum(farm.scheduled for farm in sent)
        backends = {"up": up, "off": sum(farm.endpoints for farm in sent) - up}
        metrics.set_states(metrics.NODE_BACKENDS, backends, backends)
        metrics.NODE_ADDRESSES.clear()
        addresses = self._addresses()
        for pool, state in product({pool for pool, _ in addresses}, get_args(AddressState)):
            metrics.NODE_ADDRESSES.labels(pool, state).set(addresses[pool, state])
        bgp = self._bgp()
        sessions = {"established": bgp.established, "down": bgp.number - bgp.established}
        metrics.set_states(metrics.BGP_SESSIONS, sessions, sessions)
        metrics.NODE_POLICIES.set(self._state.policies.count)
        metrics.ENDPOINT_SLICE_CHANGES_PENDING.set(self._state.slices.pending)
        metrics.FARMS_WITHOUT_LOCAL_BACKENDS.set(len(self._state.dropping))
        connections = connection_tracking.size(self._sysctl_dir)
        metrics.CONNTRACK_ENTRIES.set(connections.entries)
        metrics.CONNTRACK_LIMIT.set(connections.limit)
        metrics.NFTLB_UP.set(not progress.engine_error)
        metrics.LAG_SECONDS.set(now - lag.waiting_since if lag.waiting_since is not None else 0)
        metrics.LAST_SYNC.set(time.time() - (now - lag.done_at) if lag.done_at is not None else 0)


def farm_states(state: LoopState) -> dict[str, int]:
    """Return how many farms are programmed, pending, failed and refused."""
    farms, refused = state.index.all(), state.index.losers
    failed = farms & state.progress.failed.keys() - refused
    pending = farms & state.queue.pending - refused - failed
    programmed = len(farms) - len(refused) - len(failed) - len(pending)
    return {"programmed": programmed, "pending": len(pending), "failed": len(failed), "refused": len(refused)}
