"""Write the status of NftlbPolicies: how many farms refer to each, and which nodes have programmed it."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import structlog
from pydantic import ValidationError

from kube_nftlb import errors, names
from kube_nftlb.api.base import Condition
from kube_nftlb.api.policy import PolicyKey, PolicyStatus
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import POLICIES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.status.farm_status import NO_NODES, Verdict, waiting_for

_INTERVAL_S = 0.5
"""Changes within this time are written together: statuses are for people."""

_log = structlog.get_logger()

Json = dict[str, Any]


class PolicyRecord(NamedTuple):
    """A policy at the API server, without its address ranges."""

    key: PolicyKey
    uid: str
    generation: int
    since: int
    """The resourceVersion at which this generation was first seen."""
    cidrs: int
    status: PolicyStatus


def parse_policy(raw: Json, known: PolicyRecord | None) -> PolicyRecord:
    """Return a policy's record; ``known`` is that of an earlier state."""
    metadata = raw["metadata"]
    try:
        status = PolicyStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        # Of another version: it will be rewritten.
        status = PolicyStatus()
    generation, since = metadata["generation"], int(metadata["resourceVersion"])
    if known is not None and (known.uid, known.generation) == (metadata["uid"], generation):
        since = known.since
    elif status.observed_generation == generation and status.resource_version.isdecimal():
        since = int(status.resource_version)
    cidrs = len((raw.get("spec") or {}).get("cidrs") or ())
    return PolicyRecord(_key(raw), metadata["uid"], generation, since, cidrs, status)


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

    def __init__(self, kube: Kube, cache: Cache, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._kube = kube
        self._cache = cache
        self._now = now
        self._policies: dict[PolicyKey, PolicyRecord] = {}
        self._changes = 0
        self._decided_at = (-1, -1)

    async def watch(self) -> None:
        """List and watch policies until cancelled."""
        await list_and_watch(self._kube, POLICIES, Handlers(self._replace, self._put, self._remove))

    async def write(self, filled: asyncio.Event) -> None:
        """Write statuses that changed until cancelled, once the cache is filled."""
        await filled.wait()
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if self._decided_at == (changes := (self._changes, self._cache.revision)):
                continue
            self._decided_at = changes
            for policy in list(self._policies.values()):
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
            await self._kube.apply(POLICIES, body, field_manager=manager, subresource="status")
        except errors.NotFoundError:
            return
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            self._changes += 1
            where = {"namespace": policy.key.namespace, "policy": policy.key.name}
            _log.warning("cannot write policy status, retrying", **where, error=str(error))
            return
        if self._policies.get(policy.key) == policy:
            self._policies[policy.key] = policy._replace(status=status)

    def _replace(self, listing: Listing) -> None:
        self._changes += 1
        self._policies = {(key := _key(raw)): parse_policy(raw, self._policies.get(key)) for raw in listing.items}

    def _put(self, raw: Json) -> None:
        self._changes += 1
        key = _key(raw)
        self._policies[key] = parse_policy(raw, self._policies.get(key))

    def _remove(self, raw: Json) -> None:
        self._changes += 1
        self._policies.pop(_key(raw), None)


def _key(raw: Json) -> PolicyKey:
    return PolicyKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
