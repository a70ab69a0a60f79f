"""What the agent answers to probes. No I/O.

/healthz is for load balancers that send to all nodes, and /livez for who looks at one: they mean what they mean with
kube-proxy. /readyz tells whether the node is served at all. /alive is for the kubelet: it must not end an agent that
has thousands of farms to do, and would have to begin anew with all of them.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.http_server import Answer
from kube_nftlb.kube import timestamps

TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""What the cluster autoscaler puts on a Node that it is about to remove."""


STUCK_AFTER_S = 900
"""How long a pass may take: nftlb has a minute for each answer, and minutes pass while it loads thousands of farms."""


class Health(NamedTuple):
    """The state of the agent at one moment."""

    now: datetime
    overdue: bool
    """Changes have waited for too long."""
    done_s_ago: float | None
    """How many seconds ago changes were all programmed for the last time; None where they never were."""
    node_eligible: bool
    """Whether load balancers shall send to this node."""
    began_s_ago: float
    """How many seconds ago the loop began its last pass."""
    nftlb_error: str
    """Why nftlb cannot be reached; empty where it can."""

    @property
    def ready(self) -> bool:
        """Whether the farms have been programmed once, and can be programmed now."""
        return self.done_s_ago is not None and not self.nftlb_error


def node_eligible(node: CoreNode | None, *, known: bool) -> bool:
    """Whether a Node is to stay; so it is while nothing is ``known`` of it: a start must not look like damage."""
    if not known:
        return True
    if node is None or node.metadata.deletion_timestamp is not None:
        return False
    return all(taint.key != TAINT_TO_BE_DELETED for taint in node.spec.taints)


def healthz(health: Health) -> Answer:
    """200 where changes are programmed in time, and the Node is to stay."""
    healthy = not health.overdue and health.node_eligible
    return Answer(_status(healthy), {**_proxy(health), "nodeEligible": health.node_eligible})


def livez(health: Health) -> Answer:
    """200 where changes are programmed in time."""
    return Answer(_status(not health.overdue), _proxy(health))


def alive(health: Health) -> Answer:
    """200 where the loop gets on, however much there is to do."""
    gets_on = health.began_s_ago < STUCK_AFTER_S
    return Answer(_status(gets_on), {"currentTime": timestamps.micros(health.now), "alive": gets_on})


def readyz(health: Health) -> Answer:
    """200 once the farms have been programmed, for as long as nftlb can be reached."""
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
        # As kube-proxy tells it: what is in time is up to date as of now.
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
