"""Manifests of the Gateway API that a test applies to a cluster."""

from collections.abc import Mapping
from typing import Any

from kube_nftlb.operator.gateway.objects import CONTROLLER

CLASS = "kube-nftlb"
_VERSION = "gateway.networking.k8s.io/v1"

GATEWAY_CLASS: dict[str, Any] = {
    "apiVersion": _VERSION,
    "kind": "GatewayClass",
    "metadata": {"name": CLASS},
    "spec": {"controllerName": CONTROLLER},
}


def listener(name: str, port: int, protocol: str = "TCP", source: str = "Same") -> dict[str, Any]:
    """A listener that admits the routes of the namespaces that ``source`` names: Same or All."""
    return {"name": name, "port": port, "protocol": protocol, "allowedRoutes": {"namespaces": {"from": source}}}


def gateway(
    name: str,
    namespace: str,
    *listeners: dict[str, Any],
    addresses: tuple[str, ...] = (),
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Gateway with these listeners; without addresses it gets one of a pool."""
    static = {"addresses": [{"type": "IPAddress", "value": ip} for ip in addresses]} if addresses else {}
    return {
        "apiVersion": _VERSION,
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {"gatewayClassName": CLASS, "listeners": list(listeners), **static},
    }


def backend(service: str, weight: int = 1, namespace: str = "", port: int = 80) -> dict[str, Any]:
    """A backendRef."""
    elsewhere = {"namespace": namespace} if namespace else {}
    return {"name": service, "port": port, "weight": weight, **elsewhere}


def route(
    name: str, namespace: str, parent: str, /, *backends: dict[str, Any], kind: str = "TCPRoute", **reference: Any
) -> dict[str, Any]:
    """A route to these backends; ``reference`` has further fields of the parentRef, such as sectionName."""
    return {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": parent, **reference}], "rules": [{"backendRefs": list(backends)}]},
    }


def grant(name: str, namespace: str, of: str, service: str) -> dict[str, Any]:
    """A ReferenceGrant by which TCPRoutes of the namespace ``of`` may refer to a Service."""
    return {
        "apiVersion": _VERSION,
        "kind": "ReferenceGrant",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "TCPRoute", "namespace": of}],
            "to": [{"group": "", "kind": "Service", "name": service}],
        },
    }
