"""EndpointSlices and their endpoints."""

from collections.abc import Mapping
from typing import Any

from kube_nftlb import names
from kube_nftlb.endpointslices.slices import Slice, parse_slice


def endpoint(ip: str, pod: str | None = None, *, node: str = "n1", **conditions: bool) -> dict[str, Any]:
    """An entry of ``endpoints``."""
    target = {"targetRef": {"kind": "Pod", "name": pod}} if pod else {}
    return {"addresses": [ip], "nodeName": node, "conditions": conditions, **target}


def raw_slice(
    *endpoints: dict[str, Any],
    name: str = "web-1",
    service: str = "web",
    namespace: str = "default",
    address_type: str = "IPv4",
    ports: list[dict[str, Any]] | None = None,
    labels: Mapping[str, str] | None = None,
    version: int = 1,
) -> dict[str, Any]:
    """A slice of ``service``, with port 8080 unless ``ports`` says otherwise."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(version),
            "labels": {names.LABEL_SLICE_SERVICE: service, **(labels or {})},
        },
        "addressType": address_type,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}] if ports is None else ports,
        "endpoints": list(endpoints),
    }


def endpoint_slice(*endpoints: dict[str, Any], **fields: Any) -> Slice:
    """``raw_slice``, parsed."""
    parsed = parse_slice(raw_slice(*endpoints, **fields))
    assert parsed is not None
    return parsed
