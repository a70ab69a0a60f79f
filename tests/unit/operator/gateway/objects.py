"""Objects of Gateway API, as the API server has them, and what is decided about them."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route, RouteKindName
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.gateway.changes import Changes, everything
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, GatewayObjects, ObjectKey, Options, RouteKey
from kube_nftlb.operator.gateway.plan import Planner
from kube_nftlb.operator.gateway.wanted import GatewayPlan, ListenerStatus, WantedCondition

IP = "192.0.2.1"
GATEWAY = ObjectKey("infra", "public")


def metadata(name: str, namespace: str = "", *, age: int = 0, **fields: Any) -> dict[str, Any]:
    """``age`` is in seconds: of two objects, the one with the higher age is older."""
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "generation": 7,
        "creationTimestamp": f"2026-01-01T00:{59 - age // 60:02}:{59 - age % 60:02}Z",
        **fields,
    }


def gateway_class(name: str = "nftlb", controller: str = "kube-nftlb.io/gateway", **spec: Any) -> GatewayClass:
    raw = {"metadata": metadata(name), "spec": {"controllerName": controller, **spec}}
    return GatewayClass.model_validate(raw)


def listener(name: str = "web", port: int = 80, protocol: str = "TCP", **fields: Any) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": protocol, **fields}


def admitting(source: str, *kinds: str, **selector: Any) -> dict[str, Any]:
    """Return allowedRoutes."""
    namespaces = {"from": source, **({"selector": selector} if selector else {})}
    return {"namespaces": namespaces, "kinds": [{"kind": kind} for kind in kinds]}


def gateway(
    *listeners: dict[str, Any],
    key: ObjectKey = GATEWAY,
    annotations: Mapping[str, str] | None = None,
    age: int = 0,
    **spec: Any,
) -> Gateway:
    raw = {
        "metadata": metadata(key.name, key.namespace, age=age, annotations=dict(annotations or {})),
        "spec": {"gatewayClassName": "nftlb", "listeners": list(listeners or [listener()]), **spec},
    }
    return Gateway.model_validate(raw)


def listener_set(
    name: str, *listeners: dict[str, Any], namespace: str = "infra", age: int = 0, parent: ObjectKey = GATEWAY
) -> ListenerSet:
    raw = {
        "metadata": metadata(name, namespace, age=age),
        "spec": {"parentRef": parent._asdict(), "listeners": list(listeners)},
    }
    return ListenerSet.model_validate(raw)


def backend(name: str = "web", port: int | None = 80, **fields: Any) -> dict[str, Any]:
    return {"name": name, "port": port, **fields}


def parent(**fields: Any) -> dict[str, Any]:
    return {**GATEWAY._asdict(), **fields}


def route(
    *backends: dict[str, Any],
    parents: Iterable[dict[str, Any]] | None = None,
    namespace: str = "infra",
    name: str = "web",
    age: int = 0,
) -> Route:
    raw = {
        "metadata": metadata(name, namespace, age=age),
        "spec": {
            "parentRefs": list(parents) if parents is not None else [parent()],
            "rules": [{"backendRefs": list(backends or [backend()])}],
        },
    }
    return Route.model_validate(raw)


def service(name: str = "web", namespace: str = "infra", *ports: tuple[str, int, str], **spec: Any) -> Service:
    """``ports`` are name, number and protocol."""
    given = ports or (("http", 80, "TCP"), ("dns", 53, "UDP"))
    raw = {
        "metadata": metadata(name, namespace),
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in given],
            **spec,
        },
    }
    return Service.model_validate(raw)


def grant(namespace: str, source: str, kind: str = "TCPRoute", name: str | None = None) -> ReferenceGrant:
    raw = {
        "metadata": metadata("grant", namespace),
        "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": kind, "namespace": source}],
            "to": [{"group": "", "kind": "Service", "name": name}],
        },
    }
    return ReferenceGrant.model_validate(raw)


def permits(given: ReferenceGrant, kind: str, namespace: str, service: str) -> bool:
    """Return True if a grant permits routes of a kind in a namespace to refer to a Service in the grant's."""
    trusted = any((each.kind, each.namespace) == (kind, namespace) for each in given.spec.sources)
    return trusted and any(each.name in (None, service) for each in given.spec.targets)


def key_of(found: Any) -> ObjectKey:
    return ObjectKey(found.metadata.namespace, found.metadata.name)


def world(
    gateways: Iterable[Gateway] = (),
    routes: Iterable[Route] = (),
    services: Iterable[Service] | None = None,
    *,
    kind: RouteKindName = "TCPRoute",
    sets: Iterable[ListenerSet] = (),
    grants: Iterable[ReferenceGrant] = (),
    classes: Iterable[GatewayClass] | None = None,
    addresses: Mapping[ObjectKey, AddressState] | None = None,
    farms: Mapping[ObjectKey, FarmState] | None = None,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
    options: Options | None = None,
    versions: Iterable[str] = ("v1.6.3",),
) -> GatewayObjects:
    """Return objects; without further arguments each Gateway has an address, and there is a Service web."""
    gateways = list(gateways)
    given = {key_of(each): AddressState((IP,)) for each in gateways}
    return GatewayObjects(
        classes={each.metadata.name: each for each in (classes if classes is not None else [gateway_class()])},
        gateways={key_of(each): each for each in gateways},
        listener_sets={key_of(each): each for each in sets},
        routes={RouteKey(kind, *key_of(each)): each for each in routes},
        grants={key_of(each): each for each in grants},
        namespaces=dict(namespaces or {}),
        services={key_of(each): each for each in (services if services is not None else [service()])},
        addresses=addresses if addresses is not None else given,
        farms=dict(farms or {}),
        versions=frozenset(versions),
        options=options or Options(),
    )


def update(planner: Planner, changes: Changes) -> GatewayPlan:
    """Decide about all that changes affect, and what did before."""
    result = GatewayPlan()
    deque(planner.follow(changes, result), maxlen=0)
    while (key := planner.next()) is not None:
        deque(planner.decide(key, result), maxlen=0)
    return result


def plan(objects: GatewayObjects) -> GatewayPlan:
    """Decide about all objects. Of what is not ours it says nothing."""
    found = update(Planner(objects), everything(objects))
    for each in (found.requests, found.gateways, found.listener_sets):
        for key in [key for key, value in each.items() if value is None]:
            del each[key]
    return found


def decided(*args: Any, **kwargs: Any) -> GatewayPlan:
    return plan(world(*args, **kwargs))


def outcomes(conditions: Iterable[WantedCondition]) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in conditions}


def of_gateway(found: GatewayPlan, key: ObjectKey = GATEWAY) -> dict[str, tuple[str, str]]:
    status = found.gateways[key]
    assert status is not None
    return outcomes(status.conditions)


def listeners_of(found: GatewayPlan, key: ObjectKey = GATEWAY) -> dict[str, ListenerStatus]:
    status = found.gateways[key]
    assert status is not None
    return {each.name: each for each in status.listeners}


def of_route(
    found: GatewayPlan, name: str = "web", namespace: str = "infra", kind: RouteKindName = "TCPRoute"
) -> list[dict[str, tuple[str, str]]]:
    return [outcomes(each.conditions) for each in found.routes[RouteKey(kind, namespace, name)]]


def specs(found: GatewayPlan) -> list[dict[str, Any]]:
    return [each.spec for each in found.farms.values() if each is not None]
