"""Services."""

from collections.abc import Mapping
from typing import Any

from kube_nftlb.api.kubernetes.service import Service
from tests.builders.metadata import CREATED, raw_metadata


def raw_service(
    name: str = "web",
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    created: str = CREATED,
    version: int = 1,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """``annotations`` have kube-nftlb's prefix left out; the fields of ``spec`` replace the defaults."""
    metadata = raw_metadata(
        name,
        namespace=namespace,
        version=version,
        created=created,
        labels=labels or {},
        annotations=annotations or {},
    )
    given = {
        "clusterIP": "10.96.0.10",
        "clusterIPs": ["10.96.0.10"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        **spec,
    }
    return {"metadata": metadata, "spec": given, **({"status": status} if status is not None else {})}


def service(name: str = "web", **fields: Any) -> Service:
    """``raw_service``, validated. Raises ValidationError."""
    return Service.model_validate(raw_service(name, **fields))
