"""Endpoints for Services without a cluster: the pods of their Deployments, at example addresses. No I/O."""

import ipaddress
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube_nftlb import errors, names
from kube_nftlb.kube.resources import JsonObject

_WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet")
_PODS_MAX: Final = 10
_NETWORKS: Final[Mapping[str, str]] = {"IPv4": "203.0.113.0/24", "IPv6": "2001:db8:1::/120"}
"""Reserved for documentation (RFC 5737, RFC 3849)."""


class Examples(NamedTuple):
    """EndpointSlices and Pods that no manifest has, the manifests from which they follow, and notes on them."""

    objects: list[JsonObject]
    used: list[JsonObject]
    notes: list[str]


class _Pods(NamedTuple):
    owner: str
    names: tuple[str, ...]
    template: JsonObject
    raw: JsonObject


def examples(raws: Sequence[JsonObject]) -> Examples:
    """Return what the pods of these manifests would be to their Services, where no EndpointSlice says it."""
    result = Examples([], [], [])
    text = json.dumps(raws, default=str)
    addresses = {family: _addresses(network, text) for family, network in _NETWORKS.items()}
    sliced = {_of_service(raw) for raw in raws if raw["kind"] == "EndpointSlice"}
    workloads: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for raw in raws:
        if raw["kind"] in (*_WORKLOADS, "Pod"):
            workloads[_namespace(raw)].append(raw)
    for service in (raw for raw in raws if raw["kind"] == "Service"):
        spec = service.get("spec")
        if not isinstance(spec, dict) or not spec.get("selector") or _key(service) in sliced:
            continue
        for pods in _selected(workloads[_namespace(service)], service, spec["selector"]):
            for family in families(spec):
                ips = [ip for _, ip in zip(pods.names, addresses[family], strict=False)]
                result.objects.append(_slice(service, pods, family, ips))
                result.notes.append(f"{pods.owner}: {len(ips)} example pods for Service {'/'.join(_key(service))}")
            if pods.raw["kind"] != "Pod":
                result.objects.extend(_pod(name, _namespace(service), pods.template) for name in pods.names)
            result.used.append(pods.raw)
    return result


def _selected(workloads: Iterable[JsonObject], service: JsonObject, selector: Any) -> Iterator[_Pods]:
    """Yield the pods of these workloads that the selector of a Service of their namespace selects.

    Raises UsageError for some that cannot be read.
    """
    namespace = _namespace(service)
    for raw in workloads:
        name = str(_dict(raw, "metadata").get("name", ""))
        spec = _dict(raw, "spec")
        template = raw if raw["kind"] == "Pod" else _dict(spec, "template")
        labels = _dict(_dict(template, "metadata"), "labels")
        if not isinstance(selector, dict) or not selector.items() <= labels.items():
            continue
        if not name:
            selecting = f"which Service {'/'.join(_key(service))} selects"
            raise errors.UsageError(f"{raw['kind']} without metadata.name, {selecting}: its pods have no names")
        _check(f"{raw['kind']} {namespace}/{name}", template, "" if template is raw else "spec.template.")
        replicas = spec.get("replicas", 1)
        number = min(replicas, _PODS_MAX) if isinstance(replicas, int) and raw["kind"] in _WORKLOADS else 1
        each = (name,) if raw["kind"] == "Pod" else tuple(f"{name}-{number}" for number in range(number))
        yield _Pods(f"{raw['kind']} {namespace}/{name}", each, template, raw)


def _check(what: str, template: JsonObject, where: str) -> None:
    """Raise UsageError for a pod, or its template, with containers or ports that are none."""
    containers = _dict(template, "spec").get("containers") or []
    for number, container in enumerate(containers if isinstance(containers, list) else [containers]):
        field = f"{where}spec.containers[{number}]"
        if not isinstance(container, dict):
            raise errors.UsageError(f"{what}: {field} is no container: {str(container)[:80]}")
        ports = container.get("ports") or []
        for port in ports if isinstance(ports, list) else [ports]:
            if not isinstance(port, dict):
                raise errors.UsageError(f"{what}: {field}.ports has {str(port)[:80]}, which is no port")


def _slice(service: JsonObject, pods: _Pods, family: str, ips: Sequence[str]) -> JsonObject:
    namespace, name = _key(service)
    ports = [port for each in _list(service["spec"], "ports") if (port := _port(each, pods.template)) is not None]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{pods.raw['metadata']['name']}-{family.lower()}",
            "namespace": namespace,
            "labels": {names.LABEL_SLICE_SERVICE: name},
        },
        "addressType": family,
        "ports": ports,
        "endpoints": [
            {
                "addresses": [ip],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod},
            }
            for pod, ip in zip(pods.names, ips, strict=False)
        ],
    }


def _port(port: Any, template: JsonObject) -> JsonObject | None:
    """Return a port of a Service as its endpoints have it; None if no container has a port of that name."""
    if not isinstance(port, dict):
        return None
    target = port.get("targetPort") or port.get("port")
    if isinstance(target, str):
        containers = _dict(template, "spec").get("containers") or ()
        ports = [each for container in containers for each in container.get("ports") or ()]
        target = next((each.get("containerPort") for each in ports if each.get("name") == target), None)
    if target is None:
        return None
    return {"name": port.get("name") or "", "port": target, "protocol": port.get("protocol") or "TCP"}


def _pod(name: str, namespace: str, template: JsonObject) -> JsonObject:
    metadata = {"name": name, "namespace": namespace, "annotations": _dict(_dict(template, "metadata"), "annotations")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}


def families(spec: JsonObject) -> list[str]:
    """Return the IP families that a Service asks for; what is none is left to whoever reads the Service later."""
    asked = (
        [each for each in _list(spec, "ipFamilies") if isinstance(each, str)] if spec.get("ipFamilies") else ["IPv4"]
    )
    both = spec.get("ipFamilyPolicy") in ("PreferDualStack", "RequireDualStack")
    return [*(each for each in asked if each in _NETWORKS), *(each for each in _NETWORKS if both and each not in asked)]


def _addresses(network: str, text: str) -> Iterator[str]:
    return (str(ip) for ip in ipaddress.ip_network(network).hosts() if f'"{ip}"' not in text)


def _key(raw: JsonObject) -> tuple[str, str]:
    return _namespace(raw), str(_dict(raw, "metadata").get("name", ""))


def _of_service(raw: JsonObject) -> tuple[str, str]:
    return _namespace(raw), str(_dict(_dict(raw, "metadata"), "labels").get(names.LABEL_SLICE_SERVICE, ""))


def _namespace(raw: JsonObject) -> str:
    return str(_dict(raw, "metadata").get("namespace") or "default")


def _list(raw: JsonObject, key: str) -> list[Any]:
    value = raw.get(key)
    return value if isinstance(value, list) else []


def _dict(raw: JsonObject, key: str) -> JsonObject:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}
