"""Decide about all Gateways, and again about those that a change affects."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass
from kube_nftlb.operator.gateway import classes
from kube_nftlb.operator.gateway.addresses import asked
from kube_nftlb.operator.gateway.attachment import entrances
from kube_nftlb.operator.gateway.changes import Affected, Changes, Outdated
from kube_nftlb.operator.gateway.index import References
from kube_nftlb.operator.gateway.listeners import Problem, sections
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey, RouteKey
from kube_nftlb.operator.gateway.record import GatewayRecord, Subject
from kube_nftlb.operator.gateway.routes import Routes
from kube_nftlb.operator.gateway.sets import ListenerSets
from kube_nftlb.operator.gateway.status import released_status
from kube_nftlb.operator.gateway.wanted import (
    AddressRequest,
    ClassStatus,
    GatewayPlan,
    ParentStatus,
    WantedFarm,
)

GATEWAYS_MAX: Final = 1024
"""The number of Gateways of a namespace; older ones come first."""


class Planner:
    """Keeps what was decided, and decides again about the Gateways and routes that a change affects, and no others."""

    def __init__(self, objects: GatewayObjects) -> None:
        self._objects = objects
        self._references = References()
        self._sets = ListenerSets(objects, self._references)
        self._routes = Routes(objects, self._references)
        self._budget: Budget[ObjectKey] = Budget(GATEWAYS_MAX)
        self._records: dict[ObjectKey, GatewayRecord] = {}
        self._affected = Affected()
        self._farms: dict[ObjectKey, ObjectKey] = {}
        """Gateways of farms."""

    def gateways_of(self, route: RouteKey) -> Collection[ObjectKey]:
        """Return the Gateways that a route refers to, itself or by a ListenerSet."""
        return self._references.gateways(route)

    def request_of(self, key: ObjectKey) -> AddressRequest | None:
        """Return the addresses that a Gateway wants; None if it is not ours, or one too many."""
        gateway = self._objects.gateways.get(key)
        of_class = self._class_of_ours(gateway) if gateway is not None else None
        if gateway is None or of_class is None or self._budget.refuses(key):
            return None
        return asked(gateway, self._refused(key, of_class)).request

    def follow(self, changes: Changes, result: GatewayPlan) -> Iterator[None]:
        """Note what changes affect, and decide about it unless it depends on Gateways that ``next`` is to return.

        As ``decide`` it does so in steps, between which others than its caller may do something.
        """
        yield from self._follow_gateways(changes, result)
        for namespace in changes.namespaces:
            yield from self._follow_namespace(namespace)
        yield from self._follow_routes(changes, result)
        for name in changes.classes:
            result.classes[name] = self._class_status(name)
        for key in changes.listener_sets:
            if self._references.gateway_of.get(key) is None:
                result.listener_sets[key] = None
        for farm in changes.farms:
            gateway = self._farms.get(farm)
            result.farms[farm] = self._records[gateway].farms[farm] if gateway is not None else None

    def next(self) -> ObjectKey | None:
        """Return a Gateway that is to be decided about, None if none is. Namespaces take turns."""
        return self._affected.next()

    def decide(self, key: ObjectKey, result: GatewayPlan) -> Iterator[None]:
        """Decide about a Gateway, in steps, and say what is decided, whether or not it is new; of farms what is."""
        gateway, outdated = self._objects.gateways.get(key), self._affected.take(key)
        if gateway is not None and (of_class := self._class_of_ours(gateway)) is not None:
            yield from self._decide(key, gateway, of_class, outdated, result)
        else:
            self._forget(key, gateway, outdated, result)
        for route in outdated.statuses:
            self._tell(route, result)
            yield

    def _follow_gateways(self, changes: Changes, result: GatewayPlan) -> Iterator[None]:
        objects, references, affected = self._objects, self._references, self._affected
        for key in changes.addresses | {gateway for farm in changes.farms if (gateway := self._farms.get(farm))}:
            affected.add(key)
        subjects = set(changes.gateways).union(*map(references.of_class.get, changes.classes))
        for key in changes.gateways:
            references.put_gateway(key, objects.gateways.get(key))
            yield
        for key in changes.listener_sets:
            self._sets.follow(key, affected)
            yield
        for key in tuple(subjects):
            subjects |= self._rank(key)
            yield
        for key in subjects:
            affected.add(key).whole = True
            result.requests[key] = self.request_of(key)
            yield

    def _rank(self, key: ObjectKey) -> set[ObjectKey]:
        """Rank a Gateway among those of its namespace. Return those that are too many since, or no more."""
        gateway = self._objects.gateways.get(key)
        if gateway is None or self._class_of_ours(gateway) is None:
            return self._budget.remove(key)
        return self._budget.put(key, (False, gateway.metadata.created_s))

    def _follow_namespace(self, namespace: str) -> Iterator[None]:
        """Have what a namespace has judged again, by its labels."""
        for listener_set in self._references.sets_in.get(namespace):
            if (gateway := self._references.gateway_of.get(listener_set)) is not None:
                self._affected.add(gateway).sets.add(listener_set)
        for route in self._references.routes_in.get(namespace):
            self._affected.add_route(route, self._references.gateways(route))
            yield

    def _follow_routes(self, changes: Changes, result: GatewayPlan) -> Iterator[None]:
        objects, references, affected = self._objects, self._references, self._affected
        for key in changes.routes:
            affected.add_route(key, references.gateways(key))
            references.put_route(key, objects.routes.get(key))
            yield
        for key in self._routes.outdated(changes):
            gateways = references.gateways(key)
            resolved = self._routes.resolve(key, ours=not self._records.keys().isdisjoint(gateways))
            if resolved or key in changes.routes:
                affected.add_route(key, gateways)
                self._tell(key, result)
            yield

    def _decide(
        self, key: ObjectKey, gateway: Gateway, of_class: GatewayClass, outdated: Outdated, result: GatewayPlan
    ) -> Iterator[None]:
        """Decide about a Gateway of ours. Add the routes whose statuses are new."""
        before, sets, named = self._records.get(key), outdated.sets, set[RouteKey]()
        whole = before is None or outdated.whole
        if whole:
            sets |= self._references.sets_of.get(key)
        admitted = {each for each in sets if self._sets.admits(gateway, each)}
        refused = {each: self._sets.refused(key, each) for each in sets - admitted}
        if before is None or whole or admitted or not before.subject.sets.keys().isdisjoint(sets):
            others = before.subject.sets.keys() - sets if before is not None else ()
            subject = self._subject(key, gateway, of_class, {*admitted, *others})
            record = before or GatewayRecord(subject)
            if before is not None:
                named.update(self._references.routes_between(before.subject.entrances, subject.entrances))
            else:
                outdated.routes.update(self._references.routes(key))
            refused |= record.put_subject(subject)
        else:
            record = before
        record.put_sets(sets, refused)
        self._records[key] = record
        yield from self._routes.attach(record.subject, record.routes, outdated, named)
        farms = record.farms
        outdated.statuses |= record.decide(self._objects.addresses.get(key))
        for route in outdated.statuses:
            record.tell(route)
            yield
        self._replace_farms(key, farms, record.farms, result)
        result.gateways[key] = record.status
        result.listener_sets.update(record.sets)
        result.listener_sets.update((each, status) for each, status in refused.items() if status is not None)
        self._disown(key, sets - record.sets.keys() - record.refused_sets.keys(), result)

    def _forget(self, key: ObjectKey, gateway: Gateway | None, outdated: Outdated, result: GatewayPlan) -> None:
        """Say that nothing is wanted of a Gateway any more. Add the routes whose statuses are new."""
        result.gateways[key] = None
        if (record := self._records.pop(key, None)) is not None:
            if gateway is not None:
                result.released[key] = released_status(record.status, gateway)
            outdated.sets.update(record.sets, record.refused_sets)
            outdated.statuses.update(record.parents)
            self._replace_farms(key, record.farms, {}, result)
        self._disown(key, outdated.sets, result)

    def _disown(self, key: ObjectKey, sets: Iterable[ObjectKey], result: GatewayPlan) -> None:
        """Say that nothing is said of ListenerSets of a Gateway, unless they have another one, which says something."""
        for each in sets:
            if self._references.gateway_of.get(each) in (None, key):
                result.listener_sets[each] = None

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
        sets = {each: known for each in admitted if (known := objects.listener_sets.get(each)) is not None}
        found = sections(gateway, sets)
        return Subject(
            key,
            gateway,
            sets,
            found,
            entrances(key, found),
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

    def _tell(self, route: RouteKey, result: GatewayPlan) -> None:
        """Say what is decided about a route, once all of its Gateways are decided about."""
        waiting = [each for each in self._references.gateways(route) if each in self._affected]
        if waiting:
            self._affected.add(waiting[0]).statuses.add(route)
        else:
            result.routes[route] = self._parent_statuses(route)

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
