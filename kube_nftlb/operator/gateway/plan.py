"""Decide about all Gateways, and again about those that a change affects."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import TypeVar

from kube_nftlb.api.gateway import GROUP
from kube_nftlb.api.gateway.gateway import Gateway, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.gateway import classes
from kube_nftlb.operator.gateway.attachment import ParentKey, attach, parents
from kube_nftlb.operator.gateway.backends import Backends, resolve, services_of
from kube_nftlb.operator.gateway.decide import Candidate, Decision, Subject, decide
from kube_nftlb.operator.gateway.listeners import Problem, sections
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey, RouteKey
from kube_nftlb.operator.gateway.wanted import (
    AddressRequest,
    ClassStatus,
    GatewayPlan,
    GatewayStatus,
    ParentStatus,
    WantedFarm,
)

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Changes:
    """What of ``GatewayObjects`` was added, replaced or removed."""

    classes: Set[str] = frozenset()
    gateways: Set[ObjectKey] = frozenset()
    listener_sets: Set[ObjectKey] = frozenset()
    routes: Set[RouteKey] = frozenset()
    grants: Set[ObjectKey] = frozenset()
    namespaces: Set[str] = frozenset()
    services: Set[tuple[str, str]] = frozenset()
    addresses: Set[ObjectKey] = frozenset()
    farms: Set[ObjectKey] = frozenset()


def plan(objects: GatewayObjects) -> GatewayPlan:
    """Decide about all objects."""
    planner = Planner(objects)
    planner.update(everything(objects))
    return planner.current()


def everything(objects: GatewayObjects) -> Changes:
    """Return the changes that lead from nothing to these objects."""
    return Changes(
        classes=frozenset(objects.classes),
        gateways=frozenset(objects.gateways),
        listener_sets=frozenset(objects.listener_sets),
        routes=frozenset(objects.routes),
        grants=frozenset(objects.grants),
    )


@dataclass(slots=True)
class _Affected:
    gateways: set[ObjectKey] = field(default_factory=set)
    routes: set[RouteKey] = field(default_factory=set)
    """Those whose status is to be told anew."""


class Planner:
    """Keeps what was decided, and decides again about the Gateways that a change affects, and about no others."""

    def __init__(self, objects: GatewayObjects) -> None:
        self._objects = objects
        self._grants: dict[str, dict[str, ReferenceGrant]] = {}
        self._parents: dict[RouteKey, frozenset[ParentKey]] = {}
        self._routes_of: Multimap[ParentKey, RouteKey] = Multimap()
        self._services: dict[RouteKey, frozenset[ObjectKey]] = {}
        self._routes_to: Multimap[ObjectKey, RouteKey] = Multimap()
        """Routes by the Services that they refer to."""
        self._routes_into: Multimap[str, RouteKey] = Multimap()
        """Routes of other namespaces that refer to Services of a namespace."""
        self._backends: dict[RouteKey, Backends] = {}
        self._gateway_of: dict[ObjectKey, ObjectKey] = {}
        """Gateways of ListenerSets."""
        self._sets_of: Multimap[ObjectKey, ObjectKey] = Multimap()
        self._class_of: dict[ObjectKey, str] = {}
        self._of_class: Multimap[str, ObjectKey] = Multimap()
        self._by_labels: set[ObjectKey] = set()
        """Gateways that select namespaces by labels, or have a ListenerSet that does."""
        self._decisions: dict[ObjectKey, Decision] = {}
        self._farms: dict[ObjectKey, ObjectKey] = {}
        """Gateways of farms."""

    def current(self) -> GatewayPlan:
        """Return all that is decided."""
        result = _Result()
        for name in self._objects.classes:
            result.classes[name] = self._class_status(name)
        for key, decision in self._decisions.items():
            result.add(key, decision)
        for route in self._objects.routes:
            result.routes[route] = self._parent_statuses(route)
        return result.plan()

    def update(self, changes: Changes) -> GatewayPlan:
        """Decide about what these changes affect. Return what is decided about it, whether or not it differs."""
        affected = _Affected(routes=set(changes.routes))
        self._index_gateways(changes, affected)
        self._index_routes(changes, affected)
        result = _Result()
        for name in changes.classes:
            result.classes[name] = self._class_status(name)
        for key in affected.gateways:
            self._redecide(key, affected, result)
        for key in changes.listener_sets:
            result.listener_sets.setdefault(key, None)
        for route in affected.routes:
            result.routes[route] = self._parent_statuses(route)
        return result.plan()

    def _index_gateways(self, changes: Changes, affected: _Affected) -> None:
        objects = self._objects
        affected.gateways |= changes.gateways | changes.addresses
        affected.gateways.update(gateway for farm in changes.farms if (gateway := self._farms.get(farm)) is not None)
        for name in changes.classes:
            affected.gateways |= self._of_class.get(name)
        for key in changes.gateways:
            found = objects.gateways.get(key)
            _reindex(self._class_of, self._of_class, key, found.spec.gateway_class_name if found else None)
        for key in changes.listener_sets:
            listener_set = objects.listener_sets.get(key)
            affected.gateways.update(filter(None, (self._gateway_of.get(key),)))
            parent = _parent_gateway(listener_set) if listener_set is not None else None
            _reindex(self._gateway_of, self._sets_of, key, parent)
            affected.gateways.update(filter(None, (parent,)))
            affected.routes |= self._routes_of.get(ParentKey("ListenerSet", key))
        if changes.namespaces:
            affected.gateways |= self._by_labels

    def _index_routes(self, changes: Changes, affected: _Affected) -> None:
        objects = self._objects
        outdated = set(changes.routes)
        for namespace, name in changes.grants:
            grant = objects.grants.get(ObjectKey(namespace, name))
            of_namespace = self._grants.setdefault(namespace, {})
            if grant is not None:
                of_namespace[name] = grant
            else:
                of_namespace.pop(name, None)
            outdated |= self._routes_into.get(namespace)
        for service in changes.services:
            outdated |= self._routes_to.get(ObjectKey(*service))
        for key in outdated:
            affected.gateways.update(self._gateways(key))
        for key in changes.routes:
            self._index_route(key, objects.routes.get(key))
        for key in outdated:
            route = objects.routes.get(key)
            affected.gateways.update(self._gateways(key))
            if route is not None:
                self._backends[key] = resolve(key, route, objects.services, self._grants)
            else:
                self._backends.pop(key, None)

    def _index_route(self, key: RouteKey, route: Route | None) -> None:
        for parent in self._parents.pop(key, ()):
            self._routes_of.discard(parent, key)
        for service in self._services.pop(key, ()):
            self._routes_to.discard(service, key)
            self._routes_into.discard(service.namespace, key)
        if route is None:
            return
        self._parents[key] = frozenset(parent for _, parent in parents(route))
        self._services[key] = frozenset(services_of(route))
        for parent in self._parents[key]:
            self._routes_of.add(parent, key)
        for service in self._services[key]:
            self._routes_to.add(service, key)
            if service.namespace != key.namespace:
                self._routes_into.add(service.namespace, key)

    def _gateways(self, route: RouteKey) -> Iterable[ObjectKey]:
        """Yield the Gateways that a route refers to, itself or by a ListenerSet."""
        for parent in self._parents.get(route, ()):
            gateway = parent.key if parent.kind == "Gateway" else self._gateway_of.get(parent.key)
            if gateway is not None:
                yield gateway

    def _redecide(self, key: ObjectKey, affected: _Affected, result: "_Result") -> None:
        before = self._decisions.pop(key, None)
        subject = self._subject(key)
        if before is not None:
            affected.routes |= before.parents.keys()
            result.forget(key, before)
            for farm in before.farms:
                del self._farms[farm]
        if subject is None:
            result.gateways.setdefault(key, None)
            return
        decision = self._decisions[key] = decide(subject)
        for farm in decision.farms:
            self._farms[farm] = key
        affected.routes |= decision.parents.keys()
        result.add(key, decision)

    def _subject(self, key: ObjectKey) -> Subject | None:
        """Return a Gateway with all that the decision depends on; None if it is not ours."""
        objects = self._objects
        self._by_labels.discard(key)
        gateway = objects.gateways.get(key)
        found = objects.classes.get(gateway.spec.gateway_class_name) if gateway is not None else None
        if gateway is None or found is None or not classes.is_ours(found):
            return None
        sets = {each: objects.listener_sets[each] for each in self._sets_of.get(key)}
        if _selects(gateway) or any(map(_selects, sets.values())):
            self._by_labels.add(key)
        listeners = sections(gateway, sets.items(), objects.namespaces.get)
        of_class = classes.refused(found)
        return Subject(
            key,
            gateway,
            sets,
            Problem(of_class.reason, f"the GatewayClass is not accepted: {of_class.message}") if of_class else None,
            listeners,
            {
                route: Candidate(
                    objects.routes[route],
                    attach(key, listeners, route, objects.routes[route], objects.namespaces.get(route.namespace)),
                    self._backends[route],
                )
                for parent in (ParentKey("Gateway", key), *(ParentKey("ListenerSet", each) for each in sets))
                for route in self._routes_of.get(parent)
            },
            objects.addresses.get(key),
            objects.farms,
            objects.options,
        )

    def _parent_statuses(self, route: RouteKey) -> tuple[ParentStatus, ...]:
        found = {
            index: status
            for gateway in self._gateways(route)
            if (decision := self._decisions.get(gateway)) is not None
            for index, status in decision.parents.get(route, {}).items()
        }
        return tuple(found[index] for index in sorted(found))

    def _class_status(self, name: str) -> ClassStatus | None:
        found = self._objects.classes.get(name)
        if found is None or not classes.is_ours(found):
            return None
        return classes.class_status(found, self._objects.versions)


def _reindex(index: dict[ObjectKey, _V], reverse: "Multimap[_V, ObjectKey]", key: ObjectKey, value: _V | None) -> None:
    """Replace the value of a key, None for no value, in an index and its reverse."""
    if (before := index.pop(key, None)) is not None:
        reverse.discard(before, key)
    if value is not None:
        index[key] = value
        reverse.add(value, key)


def _parent_gateway(listener_set: ListenerSet) -> ObjectKey | None:
    parent = listener_set.spec.parent_ref
    if (parent.group or GROUP, parent.kind or "Gateway") != (GROUP, "Gateway"):
        return None
    return ObjectKey(parent.namespace or listener_set.metadata.namespace, parent.name)


def _selects(found: Gateway | ListenerSet) -> bool:
    allowed = found.spec.allowed_listeners if isinstance(found, Gateway) else None
    namespaces = [each.allowed_routes.namespaces for each in found.spec.listeners if each.allowed_routes is not None]
    namespaces += [allowed.namespaces] if allowed is not None else []
    return any(each is not None and each.selector is not None for each in namespaces)


@dataclass(slots=True)
class _Result:
    farms: dict[ObjectKey, WantedFarm | None] = field(default_factory=dict)
    requests: dict[ObjectKey, AddressRequest | None] = field(default_factory=dict)
    classes: dict[str, ClassStatus | None] = field(default_factory=dict)
    gateways: dict[ObjectKey, GatewayStatus | None] = field(default_factory=dict)
    listener_sets: dict[ObjectKey, GatewayStatus | None] = field(default_factory=dict)
    routes: dict[RouteKey, tuple[ParentStatus, ...]] = field(default_factory=dict)

    def forget(self, key: ObjectKey, decision: Decision) -> None:
        """Say that nothing is wanted any more of what was decided, unless something says otherwise."""
        self.requests.setdefault(key, None)
        for farm in decision.farms:
            self.farms.setdefault(farm, None)
        for each in decision.sets:
            self.listener_sets.setdefault(each, None)

    def add(self, key: ObjectKey, decision: Decision) -> None:
        """Say what is decided about a Gateway."""
        self.requests[key] = decision.request
        self.gateways[key] = decision.status
        self.farms.update(decision.farms)
        self.listener_sets.update(decision.sets)

    def plan(self) -> GatewayPlan:
        return GatewayPlan(self.farms, self.requests, self.classes, self.gateways, self.listener_sets, self.routes)
