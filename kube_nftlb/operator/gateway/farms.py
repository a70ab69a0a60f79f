"""The farms of routes: one for each listener that a route serves, and each family of the Gateway's addresses.

Cluster IPs have farms of their own: no traffic policy for connections from outside applies to them.
"""

from collections.abc import Iterable, Iterator, Set
from typing import Any, Final

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import engines
from kube_nftlb.api.farm.engines import Engine
from kube_nftlb.api.gateway.route import Route
from kube_nftlb.api.values import AddressType, TrafficPolicy
from kube_nftlb.kube.resources import TCP_ROUTES
from kube_nftlb.operator.farms.spec import Spec, complete, digest
from kube_nftlb.operator.gateway.backends import Backends, groups
from kube_nftlb.operator.gateway.listeners import ListenerKey, Section
from kube_nftlb.operator.gateway.objects import ObjectKey, Options, RouteKey
from kube_nftlb.operator.gateway.wanted import WantedFarm

_HASH_CHARACTERS: Final = 20
"""More than elsewhere: whoever writes routes chooses all of these names, and could search for two of one hash."""


def farms(
    gateway: ObjectKey,
    section: Section,
    key: RouteKey,
    route: Route,
    backends: Backends,
    addresses: Iterable[str],
    inside: Set[str],
    options: Options,
    traffic_policy: TrafficPolicy,
) -> Iterator[tuple[ObjectKey, WantedFarm]]:
    """Yield the farms of a route for a listener of a Gateway with these addresses, with their names.

    Those of the addresses that are ``inside`` are cluster IPs.
    """
    by_kind: dict[tuple[Family, AddressType], list[str]] = {}
    for ip in addresses:
        kind: AddressType = "ClusterIP" if ip in inside else "LoadBalancer"
        by_kind.setdefault(("ipv6" if ":" in ip else "ipv4", kind), []).append(ip)
    for (family, kind), ips in by_kind.items():
        fields: Spec = {
            "family": family,
            "protocol": section.protocol,
            "mode": options.mode,
            "trafficPolicy": traffic_policy if kind == "LoadBalancer" else "Cluster",
            "masquerade": "AsNeeded",
            "addresses": [{"type": kind, "ip": ip, "ports": section.ports} for ip in ips],
            "backendsFrom": groups(backends, key.namespace, keep_port=section.first != section.last),
        }
        fields["engine"] = _engine(options, fields)
        spec = complete(fields)
        name = farm_name(gateway, section.key, key, family, kind)
        metadata = _metadata(name, gateway, section.key, key, route, family)
        created = route.metadata.creation_timestamp
        yield ObjectKey(key.namespace, name), WantedFarm(metadata, spec, digest(spec), gateway, created)


def _engine(options: Options, fields: Spec) -> Engine:
    if options.engine == "auto":
        return "nftables" if engines.lacking(fields) is None else "nftlb"
    return options.engine


def farm_name(
    gateway: ObjectKey, listener: ListenerKey, route: RouteKey, family: Family, kind: AddressType = "LoadBalancer"
) -> str:
    """Return the name of a farm: those of route, Gateway and listener, and a hash of all that tells it from others."""
    listener_set = listener.listener_set or ObjectKey("", "")
    plain = f"{route.name}--{gateway.name}--{listener.name}".replace(".", "-")
    parts = (*route, *gateway, *listener_set, listener.name, family, *([kind] if kind == "ClusterIP" else []))
    identity = names.digest(*parts, characters=_HASH_CHARACTERS)
    return f"{plain[: names.NODE_FARM_NAME_MAX - len(identity) - 1].rstrip('-')}-{identity}"


def _metadata(
    name: str, gateway: ObjectKey, listener: ListenerKey, key: RouteKey, route: Route, family: Family
) -> dict[str, Any]:
    labels = {
        names.LABEL_GATEWAY: gateway.name,
        names.LABEL_GATEWAY_NAMESPACE: gateway.namespace,
        names.LABEL_LISTENER: listener.name,
        names.LABEL_ROUTE: key.name,
    }
    if listener.listener_set is not None:
        labels[names.LABEL_LISTENER_SET] = listener.listener_set.name
        labels[names.LABEL_LISTENER_SET_NAMESPACE] = listener.listener_set.namespace
    return {
        "name": name,
        "namespace": key.namespace,
        "labels": {
            names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR,
            names.LABEL_FAMILY: family,
            **{label: names.shorten(text, names.LABEL_VALUE_MAX) for label, text in labels.items()},
        },
        "ownerReferences": [
            {
                "apiVersion": TCP_ROUTES.api_version,
                "kind": key.kind,
                "name": key.name,
                "uid": route.metadata.uid,
                "controller": True,
            }
        ],
    }
