"""Nodes, and the NftlbNodes that agents report on."""

from collections.abc import Mapping
from typing import Any


def raw_node(
    name: str = "n1",
    *,
    labels: Mapping[str, str] | None = None,
    addresses: Mapping[str, str] | None = None,
    ready: str = "",
    version: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    """A Node; ``addresses`` has them by type (``InternalIP``), and ``ready`` is the status of the condition Ready."""
    return {
        "metadata": {"name": name, "resourceVersion": str(version), "labels": dict(labels or {})},
        "spec": spec,
        "status": {
            "addresses": [{"type": kind, "address": ip} for kind, ip in (addresses or {}).items()],
            "conditions": [{"type": "Ready", "status": ready}] if ready else [],
        },
    }


def raw_nftlb_node(
    name: str = "n1",
    *,
    watermark: str = "",
    slice_watermark: str = "",
    ready: str = "True",
    failed: list[dict[str, Any]] | None = None,
    failed_namespaces: list[str] | None = None,
    warnings: list[dict[str, Any]] | None = None,
    reported_at: str = "",
    reason: str = "AgentReady",
    version: int = 1,
) -> dict[str, Any]:
    """An NftlbNode with the condition Ready and its ``failedFarms``."""
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "status": {
            "watermark": watermark,
            "sliceWatermark": slice_watermark,
            "failedFarms": failed or [],
            "failedNamespaces": failed_namespaces or [],
            "warnings": warnings or [],
            "reportedAt": reported_at,
            "conditions": [{"type": "Ready", "status": ready, "reason": reason}],
        },
    }
