"""Set the agent's gauges when they are read."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from kube_nftlb import metrics
from kube_nftlb.agent.announcing.summary import AddressState
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.node import connection_tracking
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.node import NodeBGP

_FarmState = Literal["programmed", "pending", "failed", "refused"]


class Gauges:
    """Sets the agent's gauges."""

    def __init__(
        self,
        state: LoopState,
        reconciler: Reconciler,
        sysctl_dir: Path,
        addresses: Callable[[], Counter[str]] = Counter,
        bgp: Callable[[], NodeBGP] = NodeBGP,
    ) -> None:
        """``addresses`` counts those of pools by AddressState; ``bgp`` returns what the status tells of BGP."""
        self._state = state
        self._reconciler = reconciler
        self._sysctl_dir = sysctl_dir
        self._addresses = addresses
        self._bgp = bgp

    def refresh(self) -> None:
        """Set all gauges."""
        progress = self._state.progress
        lag, now = progress.lag, time.monotonic()
        metrics.set_states(metrics.NODE_FARMS, farm_states(self._state), get_args(_FarmState))
        sent = list(self._reconciler.sent.values())
        up = sum(farm.scheduled for farm in sent)
        backends = {"up": up, "off": sum(farm.endpoints for farm in sent) - up}
        metrics.set_states(metrics.NODE_BACKENDS, backends, backends)
        metrics.set_states(metrics.NODE_ADDRESSES, self._addresses(), get_args(AddressState))
        bgp = self._bgp()
        sessions = {"established": bgp.established, "down": bgp.number - bgp.established}
        metrics.set_states(metrics.BGP_SESSIONS, sessions, sessions)
        metrics.NODE_POLICIES.set(self._state.policies.count)
        metrics.ENDPOINT_SLICE_CHANGES_PENDING.set(self._state.slices.pending)
        metrics.FARMS_WITHOUT_LOCAL_BACKENDS.set(_without_local_backends(self._state))
        connections = connection_tracking.size(self._sysctl_dir)
        metrics.CONNTRACK_ENTRIES.set(connections.entries)
        metrics.CONNTRACK_LIMIT.set(connections.limit)
        metrics.NFTLB_UP.set(not progress.engine_error)
        metrics.LAG_SECONDS.set(now - lag.waiting_since if lag.waiting_since is not None else 0)
        metrics.LAST_SYNC.set(time.time() - (now - lag.done_at) if lag.done_at is not None else 0)


def farm_states(state: LoopState) -> Counter[str]:
    """Return how many farms are programmed, pending, failed and refused."""
    pending = state.queue.pending
    return Counter(_state(state, key, pending=key in pending) for key in state.index.all())


def _state(state: LoopState, key: FarmKey, *, pending: bool) -> _FarmState:
    if state.index.loses(key):
        return "refused"
    if (problem := state.progress.problems.get(key)) is not None and not problem.harmless:
        return "failed"
    return "pending" if pending else "programmed"


def _without_local_backends(state: LoopState) -> int:
    """Return how many farms drop connections because their traffic policy is Local and no backend is here."""
    index = state.index
    local = [key for key in index if (farm := index.get(key)) and farm.spec.traffic_policy == "Local"]
    farms = (farm for key in local if (farm := index.resolved(key)) is not None)
    return sum(1 for farm in farms if selection.without_local(farm.spec, index.node))
