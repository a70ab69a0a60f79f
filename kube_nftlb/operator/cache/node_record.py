"""Nodes in the cache: what their agents report, and whether they run. No I/O."""

from typing import Any, NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.operator.cache.sanitize import sanitized_status

Json = dict[str, Any]


class NodeRecord(NamedTuple):
    """The report of a node's agent."""

    name: str
    resource_version: int
    watermark: int
    slice_watermark: int
    policy_watermark: int
    ready: bool
    failed: dict[tuple[FarmKey, int], str]
    """Reason and message of the farms that failed on the node, by key and generation."""
    failed_namespaces: frozenset[str]
    """Namespaces in which more farms failed than ``failed`` has."""
    warnings: dict[tuple[FarmKey, int], str]
    """The same of the farms that are programmed, and part of which has no effect."""


class CoreNode(NamedTuple):
    """The fields of a Node that the operator keeps."""

    resource_version: int
    ready: bool = True
    """False if its kubelet says so, or is silent."""


def parse_core_node(raw: Json) -> CoreNode:
    """Return a Node's record. Without the condition Ready it counts as ready."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = all(each.get("status") == "True" for each in conditions if each.get("type") == "Ready")
    return CoreNode(int(raw["metadata"]["resourceVersion"]), ready)


def parse_node(raw: Json) -> NodeRecord:
    """Return an NftlbNode's record. What an agent of another version does not write counts as not done."""
    raw = {**raw, "status": sanitized_status(raw.get("status"))}
    metadata, status = raw["metadata"], raw.get("status") or {}
    return NodeRecord(
        name=metadata["name"],
        resource_version=int(metadata["resourceVersion"]),
        watermark=_number(status.get("watermark")),
        slice_watermark=_number(status.get("sliceWatermark")),
        policy_watermark=_number(status.get("policyWatermark")),
        ready=all(c.get("status") != "False" for c in status.get("conditions") or () if c.get("type") == "Ready"),
        failed=_problems(status.get("failedFarms")),
        failed_namespaces=frozenset(status.get("failedNamespaces") or ()),
        warnings=_problems(status.get("warnings")),
    )


def _problems(entries: list[Json] | None) -> dict[tuple[FarmKey, int], str]:
    return {
        (FarmKey(entry["namespace"], entry["name"]), entry.get("generation", 0)): ": ".join(
            text for text in (entry.get("reason"), entry.get("message")) if text
        )
        for entry in entries or ()
    }


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
