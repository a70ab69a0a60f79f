"""Decide about all Gateways, and again about those that a change affects."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass
from kube_nftlb.operator.gateway import classes
from kube_nftlb.operator.gateway.attached import Candidate
from kube_nftlb.operator.gateway.attachment import attach
from kube_nftlb.operator.gateway.backends import Backends, resolve
from kube_nftlb.operator.gateway.changes import Affected, Changes, everything
from kube_nftlb.operator.gateway.grants import Grants
from kube_nftlb.operator.gateway.index import References
from kube_nftlb.operator.gateway.listeners import Problem, sections
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey, RouteKey
from kube_nftlb.operator.gateway.record import GatewayRecord, Subject
from kube_nftlb.operator.gateway.sets import ListenerSets
from kube_nftlb.operator.gateway.status import released_status
from kube_nftlb.operator.gateway.wanted import (
    AddressRequest,
    ClassStatus,
    GatewayPlan,
    GatewayStatus,
    ParentStatus,
    WantedFarm,
)

GATEWAYS_MAX: Final = 1024
"""The number of Gateways of a namespace; older ones come first."""


def plan(objects: GatewayObjects) -> GatewayPlan:
    """Decide about all objects."""
    planner = Planner(objects)
    planner.update(everything(objects))
    return planner.current()


class Planner:
    """Keeps what was decided, and decides again about the Gateways and routes that a change affects, and no others."""

    def __init__(self, objects: GatewayObjects) -> None:
        self._objects = objects
        self._references = References()
        self._sets = ListenerSets(objects, self._references)
        self._grants = Grants()
        self._backends: dict[RouteKey, Backends] = {}
        self._budget: Budget[ObjectKey] = Budget(GATEWAYS_MAX)
        self._records: dict[ObjectKey, GatewayRecord] = {}
        self._farms: dict[ObjectKey, ObjectKey] = {}
        """Gateways of farms."""

    def current(self) -> GatewayPlan:
        """Return all that is decided."""
        result = GatewayPlan()
        for name in self._objects.classes:
            result.classes[name] = self._class_status(name)
        for key, record in self._records.items():
            _add(result, key, record, record.refused_sets)
            result.farms.update(record.farms)
        for route in self._objects.routes:
            result.routes[route] = self._parent_statuses(route)
        return result

    def gateways_of(self, route: RouteKey) -> Collection[ObjectKey]:
        """Return the Gateways that a route refers to, itself or by a ListenerSet."""
        return self._references.gateways(route)

    def request_of(self, key: ObjectKey) -> AddressRequest | None:
        """Return the addresses that a Gateway of ours wants."""
        record = self._records.get(key)
        return record.request if record is not None else None

    def update(self, changes: Changes) -> GatewayPlan:
        """Decide about what these changes affect. Return what is decided about it, whether or not it is new.

        Of farms, it returns those that differ from what was decided before, and those of the changes.
        """
        affected = Affected()
        self._follow_gateways(changes, affected)
        for namespace in changes.namespaces:
            self._follow_namespace(namespace, affected)
        self._follow_routes(changes, affected)
        result = GatewayPlan()
        for name in changes.classes:
            result.classes[name] = self._class_status(name)
        for key in affected.gateways:
            self._decide(key, affected, result)
        for key in changes.listener_sets:
            result.listener_sets.setdefault(key, None)
        for farm in changes.farms:
            gateway = self._farms.get(farm)
            result.farms[farm] = self._records[gateway].farms[farm] if gateway is not None else None
        for route in affected.statuses:
            result.routes[route] = self._parent_statuses(route)
        return result

    def _follow_gateways(self, changes: Changes, affected: Affected) -> None:
        objects, references = self._objects, self._references
        affected.gateways |= changes.addresses
        affected.gateways.update(gateway for farm in changes.farms if (gateway := self._farms.get(farm)) is not None)
        affected.add_subjects(changes.gateways)
        for name in changes.classes:
            affected.add_subjects(references.of_class.get(name))
        for key in changes.gateways:
            references.put_gateway(key, objects.gateways.get(key))
        for key in changes.listener_sets:
            self._sets.follow(key, affected)
        for key in tuple(affected.subjects):
            affected.add_subjects(self._rank(key))

    def _rank(self, key: ObjectKey) -> set[ObjectKey]:
        """Rank a Gateway among those of its namespace. Return those that are too many since, or no more."""
        gateway = self._objects.gateways.get(key)
        if gateway is None or self._class_of_ours(gateway) is None:
            return self._budget.remove(key)
        return self._budget.put(key, (False, gateway.metadata.created_s))

    def _follow_namespace(self, namespace: str, affected: Affected) -> None:
        """Have what a namespace has judged again, by its labels."""
        for listener_set in self._references.sets_in.get(namespace):
            if (gateway := self._references.gateway_of.get(listener_set)) is not None:
                affected.add_sets([listener_set], gateway)
        for route in self._references.routes_in.get(namespace):
            affected.add_route(route, self._references.gateways(route))

    def _follow_routes(self, changes: Changes, affected: Affected) -> None:
        objects, references = self._objects, self._references
        outdated = set(changes.routes)
        permissions = {each for key in changes.grants for each in self._grants.put(key, objects.grants.get(key))}
        outdated |= references.routes_with(permissions)
        for service in changes.services:
            outdated |= references.routes_to.get(ObjectKey(*service))
        for key in changes.routes:
            affected.add_route(key, references.gateways(key))
            references.put_route(key, objects.routes.get(key))
        for key in outdated:
            if self._records.keys().isdisjoint(references.gateways(key)):
                # No Gateway of ours looks at it, or not yet: it is resolved when one does.
                self._backends.pop(key, None)
                resolved = False
            else:
                resolved = self._resolve(key)
            if resolved or key in changes.routes:
                affected.statuses.add(key)
                affected.add_route(key, references.gateways(key))
        for gateway, sets in affected.sets.items():
            for each in sets:
                for key in references.routes_of_set(each):
                    affected.statuses.add(key)
                    affected.add_route(key, [gateway])

    def _resolve(self, key: RouteKey) -> bool:
        """Resolve the backends of a route anew. Return True if they have changed."""
        before = self._backends.pop(key, None)
        if (route := self._objects.routes.get(key)) is None:
            return True
        self._backends[key] = resolve(key, route, self._objects.services, self._grants)
        return self._backends[key] != before

    def _decide(self, key: ObjectKey, affected: Affected, result: GatewayPlan) -> None:
        before = self._records.get(key)
        farms = before.farms if before is not None else {}
        sets = affected.sets.get(key, set())
        gateway = self._objects.gateways.get(key)
        of_class = self._class_of_ours(gateway) if gateway is not None else None
        if gateway is None or of_class is None:
            result.gateways.setdefault(key, None)
            if before is not None:
                if gateway is not None:
                    result.released[key] = released_status(before.status, gateway)
                affected.statuses |= before.parents.keys()
                _forget(result, key, before)
                self._replace_farms(key, farms, {}, result)
                del self._records[key]
            return
        whole = before is None or key in affected.subjects
        if whole:
            sets = {*sets, *self._references.sets_of.get(key)}
        admitted = {each for each in sets if self._sets.admits(gateway, each)}
        routes = affected.routes.get(key, set())
        refused = {each: self._sets.refused(key, each) for each in sets - admitted}
        if before is None or whole or admitted or not before.subject.sets.keys().isdisjoint(sets):
            others = before.subject.sets.keys() - sets if before is not None else ()
            subject = self._subject(key, gateway, of_class, {*admitted, *others})
            record = before or GatewayRecord(subject)
            if before is None or record.subject.sections != subject.sections:
                routes = {*routes, *record.routes, *self._references.routes(key)}
            refused |= record.put_subject(subject)
        else:
            record = before
        record.put_sets(sets, refused)
        self._records[key] = record
        changed: set[RouteKey] = set()
        for route in routes:
            changed |= record.put_route(route, self._candidate(record.subject, route))
        affected.statuses |= record.decide(self._objects.addresses.get(key), changed)
        self._replace_farms(key, farms, record.farms, result)
        _add(result, key, record, refused)

    def _replace_farms(
        self,
        key: ObjectKey,
        before: Mapping[ObjectKey, WantedFarm],
        now: Mapping[ObjectKey, WantedFarm],
        result: GatewayPlan,
    ) -> None:
        for farm in before.keys() - now.keys():
            # Whoever tries long enough finds names for which two Gateways want the same farm.
            if self._farms.get(farm) == key:
                del self._farms[farm]
                result.farms[farm] = None
        for farm, wanted in now.items():
            if before.get(farm) is not wanted:
                self._farms[farm] = key
                result.farms[farm] = wanted

    def _subject(
        self, key: ObjectKey, gateway: Gateway, of_class: GatewayClass, admitted: Iterable[ObjectKey]
    ) -> Subject:
        """Return a Gateway with what the decision depends on, beside its routes and address."""
        objects = self._objects
        # Those that are gone are told later, if many are at once.
        sets = {each: found for each in admitted if (found := objects.listener_sets.get(each)) is not None}
        return Subject(
            key,
            gateway,
            sets,
            sections(gateway, sets),
            self._refused(key, of_class),
            self._budget.refuses(key),
            objects.farms,
            objects.routability,
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

    def _candidate(self, subject: Subject, key: RouteKey) -> Candidate | None:
        """Return a route as a Gateway sees it; None if it refers to it no more."""
        route = self._objects.routes.get(key)
        if route is None or subject.key not in self._references.gateways(key):
            return None
        if key not in self._backends:
            self._resolve(key)
        labels = self._objects.namespaces.get(key.namespace)
        sets = self._references.sets_of.get(subject.key)
        return Candidate(route, attach(subject.key, sets, subject.sections, key, route, labels), self._backends[key])

    def _parent_statuses(self, route: RouteKey) -> tuple[ParentStatus, ...]:
        found = {
            index: status
            for gateway in self._references.gateways(route)
            if (record := self._records.get(gateway)) is not None
            for index, status in record.parents.get(route, {}).items()
        }
        return tuple(found[index] for index in sorted(found))

    def _class_status(self, name: str) -> ClassStatus | None:
        found = self._objects.classes.get(name)
        if found is None or not classes.is_ours(found):
            return None
        return classes.class_status(found, self._objects.versions, routability=self._objects.routability)


def _forget(result: GatewayPlan, key: ObjectKey, record: GatewayRecord) -> None:
    """Say that nothing is wanted of a Gateway any more, nor of its ListenerSets unless they have another one."""
    result.requests[key] = None
    for each in (*record.sets, *record.refused_sets):
        result.listener_sets.setdefault(each, None)


def _add(
    result: GatewayPlan, key: ObjectKey, record: GatewayRecord, sets: Mapping[ObjectKey, GatewayStatus | None]
) -> None:
    """Say what is decided about a Gateway and its ListenerSets, and these others; nothing of farms and routes."""
    result.requests[key] = record.request
    result.gateways[key] = record.status
    result.listener_sets.update(record.sets)
    result.listener_sets.update((each, status) for each, status in sets.items() if status is not None)
