"""Decide about all Gateways, and again about those that a change affects."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.gateway import GROUP
from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.gateway import classes
from kube_nftlb.operator.gateway.attached import Candidate
from kube_nftlb.operator.gateway.attachment import ParentKey, attach, parents
from kube_nftlb.operator.gateway.backends import Backends, resolve, services_of
from kube_nftlb.operator.gateway.listeners import Problem, sections
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey, RouteKey, rank
from kube_nftlb.operator.gateway.record import GatewayRecord, Subject
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

GATEWAYS_MAX: Final = 1024
"""The number of Gateways of a namespace; older ones come first."""


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


class _Affected:
    """What a change makes out of date."""

    def __init__(self) -> None:
        self.gateways: set[ObjectKey] = set()
        self.subjects: set[ObjectKey] = set()
        """Those of them of which more is new than their addresses and the states of their farms."""
        self.by_labels: set[ObjectKey] = set()
        """Those of them whose routes may be admitted otherwise, by their namespaces' labels."""
        self.routes: dict[ObjectKey, set[RouteKey]] = {}
        """The routes of these Gateways that are to be judged again."""
        self.statuses: set[RouteKey] = set()
        """Routes whose status is to be told again."""

    def add_subjects(self, keys: Iterable[ObjectKey]) -> None:
        """Have Gateways decided about of which anything may be new."""
        self.subjects.update(keys)
        self.gateways.update(keys)


class Planner:
    """Keeps what was decided, and decides again about the Gateways and routes that a change affects, and no others."""

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
        self._records: dict[ObjectKey, GatewayRecord] = {}
        self._budget: Budget[ObjectKey] = Budget(GATEWAYS_MAX)
        self._farms: dict[ObjectKey, ObjectKey] = {}
        """Gateways of farms."""

    def current(self) -> GatewayPlan:
        """Return all that is decided."""
        result = _Result()
        for name in self._objects.classes:
            result.classes[name] = self._class_status(name)
        for key, record in self._records.items():
            result.add(key, record, refused_sets=True)
            result.farms.update(record.farms)
        for route in self._objects.routes:
            result.routes[route] = self._parent_statuses(route)
        return result.plan()

    def update(self, changes: Changes) -> GatewayPlan:
        """Decide about what these changes affect. Return what is decided about it, whether or not it is new.

        Of farms, it returns those that differ from what was decided before, and those of the changes.
        """
        affected = _Affected()
        self._index_gateways(changes, affected)
        self._index_routes(changes, affected)
        result = _Result()
        for name in changes.classes:
            result.classes[name] = self._class_status(name)
        for key in affected.gateways | affected.routes.keys():
            self._decide(key, affected, result)
        for key in changes.listener_sets:
            result.listener_sets.setdefault(key, None)
        for farm in changes.farms:
            gateway = self._farms.get(farm)
            result.farms[farm] = self._records[gateway].farms[farm] if gateway is not None else None
        for route in affected.statuses:
            result.routes[route] = self._parent_statuses(route)
        return result.plan()

    def _index_gateways(self, changes: Changes, affected: _Affected) -> None:
        objects = self._objects
        affected.gateways |= changes.addresses
        affected.gateways.update(gateway for farm in changes.farms if (gateway := self._farms.get(farm)) is not None)
        affected.add_subjects(changes.gateways)
        for name in changes.classes:
            affected.add_subjects(self._of_class.get(name))
        for key in changes.gateways:
            found = objects.gateways.get(key)
            _reindex(self._class_of, self._of_class, key, found.spec.gateway_class_name if found else None)
        for key in changes.listener_sets:
            listener_set = objects.listener_sets.get(key)
            routes = self._routes_of.get(ParentKey("ListenerSet", key))
            parent = _parent_gateway(listener_set) if listener_set is not None else None
            for gateway in filter(None, {self._gateway_of.get(key), parent}):
                affected.add_subjects([gateway])
                affected.routes.setdefault(gateway, set()).update(routes)
            _reindex(self._gateway_of, self._sets_of, key, parent)
            affected.statuses |= routes
        if changes.namespaces:
            affected.add_subjects(self._by_labels)
            affected.by_labels = self._by_labels.copy()
        for key in tuple(affected.subjects):
            affected.add_subjects(self._rank(key))

    def _rank(self, key: ObjectKey) -> set[ObjectKey]:
        """Rank a Gateway among those of its namespace. Return those that are too many since, or no more."""
        gateway = self._objects.gateways.get(key)
        if gateway is None or self._class_of_ours(gateway) is None:
            return self._budget.remove(key)
        return self._budget.put(key, (False, rank(gateway.metadata)))

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
        for key in changes.routes:
            for gateway in self._gateways(key):
                affected.routes.setdefault(gateway, set()).add(key)
            self._index_route(key, objects.routes.get(key))
        for key in outdated:
            if (route := objects.routes.get(key)) is not None:
                backends = resolve(key, route, objects.services, self._grants)
                if key not in changes.routes and backends == self._backends.get(key):
                    continue
                self._backends[key] = backends
            else:
                self._backends.pop(key, None)
            affected.statuses.add(key)
            for gateway in self._gateways(key):
                affected.routes.setdefault(gateway, set()).add(key)

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

    def _gateways(self, route: RouteKey) -> set[ObjectKey]:
        """Return the Gateways that a route refers to, itself or by a ListenerSet."""
        found = (
            parent.key if parent.kind == "Gateway" else self._gateway_of.get(parent.key)
            for parent in self._parents.get(route, ())
        )
        return {gateway for gateway in found if gateway is not None}

    def _decide(self, key: ObjectKey, affected: _Affected, result: "_Result") -> None:
        before = self._records.get(key)
        farms = before.farms if before is not None else {}
        new = before is None or key in affected.subjects
        subject = self._subject(key) if before is None or new else before.subject
        if subject is None:
            result.gateways.setdefault(key, None)
            if before is not None:
                affected.statuses |= before.parents.keys()
                result.forget(key, before)
                self._replace_farms(key, farms, {}, result)
                del self._records[key]
            return
        record = before or GatewayRecord(subject)
        self._records[key] = record
        routes = affected.routes.get(key, set())
        if before is None or record.subject.sections != subject.sections or key in affected.by_labels:
            routes = {*routes, *record.routes, *self._routes(key)}
        changed: set[RouteKey] = set()
        for route in routes:
            changed |= record.put_route(route, self._candidate(subject, route))
        if new:
            result.forget(key, record)
        affected.statuses |= record.decide(replace(subject, address=self._objects.addresses.get(key)), changed)
        self._replace_farms(key, farms, record.farms, result)
        result.add(key, record, refused_sets=new)

    def _replace_farms(
        self,
        key: ObjectKey,
        before: Mapping[ObjectKey, WantedFarm],
        now: Mapping[ObjectKey, WantedFarm],
        result: "_Result",
    ) -> None:
        for farm in before.keys() - now.keys():
            del self._farms[farm]
            result.farms[farm] = None
        for farm, wanted in now.items():
            if before.get(farm) is not wanted:
                self._farms[farm] = key
                result.farms[farm] = wanted

    def _subject(self, key: ObjectKey) -> Subject | None:
        """Return a Gateway with what the decision depends on, beside its routes; None if it is not ours."""
        objects = self._objects
        self._by_labels.discard(key)
        gateway = objects.gateways.get(key)
        found = self._class_of_ours(gateway) if gateway is not None else None
        if gateway is None or found is None:
            return None
        sets = {each: objects.listener_sets[each] for each in self._sets_of.get(key)}
        if _selects(gateway) or any(map(_selects, sets.values())):
            self._by_labels.add(key)
        return Subject(
            key,
            gateway,
            sets,
            sections(gateway, sets.items(), objects.namespaces.get),
            self._refused(key, found),
            self._budget.refuses(key),
            None,
            objects.farms,
            objects.options,
        )

    def _refused(self, key: ObjectKey, of_class: GatewayClass) -> Problem | None:
        if (refused := classes.refused(of_class)) is not None:
            return Problem(refused.reason, f"the GatewayClass is not accepted: {refused.message}")
        if self._budget.refuses(key):
            message = f"the namespace has {GATEWAYS_MAX} older Gateways, and may not have more"
            return Problem("TooManyGateways", message)
        return None

    def _class_of_ours(self, gateway: Gateway) -> GatewayClass | None:
        """Return the class of a Gateway if it is ours."""
        found = self._objects.classes.get(gateway.spec.gateway_class_name)
        return found if found is not None and classes.is_ours(found) else None

    def _routes(self, gateway: ObjectKey) -> Iterator[RouteKey]:
        """Yield the routes that refer to a Gateway, or to one of its ListenerSets."""
        yield from self._routes_of.get(ParentKey("Gateway", gateway))
        for each in self._sets_of.get(gateway):
            yield from self._routes_of.get(ParentKey("ListenerSet", each))

    def _candidate(self, subject: Subject, key: RouteKey) -> Candidate | None:
        """Return a route as a Gateway sees it; None if it refers to it no more."""
        route = self._objects.routes.get(key)
        if route is None or subject.key not in self._gateways(key):
            return None
        labels = self._objects.namespaces.get(key.namespace)
        return Candidate(route, attach(subject.key, subject.sections, key, route, labels), self._backends[key])

    def _parent_statuses(self, route: RouteKey) -> tuple[ParentStatus, ...]:
        found = {
            index: status
            for gateway in self._gateways(route)
            if (record := self._records.get(gateway)) is not None
            for index, status in record.parents.get(route, {}).items()
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

    def forget(self, key: ObjectKey, record: GatewayRecord) -> None:
        """Say that nothing is wanted any more of what was decided, unless something says otherwise."""
        self.requests.setdefault(key, None)
        for each in (*record.sets, *record.refused_sets):
            self.listener_sets.setdefault(each, None)

    def add(self, key: ObjectKey, record: GatewayRecord, *, refused_sets: bool) -> None:
        """Say what is decided about a Gateway, but for its farms and routes."""
        self.requests[key] = record.request
        self.gateways[key] = record.status
        self.listener_sets.update(record.sets)
        if refused_sets:
            self.listener_sets.update(record.refused_sets)

    def plan(self) -> GatewayPlan:
        return GatewayPlan(self.farms, self.requests, self.classes, self.gateways, self.listener_sets, self.routes)
