"""Where the connections of a route go: its references, as groups of a farm, and what is wrong with them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.farm.backends_from import REFERENCES_MAX, WEIGHT_MAX
from kube_nftlb.api.gateway.route import PROTOCOLS, BackendReference, Route
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.gateway.grants import Grants
from kube_nftlb.operator.gateway.listeners import Problem
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey

_NAMED_MAX: Final = 3


class Target(NamedTuple):
    """A port of a Service."""

    namespace: str
    service: str
    port: str
    """Its name; empty if it has none."""


class Backends(NamedTuple):
    """The backends of a route."""

    groups: tuple[tuple[Target | None, int], ...]
    """Targets with their weights, no two of them equal; None is refused."""
    problem: Problem | None
    """Why ResolvedRefs is not true."""


def services_of(route: Route) -> Iterator[ObjectKey]:
    """Yield the Services that a route refers to, whether or not they exist."""
    for reference in _references(route):
        if _is_service(reference):
            yield ObjectKey(reference.namespace or route.metadata.namespace, reference.name)


def _references(route: Route) -> Iterator[BackendReference]:
    return (reference for rule in route.spec.rules for reference in rule.backend_refs)


def _is_service(reference: BackendReference) -> bool:
    return (reference.group, reference.kind) == ("", "Service")


def resolve(
    key: RouteKey,
    route: Route,
    services: Mapping[tuple[str, str], Service],
    grants: Grants,
) -> Backends:
    """Return the backends of a route.

    The weights of references that cannot be followed add up to the share that is refused; if no reference has a weight,
    everything is. References to the same port add up, too.
    """
    weights: dict[Target | None, int] = {}
    problems: list[Problem] = []
    for reference in _references(route):
        found = _target(key, reference, services, grants)
        target = None if isinstance(found, Problem) else found
        if isinstance(found, Problem):
            problems.append(found)
        weights[target] = weights.get(target, 0) + reference.weight
    if not any(weights.values()):
        # The references stay, so that open connections do; a farm has room for so many, with the one that refuses.
        followed: list[Target | None] = [each for each in weights if each is not None]
        weights = {**dict.fromkeys(followed[: REFERENCES_MAX - 1], 0), None: 1}
    elif not weights.get(None, 1):
        del weights[None]
    return Backends(tuple(_scaled(weights)), _summary(problems))


def _scaled(weights: Mapping[Target | None, int]) -> Iterator[tuple[Target | None, int]]:
    """Yield weights that a farm can have, in the same proportions."""
    most = max(weights.values())
    if len(weights) == 1:
        yield from ((target, 1) for target in weights)
    elif most <= WEIGHT_MAX:
        yield from weights.items()
    else:
        yield from ((target, max(weight * WEIGHT_MAX // most, min(weight, 1))) for target, weight in weights.items())


def _target(
    key: RouteKey,
    reference: BackendReference,
    services: Mapping[tuple[str, str], Service],
    grants: Grants,
) -> Target | Problem:
    if not _is_service(reference):
        kind = f"{reference.group}/{reference.kind}" if reference.group else reference.kind
        return Problem("InvalidKind", f"{kind[:200]} {reference.name[:63]}: only Services can be backends")
    namespace = reference.namespace or key.namespace
    name = reference.name if namespace == key.namespace else f"{namespace}/{reference.name}"
    if namespace != key.namespace and not grants.permit(namespace, reference.name, key.kind, key.namespace):
        # Whether the Service exists is nothing that others may learn.
        message = (
            f"no ReferenceGrant in the namespace {namespace} permits the reference to the Service {reference.name}"
        )
        return Problem("RefNotPermitted", message)
    service = services.get((namespace, reference.name))
    if service is None:
        return Problem("BackendNotFound", f"there is no Service {name}")
    if (unusable := _unusable(service)) is not None:
        return Problem("UnsupportedValue", f"the Service {name} {unusable}")
    return _port(key, reference, service, name)


def _unusable(service: Service) -> str | None:
    """Return why a Service gives no endpoints, as the end of a sentence."""
    if service.spec.type == "ExternalName":
        return "is of type ExternalName, which has no endpoints"
    if service.spec.cluster_ip == "None":
        return "is headless, which gives no endpoints: refer to one with a cluster IP"
    if names.LABEL_PROXY_NAME in service.metadata.labels:
        return f"is served by another proxy (label {names.LABEL_PROXY_NAME})"
    return None


def _port(key: RouteKey, reference: BackendReference, service: Service, name: str) -> Target | Problem:
    protocol = PROTOCOLS[key.kind]
    if reference.port is None:
        return Problem("UnsupportedValue", f"the reference to the Service {name} has no port")
    same = [port for port in service.spec.ports if port.port == reference.port]
    for port in same:
        if port.protocol == protocol:
            return Target(service.metadata.namespace, service.metadata.name, port.name or "")
    if same:
        return Problem("UnsupportedProtocol", f"the port {reference.port} of the Service {name} is not of {protocol}")
    return Problem("BackendNotFound", f"the Service {name} has no port {reference.port}")


def _summary(problems: list[Problem]) -> Problem | None:
    """Return one problem for all: the first one's reason."""
    if not problems:
        return None
    messages = list(dict.fromkeys(each.message for each in problems))
    more = f"; and {len(messages) - _NAMED_MAX} more" if len(messages) > _NAMED_MAX else ""
    text = "; ".join(messages[:_NAMED_MAX])
    return Problem(problems[0].reason, f"{text}{more}. The share of such backends is refused")


def groups(backends: Backends, namespace: str, *, keep_port: bool) -> list[dict[str, Any]]:
    """Return ``backendsFrom`` of a farm in a namespace. With ``keep_port`` connections keep their destination port."""
    return [_group(target, weight, namespace, keep_port=keep_port) for target, weight in backends.groups]


def _group(target: Target | None, weight: int, namespace: str, *, keep_port: bool) -> dict[str, Any]:
    """Return a group with all of its fields: the operator owns them, and reverts edits."""
    if target is None:
        target, keep_port = Target("", "", ""), False
    return {
        "namespace": target.namespace if target.namespace != namespace else "",
        "service": target.service,
        "port": target.port,
        "weight": weight,
        "refuse": not target.service,
        "keepPort": keep_port,
        "overrides": [],
    }
