"""Decide about one Gateway: the farms of its listeners, and what the statuses say."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kube_nftlb.api.gateway.gateway import Gateway, ListenerSet
from kube_nftlb.api.gateway.route import Route
from kube_nftlb.operator.gateway.addresses import asked
from kube_nftlb.operator.gateway.attachment import Attachment
from kube_nftlb.operator.gateway.backends import Backends
from kube_nftlb.operator.gateway.farms import farms
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem, Section, Sections
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, ObjectKey, Options, RouteKey, rank
from kube_nftlb.operator.gateway.progress import Progress, progress
from kube_nftlb.operator.gateway.status import (
    Facts,
    gateway_status,
    none_usable,
    parent_status,
    refused_set,
    set_status,
)
from kube_nftlb.operator.gateway.wanted import AddressRequest, GatewayStatus, ParentStatus, WantedFarm
from kube_nftlb.prose import some_of

ROUTES_MAX: Final = 256
"""The number of routes of a namespace that a Gateway accepts."""


class Candidate(NamedTuple):
    """A route that refers to a Gateway, or to one of its ListenerSets."""

    route: Route
    attachments: tuple[Attachment, ...]
    backends: Backends


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows for a Gateway."""

    request: AddressRequest | None
    status: GatewayStatus
    sets: Mapping[ObjectKey, GatewayStatus]
    farms: Mapping[ObjectKey, WantedFarm]
    parents: Mapping[RouteKey, Mapping[int, ParentStatus]]
    """By the position of the parentRef."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A Gateway with all that the decision depends on."""

    key: ObjectKey
    gateway: Gateway
    sets: Mapping[ObjectKey, ListenerSet]
    refused: Problem | None
    """Why its class is not accepted."""
    sections: Sections
    routes: Mapping[RouteKey, Candidate]
    address: AddressState | None
    states: Mapping[ObjectKey, FarmState]
    options: Options


def decide(subject: Subject) -> Decision:
    """Decide about a Gateway."""
    gateway, found = subject.gateway, subject.sections
    wanted = asked(gateway)
    refused = subject.refused or _parameters(gateway) or wanted.unsupported or none_usable(found.own)
    address = AddressState((), "AddressNotAssigned", wanted.unclear) if wanted.unclear else subject.address
    attached, surplus = _attached(subject.routes)
    usable = {each.key: each for each in _all(found) if each.usable}
    serving = {
        key: min(routes, key=lambda each: _age(each, subject.routes))
        for key, routes in attached.items()
        if key in usable
    }
    inside = wanted.request is not None and wanted.request.cluster
    result: dict[ObjectKey, WantedFarm] = {}
    of_listener: dict[ListenerKey, list[ObjectKey]] = {}
    if refused is None and address is not None:
        for listener, route in serving.items():
            candidate = subject.routes[route]
            for name, farm in farms(
                subject.key,
                usable[listener],
                route,
                candidate.route,
                candidate.backends,
                address.addresses,
                subject.options,
                inside=inside,
            ):
                result[name] = farm
                of_listener.setdefault(listener, []).append(name)

    def progress_of(listeners: Iterable[ListenerKey]) -> Progress:
        names = (name for listener in listeners for name in of_listener.get(listener, ()))
        return progress((name, subject.states.get(name)) for name in names)

    routability = "Cluster" if inside else ""
    counts = {listener: len(routes) for listener, routes in attached.items()}
    facts = Facts(refused, _note(found), address, routability, counts, progress_of)
    sets = _sets(subject, facts)
    attached_sets = sum(each.conditions[0].status == "True" for each in sets.values())
    status = gateway_status(found.own, attached_sets, facts, gateway.metadata.generation)
    view = _View(serving, usable, surplus, refused is None)
    parents = {
        key: {each.index: _parent(key, each, candidate, view) for each in candidate.attachments}
        for key, candidate in subject.routes.items()
    }
    return Decision(wanted.request, status, sets, result, parents)


class _View(NamedTuple):
    """What is said of a route that is attached."""

    serving: Mapping[ListenerKey, RouteKey]
    usable: Mapping[ListenerKey, Section]
    surplus: frozenset[RouteKey]
    accepted: bool


def _parameters(gateway: Gateway) -> Problem | None:
    infrastructure = gateway.spec.infrastructure
    if infrastructure is None or infrastructure.parameters_ref is None:
        return None
    return Problem("InvalidParameters", "spec.infrastructure.parametersRef is not supported")


def _note(found: Sections) -> str:
    if not found.strange_ranges:
        return ""
    return f"; it has no listener for the annotations {some_of(found.strange_ranges)}"


def _all(found: Sections) -> Iterator[Section]:
    yield from found.own
    for sections in found.of_sets.values():
        yield from sections


def _attached(
    routes: Mapping[RouteKey, Candidate],
) -> tuple[Mapping[ListenerKey, Collection[RouteKey]], frozenset[RouteKey]]:
    """Return the routes of each listener that are accepted, and those that are too many in their namespaces."""
    listeners = {
        key: {listener for each in candidate.attachments for listener in each.listeners}
        for key, candidate in routes.items()
    }
    accepted = [key for key, found in listeners.items() if found]
    surplus: set[RouteKey] = set()
    for namespace, count in Counter(key.namespace for key in accepted).items():
        if count > ROUTES_MAX:
            own = sorted((_age(key, routes), key) for key in accepted if key.namespace == namespace)
            surplus.update(key for _, key in own[ROUTES_MAX:])
    attached: dict[ListenerKey, list[RouteKey]] = {}
    for key in accepted:
        if key not in surplus:
            for listener in listeners[key]:
                attached.setdefault(listener, []).append(key)
    return attached, frozenset(surplus)


def _age(key: RouteKey, routes: Mapping[RouteKey, Candidate]) -> tuple[float, str, str]:
    """Return what the route is served by: of the routes of a listener, the lowest serves."""
    return rank(routes[key].route.metadata), key.namespace, key.name


def _sets(subject: Subject, facts: Facts) -> dict[ObjectKey, GatewayStatus]:
    statuses: dict[ObjectKey, GatewayStatus] = {}
    for key, each in subject.sets.items():
        generation = each.metadata.generation
        if (found := subject.sections.of_sets.get(key)) is not None:
            statuses[key] = set_status(found, facts, generation)
        else:
            message = (
                f"the Gateway does not admit ListenerSets of the namespace {key.namespace} (spec.allowedListeners)"
            )
            statuses[key] = refused_set(Problem("NotAllowed", message), generation)
    return statuses


def _parent(key: RouteKey, attachment: Attachment, candidate: Candidate, view: _View) -> ParentStatus:
    if key in view.surplus:
        message = f"the Gateway accepts {ROUTES_MAX} routes of a namespace, and has as many older ones"
        attachment = replace(attachment, listeners=(), problem=Problem("TooManyRoutes", message))
    note = ""
    if attachment.problem is None:
        serves = [each.name for each in attachment.listeners if view.serving.get(each) == key]
        waits = [each.name for each in attachment.listeners if view.serving.get(each, key) != key]
        invalid = [each.name for each in attachment.listeners if each not in view.usable]
        note = "; ".join(
            f"{what}: {some_of(found)}"
            for what, found in (
                ("serves the listeners", serves),
                ("an older route serves the listeners", waits),
                ("not valid, and not served: the listeners", invalid),
            )
            if found
        )
        if not view.accepted:
            note = "attached, but the Gateway is not accepted, and nothing is served"
    return parent_status(candidate.route, attachment, candidate.backends, note)
