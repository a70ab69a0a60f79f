"""Write the status of NftlbPolicies: how many farms refer to each, and which nodes have programmed it."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog

from kube_nftlb import errors, names
from kube_nftlb.api.base import Condition
from kube_nftlb.api.policy import PolicyStatus
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import POLICIES
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.cache.policy_record import PolicyRecord
from kube_nftlb.operator.status.farm_status import NO_NODES, Verdict, waiting_for

_INTERVAL_S = 0.5
"""Changes within this time are written together: statuses are for people."""

_log = structlog.get_logger()


def decide(policy: PolicyRecord, farms: int, nodes: Iterable[NodeRecord], now: str) -> PolicyStatus:
    """Return the status of a policy that ``farms`` farms refer to; ``now`` is the time of conditions that change."""
    everywhere = list(nodes)
    missing = [node.name for node in everywhere if not (node.ready and node.policy_watermark >= policy.since)]
    done = len(everywhere) - len(missing)
    if not everywhere:
        verdict = Verdict("False", "NoNodes", NO_NODES)
    elif missing:
        verdict = Verdict("False", "Pending", waiting_for(missing, len(everywhere)))
    else:
        verdict = Verdict("True", "AllNodes", f"all nodes ({done}) have it")
    before = next((c for c in policy.status.conditions if (c.type, c.status) == ("Programmed", verdict.status)), None)
    condition = Condition(
        type="Programmed",
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=policy.generation,
        last_transition_time=before.last_transition_time if before is not None else now,
    )
    return PolicyStatus(
        observed_generation=policy.generation,
        resource_version=str(policy.since),
        cidrs=policy.cidrs,
        farms=farms,
        programmed_nodes=done,
        total_nodes=len(everywhere),
        nodes=f"{done}/{len(everywhere)}",
        conditions=(condition,),
    )


class PolicyStatuses:
    """Keeps the statuses up to date. There are few policies, so every change checks all."""

    def __init__(
        self, kube: Kube, writer: CacheWriter, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._cache = writer.cache
        self._now = now
        self._decided_at = -1
        self._failed = False

    async def write(self, filled: asyncio.Event) -> None:
        """Write statuses that changed until cancelled, once the cache is filled."""
        await filled.wait()
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if self._decided_at == self._cache.revision and not self._failed:
                continue
            self._decided_at, self._failed = self._cache.revision, False
            for policy in list(self._cache.policies.values()):
                now = timestamps.seconds(self._now())
                status = decide(policy, self._cache.references[policy.key], self._cache.nodes.values(), now)
                if status != policy.status:
                    await self._write(policy, status)

    async def _write(self, policy: PolicyRecord, status: PolicyStatus) -> None:
        body = {
            "metadata": {"namespace": policy.key.namespace, "name": policy.key.name, "uid": policy.uid},
            "status": status.model_dump(mode="json", by_alias=True),
        }
        manager = names.FIELD_MANAGER_STATUS
        try:
            answer = await self._kube.apply(POLICIES, body, field_manager=manager, subresource="status")
        except errors.NotFoundError:
            return
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            self._failed = True
            where = {"namespace": policy.key.namespace, "policy": policy.key.name}
            _log.warning("cannot write policy status, retrying", **where, error=str(error))
            return
        self._writer.put(POLICIES, answer)
