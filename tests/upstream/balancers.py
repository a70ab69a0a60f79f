"""The decisions of a cloud's load balancer controller about a Service. Computation only."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Any, NamedTuple

from kube_nftlb.kube.resources import JsonObject

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_RANGES: dict[str, IPv4Network | IPv6Network] = {
    "IPv4": IPv4Network("203.0.113.0/24"),
    "IPv6": IPv6Network("2001:db8:3::/120"),
}


class Wanted(NamedTuple):
    """The desired state of a Service: addresses in its status, or none, and the finalizer."""

    addresses: tuple[str, ...]
    finalizer: bool


def wanted(service: JsonObject, taken: Iterable[str]) -> Wanted:
    """Return what a Service should have; ``taken`` are the addresses of all Services."""
    spec = service["spec"]
    is_ours = spec["type"] == "LoadBalancer" and not spec.get("loadBalancerClass")
    if not is_ours or "deletionTimestamp" in service["metadata"]:
        return Wanted((), finalizer=False)
    own, taken = addresses(service), set(taken)
    chosen = []
    for family in spec["ipFamilies"]:
        hosts = [str(host) for host in _RANGES[family].hosts()]
        chosen.append(next((a for a in own if a in hosts), None) or next(a for a in hosts if a not in taken))
    return Wanted(tuple(chosen), finalizer=True)


def addresses(service: JsonObject) -> tuple[str, ...]:
    """Return the addresses in the status of a Service."""
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
    return tuple(entry["ip"] for entry in ingress if entry.get("ip"))


def finalizers(service: JsonObject, *, ours: bool) -> list[str]:
    """Return the finalizers of a Service, with ours or without."""
    others = [name for name in service["metadata"].get("finalizers") or [] if name != FINALIZER]
    return [*others, FINALIZER] if ours else others


def has_finalizer(service: JsonObject) -> bool:
    """Return True if a Service has our finalizer."""
    return FINALIZER in (service["metadata"].get("finalizers") or [])


def status(addresses: Iterable[str]) -> dict[str, Any]:
    """Return the patch of a status with these addresses."""
    return {"status": {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"} for ip in addresses] or None}}}


def health_port(service: JsonObject) -> int | None:
    """Return the port by which nodes say if they have endpoints, of a Service that asks for that."""
    spec = service["spec"]
    return spec.get("healthCheckNodePort") if spec.get("externalTrafficPolicy") == "Local" else None


def route(nodes: Iterable[str], healthy: Mapping[str, bool], now: tuple[str, ...], *, sticky: bool) -> tuple[str, ...]:
    """Return the nodes among which the connections to an address are spread: those that are healthy, or the first.

    ``sticky`` asks for one node for all connections, which is the present one while it is healthy.
    """
    usable = tuple(node for node in nodes if healthy.get(node)) or tuple(nodes)[:1]
    if not sticky:
        return usable
    return next(((node,) for node in now if node in usable), usable[:1])


def is_sticky(service: JsonObject) -> bool:
    """Return True if a Service asks for session affinity, which nodes do not share."""
    return bool(service["spec"].get("sessionAffinity") == "ClientIP")
