"""The status of the NftlbNode, from the progress of the loop. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.sync.progress import Problem, Progress
from kube_nftlb.api.base import Condition
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.node import (
    FAILED_FARMS_MAX,
    FAILED_NAMESPACES_MAX,
    FarmProblem,
    NodeAddresses,
    NodeBGP,
    NodeEngines,
    NodeStatus,
    NodeVersions,
)
from kube_nftlb.kube import timestamps
from kube_nftlb.prose import counted
from kube_nftlb.reasons import NodeReason

_ERROR_MAX = 1024
_MESSAGE_MAX = 512

_GENERATION = 1
"""The generation of every NftlbNode, since it has no spec. ``kubectl wait`` ignores conditions of an earlier one."""

_TRUTH = {"NoKubeProxy": "True", "KubeProxyUnknown": "Unknown"}
"""The status of the condition KubeProxyGone by its reason; False for all others."""

_Said = tuple[str, NodeReason, str]


def node_status(
    progress: Progress,
    sent: Mapping[str, SentFarm],
    versions: NodeVersions,
    before: NodeStatus | None,
    now: datetime,
    addresses: NodeAddresses = NodeAddresses(),  # noqa: B008 - immutable
    bgp: NodeBGP = NodeBGP(),  # noqa: B008 - immutable
) -> NodeStatus:
    """Return the status to write. Conditions keep the time of their last transition from ``before``."""
    listed = _in_turns(failed := progress.failed)[:FAILED_FARMS_MAX]
    unlisted = sorted({key.namespace for key in failed.keys() - set(listed)})
    warned = sorted(_in_turns(progress.warnings)[:FAILED_FARMS_MAX])
    said: dict[str, _Said] = {}
    if progress.engine_error:
        message = f"nftlb does not answer, see its logs on this node: {progress.engine_error}"
        said["Ready"] = ("False", "NftlbUnreachable", message)
        said["NftlbReachable"] = ("False", "Unreachable", message)
    else:
        said["Ready"] = ("True", "AgentReady", "the agent programs farms")
        said["NftlbReachable"] = ("True", "Reachable", "nftlb answers")
    if progress.pass_error is not None:
        message = f"the agent cannot program farms, and tries again: {progress.pass_error}"
        said["InSync"] = ("False", "SyncFailed", message)
    elif progress.other_lag.done_at is None:
        said["InSync"] = ("False", "Pending", "the agent has started, and has not programmed all farms yet")
    elif progress.pending:
        said["InSync"] = ("False", "Pending", "changes are being programmed")
    elif failed:
        said["InSync"] = ("False", "FarmsFailed", f"{counted(len(failed), 'farm')} failed, see status.failedFarms")
    else:
        said["InSync"] = ("True", "InSync", "all farms are programmed")
    if (proxy := progress.kube_proxy) is not None:
        said["KubeProxyGone"] = (_TRUTH.get(proxy.reason, "False"), proxy.reason, proxy.message)
    known = before.conditions if before is not None else ()
    stamp = timestamps.seconds(now)
    return NodeStatus(
        # A failed farm that neither list covers would count as programmed.
        watermark=str(progress.watermark if len(unlisted) <= FAILED_NAMESPACES_MAX else 0),
        slice_watermark=str(progress.slice_watermark if len(unlisted) <= FAILED_NAMESPACES_MAX else 0),
        policy_watermark=str(progress.policy_watermark),
        farms=len(sent),
        backends=sum(farm.endpoints for farm in sent.values()),
        engines=_engines(sent.values()),
        failed=len(failed),
        failed_farms=tuple(_problem(key, failed[key]) for key in sorted(listed)),
        failed_namespaces=tuple(unlisted[:FAILED_NAMESPACES_MAX]),
        warnings=tuple(_problem(key, progress.warnings[key]) for key in warned),
        draining=progress.draining,
        addresses=addresses,
        bgp=bgp,
        drift_repaired=progress.drift_repaired,
        last_error=(progress.last_error or "")[:_ERROR_MAX],
        versions=versions.model_copy(update={"nftlb": progress.nftlb_version}),
        conditions=tuple(
            _condition(kind, status, reason, message, known, stamp) for kind, (status, reason, message) in said.items()
        ),
    )


def _in_turns(keys: Iterable[FarmKey]) -> list[FarmKey]:
    """Return farms so that namespaces take turns: the failures of one do not hide those of another."""
    before: dict[str, int] = defaultdict(int)
    ranked = []
    for key in sorted(keys):
        ranked.append((before[key.namespace], key))
        before[key.namespace] += 1
    return [key for _, key in sorted(ranked)]


def _problem(key: FarmKey, problem: Problem) -> FarmProblem:
    return FarmProblem(
        namespace=key.namespace,
        name=key.name,
        generation=problem.generation,
        reason=problem.reason,
        message=problem.message[:_MESSAGE_MAX],
    )


def _engines(farms: Iterable[SentFarm]) -> NodeEngines:
    counts = Counter(farm.engine for farm in farms)
    return NodeEngines(nftlb=counts["nftlb"], nftables=counts["nftables"])


def _condition(
    kind: str, status: str, reason: NodeReason, message: str, before: Iterable[Condition], now: str
) -> Condition:
    return Condition.model_validate(
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:_ERROR_MAX],
            "observedGeneration": _GENERATION,
            "lastTransitionTime": Condition.since(before, kind, status, now),
        }
    )
