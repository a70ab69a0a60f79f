"""Pods."""

from collections.abc import Mapping
from typing import Any

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
