"""Objects as the API server sends them, with what a test cares about filled in."""

from typing import Any

from kube_nftlb import names
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.cache.slices import Slice, parse_slice

Json = dict[str, Any]


def service(
    name: str = "web", *, annotations: dict[str, str] | None = None, labels: Json | None = None, **spec: Any
) -> Service:
    return Service.model_validate(raw_service(name, annotations=annotations, labels=labels, **spec))


def raw_service(
    name: str = "web",
    *,
    annotations: dict[str, str] | None = None,
    labels: Json | None = None,
    created: str = "2026-01-01T00:00:00Z",
    version: int = 1,
    **spec: Any,
) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": created,
            "annotations": {names.ANNOTATION_PREFIX + key: value for key, value in (annotations or {}).items()},
            "labels": labels or {},
        },
        "spec": {
            "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            **spec,
        },
    }


def endpoint(ip: str, pod: str | None = None, **conditions: bool) -> Json:
    target = {"targetRef": {"kind": "Pod", "name": pod}} if pod else {}
    return {"addresses": [ip], "nodeName": "n1", "conditions": conditions, **target}


def raw_slice(
    *endpoints: Json,
    name: str = "web-1",
    service: str = "web",
    address_type: str = "IPv4",
    ports: list[Json] | None = None,
    labels: Json | None = None,
    version: int = 1,
) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "resourceVersion": str(version),
            "labels": {names.LABEL_SLICE_SERVICE: service, **(labels or {})},
        },
        "addressType": address_type,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}] if ports is None else ports,
        "endpoints": list(endpoints),
    }


def a_slice(*endpoints: Json, **kwargs: Any) -> Slice:
    parsed = parse_slice(raw_slice(*endpoints, **kwargs))
    assert parsed is not None
    return parsed


def raw_farm(
    name: str = "web--http",
    *,
    port: tuple[str, str, str] | None = ("web", "http", "ipv4"),
    owner: str = "uid-web",
    version: int = 10,
    generation: int = 1,
    created: str = "2026-01-01T00:00:00Z",
    status: Json | None = None,
    uid: str | None = None,
    **spec: Any,
) -> Json:
    labels = {}
    if port is not None:
        labels = {
            names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR,
            names.LABEL_SERVICE: port[0],
            names.LABEL_SERVICE_PORT: port[1],
            names.LABEL_FAMILY: port[2],
        }
    owners = [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": owner, "controller": True}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "generation": generation,
            "creationTimestamp": created,
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {"family": "ipv4", "protocol": "TCP", "addresses": [{"ip": "10.96.0.10", "ports": "80"}], **spec},
        **({"status": status} if status is not None else {}),
    }


def raw_node(
    name: str = "n1", *, watermark: str = "", ready: str = "True", failed: list[Json] | None = None, version: int = 1
) -> Json:
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "status": {
            "watermark": watermark,
            "failedFarms": failed or [],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
