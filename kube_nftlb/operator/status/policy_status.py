"""Write the status of NftlbPolicies: how many farms refer to each, and which nodes have programmed it."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from operator import attrgetter

import structlog

from kube_nftlb import errors, names
from kube_nftlb.api.base import Condition
from kube_nftlb.api.policy import PolicyKey, PolicyStatus
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import POLICIES
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.cache.policy_record import PolicyRecord
from kube_nftlb.operator.status.farm_status import NO_NODES, Verdict, waiting_for

_DELAY_S = 0.5
"""Changes within this time are written together: statuses are for people."""
_RETRY_S = 2.0
_REFUSED_RETRY_S = 60.0

_log = structlog.get_logger()


def decide(
    policy: PolicyRecord, farms: int, nodes: Iterable[NodeRecord], now: str, refused: str | None = None
) -> PolicyStatus:
    """Return the status of a policy that ``farms`` farms refer to; ``now`` is the time of conditions that change.

    ``refused`` says why no node programs it; None if nodes do.
    """
    everywhere = list(nodes)
    missing = [node.name for node in everywhere if not (node.ready and node.policy_watermark >= policy.since)]
    done = len(everywhere) - len(missing) if not refused else 0
    accepted = Verdict("True", "Valid", "it is within the limits of its namespace")
    if refused:
        accepted = Verdict("False", "TooManyPolicies", refused)
        verdict = Verdict("False", "NotAccepted", "see the condition Accepted")
    elif not everywhere:
        verdict = Verdict("False", "NoNodes", NO_NODES)
    elif missing:
        verdict = Verdict("False", "Pending", waiting_for(missing, len(everywhere)))
    else:
        verdict = Verdict("True", "AllNodes", f"all nodes ({done}) have it")
    return PolicyStatus(
        observed_generation=policy.generation,
        resource_version=str(policy.since),
        cidrs=policy.cidrs,
        farms=farms,
        programmed_nodes=done,
        total_nodes=len(everywhere),
        nodes=f"{done}/{len(everywhere)}",
        conditions=(
            _condition("Programmed", verdict, policy, now),
            _condition("Accepted", accepted, policy, now),
        ),
    )


def _condition(kind: str, verdict: Verdict, policy: PolicyRecord, now: str) -> Condition:
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=policy.generation,
        last_transition_time=Condition.since(policy.status.conditions, kind, verdict.status, now),
    )


class PolicyStatuses:
    """Keeps the statuses up to date. Namespaces take turns. ``clock`` returns seconds."""

    def __init__(
        self,
        kube: Kube,
        ingest: Ingest,
        events: Events,
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._ingest = ingest
        self._cache = ingest.cache
        self._events = events
        self._queue: WorkQueue[PolicyKey] = WorkQueue(clock, group=attrgetter("namespace"))

    def mark(self, keys: Iterable[PolicyKey]) -> None:
        """Queue policies whose status may be out of date."""
        for key in keys:
            self._queue.add(key, _DELAY_S)

    async def write(self) -> None:
        """Write statuses that changed until cancelled."""
        await self._queue.work("policy status", self._report)

    async def _report(self, key: PolicyKey) -> float | None:
        """Write the status of a policy if it changed; return the seconds until a retry, or None if all is done."""
        if (policy := self._cache.policies.get(key)) is None:
            return None
        refused = self._cache.budgets.refusal_of_policy(key)
        subject = Subject(POLICIES, *key, policy.uid)
        self._events.report(subject, [Lasting("TooManyPolicies", refused)] if refused else [])
        now = timestamps.seconds(datetime.now(UTC))
        status = decide(policy, self._cache.farm_index.references[key], self._cache.debounced_nodes, now, refused)
        unfinished = status.programmed_nodes < status.total_nodes
        self._cache.progress.set_policy(key, policy.since if unfinished and not refused else None)
        return await self._write(policy, status) if status != policy.status else None

    async def _write(self, policy: PolicyRecord, status: PolicyStatus) -> float | None:
        body = {
            "metadata": {"namespace": policy.key.namespace, "name": policy.key.name, "uid": policy.uid},
            "status": status.model_dump(mode="json", by_alias=True),
        }
        manager = names.FIELD_MANAGER_STATUS
        try:
            answer = await self._kube.apply(POLICIES, body, field_manager=manager, subresource="status")
        except errors.NotFoundError:
            return None
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            where = {"namespace": policy.key.namespace, "policy": policy.key.name}
            _log.warning("cannot write policy status, retrying", **where, error=str(error))
            refused = isinstance(error, errors.KubeError) and error.is_refusal
            return _REFUSED_RETRY_S if refused else _RETRY_S
        self._ingest.put(POLICIES, answer)
        return None
