"""Policies in the cache, without their address ranges. No I/O."""

from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb.api.budgets import Rank, policy_rank, policy_size
from kube_nftlb.api.policy import PolicyKey, PolicyStatus

Json = dict[str, Any]


class PolicyRecord(NamedTuple):
    """A policy at the API server, without its address ranges."""

    key: PolicyKey
    uid: str
    generation: int
    since: int
    """The resourceVersion at which this generation was first seen."""
    cidrs: int
    rank: Rank
    resource_version: int
    status: PolicyStatus


def parse_policy(raw: Json, known: PolicyRecord | None) -> PolicyRecord:
    """Return a policy's record; ``known`` is that of an earlier state."""
    metadata = raw["metadata"]
    try:
        status = PolicyStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        # Of another version: it will be rewritten.
        status = PolicyStatus()
    generation, version = metadata["generation"], int(metadata["resourceVersion"])
    since = version
    if known is not None and (known.uid, known.generation) == (metadata["uid"], generation):
        since = known.since
    elif status.observed_generation == generation and status.resource_version.isdecimal():
        # It may have been restored from another cluster, as in farm_record.
        since = min(int(status.resource_version), version)
    cidrs = policy_size(raw)
    return PolicyRecord(PolicyKey.of(raw), metadata["uid"], generation, since, cidrs, policy_rank(raw), version, status)
