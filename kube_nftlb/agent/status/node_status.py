"""The status of the NftlbNode, from the progress of the loop. No I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from kube_nftlb.agent.model import Programmed
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.api.base import Condition
from kube_nftlb.api.node import FAILED_FARMS_MAX, FailedFarm, NodeEngines, NodeStatus, NodeVersions
from kube_nftlb.kube import timestamps
from kube_nftlb.reasons import NodeReason

_ERROR_MAX = 1024
_MESSAGE_MAX = 512

_GENERATION = 1
"""The generation of every NftlbNode, since it has no spec. ``kubectl wait`` ignores conditions of an earlier one."""

_Said = tuple[str, NodeReason, str]


def node_status(
    progress: Progress,
    programmed: Mapping[str, Programmed],
    versions: NodeVersions,
    before: NodeStatus | None,
    now: datetime,
) -> NodeStatus:
    """Return the status to write. Conditions keep the time of their last transition from ``before``."""
    reachable = not progress.engine_error
    ready: _Said
    nftlb: _Said
    in_sync: _Said
    if reachable:
        ready = ("True", "AgentReady", "the agent programs farms")
        nftlb = ("True", "Reachable", "nftlb answers")
    else:
        sentence = f"nftlb does not answer, see its logs on this node: {progress.engine_error}"
        ready = ("False", "NftlbUnreachable", sentence)
        nftlb = ("False", "Unreachable", sentence)
    if progress.pending:
        in_sync = ("False", "Pending", "changes are being programmed")
    elif progress.problems:
        in_sync = ("False", "FarmsFailed", f"{len(progress.problems)} farms failed, see status.failedFarms")
    else:
        in_sync = ("True", "InSync", "all farms are programmed")
    known = {condition.type: condition for condition in before.conditions} if before else {}
    stamp = timestamps.seconds(now)
    return NodeStatus(
        # A failed farm missing from failedFarms would count as programmed.
        watermark=str(progress.watermark if len(progress.problems) <= FAILED_FARMS_MAX else 0),
        slice_watermark=str(progress.slice_watermark if len(progress.problems) <= FAILED_FARMS_MAX else 0),
        policy_watermark=str(progress.policy_watermark),
        farms=len(programmed),
        backends=sum(farm.endpoints for farm in programmed.values()),
        engines=_engines(programmed.values()),
        failed=len(progress.problems),
        failed_farms=tuple(
            FailedFarm(
                namespace=key.namespace,
                name=key.name,
                generation=problem.generation,
                reason=problem.reason,
                message=problem.message[:_MESSAGE_MAX],
            )
            for key, problem in sorted(progress.problems.items())[:FAILED_FARMS_MAX]
        ),
        draining=progress.draining,
        drift_repaired=progress.drift_repaired,
        last_error=progress.last_error[:_ERROR_MAX],
        versions=versions,
        conditions=tuple(
            _condition(kind, status, reason, message, known.get(kind), stamp)
            for kind, (status, reason, message) in {"Ready": ready, "NftlbReachable": nftlb, "InSync": in_sync}.items()
        ),
    )


def _engines(farms: Iterable[Programmed]) -> NodeEngines:
    counts = Counter(farm.engine for farm in farms)
    return NodeEngines(nftlb=counts["nftlb"], nftables=counts["nftables"])


def _condition(
    kind: str, status: str, reason: NodeReason, message: str, before: Condition | None, now: str
) -> Condition:
    since = before.last_transition_time if before is not None and before.status == status else now
    return Condition.model_validate(
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:_ERROR_MAX],
            "observedGeneration": _GENERATION,
            "lastTransitionTime": since,
        }
    )
