"""Pods."""

from collections.abc import Mapping
from typing import Any

from kube_nftlb import names
from tests.builders.metadata import raw_metadata


def raw_pod(
    name: str = "a",
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    version: int = 5,
    **more: Any,
) -> dict[str, Any]:
    """``annotations`` have kube-nftlb's prefix left out; ``more`` are further parts, such as ``spec``."""
    metadata = raw_metadata(
        name,
        namespace=namespace,
        version=version,
        annotations=annotations or {},
        managedFields=[{"manager": "x"}],
    )
    metadata["annotations"]["other/key"] = "x"
    return {"metadata": metadata, **more}


def raw_gated_pod(
    name: str = "a",
    *,
    ip: str = "10.244.0.1",
    gate: bool = False,
    namespace: str = "default",
    containers: str = "True",
    other_gate: str | None = None,
    version: int = 5,
    **metadata: Any,
) -> dict[str, Any]:
    """A running Pod of the app ``web`` with the readiness gate, and another one if its status is given."""
    raw = raw_pod(name, namespace=namespace, version=version)
    raw["metadata"] |= {"labels": {"app": "web", names.LABEL_READINESS_GATE: "enabled"}, **metadata}
    truths = {"ContainersReady": containers, names.READINESS_GATE: str(gate)}
    gates = [names.READINESS_GATE]
    if other_gate is not None:
        gates.append("example.com/other")
        truths["example.com/other"] = other_gate
    raw["spec"] = {"readinessGates": [{"conditionType": each} for each in gates]}
    raw["status"] = {
        "phase": "Running",
        "podIPs": [{"ip": ip}],
        "conditions": [{"type": kind, "status": status} for kind, status in truths.items()],
    }
    return raw
