"""Decide the answers to probes of the agent. No I/O.

/healthz is for load balancers that send to all nodes, and /livez for people who look at one; both mean the same as with
kube-proxy. /readyz says if the node serves farms at all. /alive is for the kubelet, which must not restart an agent
that has thousands of farms to program: it would have to start over.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.http_server import Answer
from kube_nftlb.kube import timestamps

TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""The taint that the cluster autoscaler sets on a Node before it removes it."""


STUCK_AFTER_S = 900
"""Maximum time in seconds of a pass: nftlb takes minutes to load thousands of farms."""


class Health(NamedTuple):
    """The state of the agent at one moment."""

    now: datetime
    overdue: bool
    """Changes have waited too long."""
    done_s_ago: float | None
    """Seconds since all changes were programmed; None if they never were."""
    node_eligible: bool
    """False if load balancers should stop sending to this node."""
    began_s_ago: float
    """Seconds since the start of the loop's last pass."""
    nftlb_error: str | None
    """Reason nftlb is unreachable; None if it is reachable."""

    @property
    def ready(self) -> bool:
        """True if the farms have been programmed once, and nftlb is reachable."""
        return self.done_s_ago is not None and not self.nftlb_error


def node_eligible(node: CoreNode | None, *, known: bool) -> bool:
    """Return False for a Node about to be removed; True while nothing is ``known``, such as during the start."""
    if not known:
        return True
    if node is None or node.metadata.deletion_timestamp is not None:
        return False
    return all(taint.key != TAINT_TO_BE_DELETED for taint in node.spec.taints)


def healthz(health: Health) -> Answer:
    """Answer 200 if changes are programmed in time and the Node stays."""
    healthy = not health.overdue and health.node_eligible
    return Answer(_status(healthy), {**_proxy(health), "nodeEligible": health.node_eligible})


def livez(health: Health) -> Answer:
    """Answer 200 if changes are programmed in time."""
    return Answer(_status(not health.overdue), _proxy(health))


def alive(health: Health) -> Answer:
    """Answer 200 if the loop makes progress, however much is left."""
    progressing = health.began_s_ago < STUCK_AFTER_S
    return Answer(_status(progressing), {"currentTime": timestamps.micros(health.now), "alive": progressing})


def readyz(health: Health) -> Answer:
    """Answer 200 once the farms have been programmed, while nftlb is reachable."""
    return Answer(
        _status(health.ready),
        {
            "currentTime": timestamps.micros(health.now),
            "synced": health.done_s_ago is not None,
            "nftlbReachable": not health.nftlb_error,
            "ready": health.ready,
        },
    )


def _proxy(health: Health) -> dict[str, object]:
    if not health.overdue:
        # As in kube-proxy: without overdue changes, the node is up to date as of now.
        updated = health.now
    elif health.done_s_ago is None:
        updated = None
    else:
        updated = health.now - timedelta(seconds=health.done_s_ago)
    return {
        "lastUpdated": timestamps.micros(updated) if updated is not None else None,
        "currentTime": timestamps.micros(health.now),
        "healthy": not health.overdue,
    }


def _status(good: bool) -> int:
    return 200 if good else 503
