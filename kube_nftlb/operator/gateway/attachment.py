"""To which listeners of a Gateway a route is attached, by its parentRefs, and by what the listeners admit."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from kube_nftlb import names
from kube_nftlb.api.gateway.route import ParentReference, Route
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem, Section, Sections
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey

ParentKind = Literal["Gateway", "ListenerSet"]


class ParentKey(NamedTuple):
    """What a parentRef refers to."""

    kind: ParentKind
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class Attachment:
    """What becomes of one parentRef."""

    index: int
    """Its position in spec.parentRefs."""
    listeners: tuple[ListenerKey, ...]
    problem: Problem | None
    """Why it has none."""


def parents(route: Route) -> Iterator[tuple[int, ParentKey]]:
    """Yield the parents of a route that may be ours, with the positions of the references."""
    for index, each in enumerate(route.spec.parent_refs):
        if each.group == names.GATEWAY_API and each.kind in ("Gateway", "ListenerSet"):
            kind = cast("ParentKind", each.kind)
            yield index, ParentKey(kind, ObjectKey(each.namespace or route.metadata.namespace, each.name))


def attach(
    gateway: ObjectKey,
    sets: Set[ObjectKey],
    found: Sections,
    key: RouteKey,
    route: Route,
    labels: Mapping[str, str] | None,
) -> tuple[Attachment, ...]:
    """Return what becomes of those parentRefs of a route that are of a Gateway.

    ``sets`` are the ListenerSets that refer to it, admitted or not. ``labels`` are those of the route's namespace, None
    if it is unknown.
    """
    results: list[Attachment] = []
    for index, parent in parents(route):
        reference = route.spec.parent_refs[index]
        if parent == ("Gateway", gateway):
            results.append(_attach(index, reference, found.own, key, labels))
        elif parent.kind == "ListenerSet" and parent.key in found.of_sets:
            results.append(_attach(index, reference, found.of_sets[parent.key], key, labels))
        elif parent.kind == "ListenerSet" and parent.key in sets:
            message = "its Gateway does not accept the ListenerSet; see the conditions of that"
            results.append(Attachment(index, (), Problem("NoMatchingParent", message)))
    return tuple(results)


def _attach(
    index: int,
    reference: ParentReference,
    candidates: tuple[Section, ...],
    key: RouteKey,
    labels: Mapping[str, str] | None,
) -> Attachment:
    matching = [each for each in candidates if _matches(reference, each)]
    if not matching:
        wanted = [f"the name {reference.section_name}"] if reference.section_name else []
        wanted += [f"the port {reference.port}"] if reference.port else []
        lacks = f"listener with {' and '.join(wanted)}" if wanted else "listeners"
        message = f"the {reference.kind} has no {lacks}"
        return Attachment(index, (), Problem("NoMatchingParent", message))
    of_kind = [each for each in matching if key.kind in each.kinds]
    if not of_kind:
        message = f"no listener admits routes of kind {key.kind} (protocol, allowedRoutes.kinds)"
        return Attachment(index, (), Problem("NotAllowedByListeners", message))
    admitting = [each.key for each in of_kind if _admits(each, key, labels)]
    if not admitting:
        message = f"no listener admits routes of the namespace {key.namespace} (allowedRoutes.namespaces)"
        return Attachment(index, (), Problem("NotAllowedByListeners", message))
    return Attachment(index, tuple(admitting), None)


def _matches(reference: ParentReference, section: Section) -> bool:
    if reference.section_name and reference.section_name != section.key.name:
        return False
    return not reference.port or reference.port == section.port


def _admits(section: Section, key: RouteKey, labels: Mapping[str, str] | None) -> bool:
    return section.namespaces.admits(section.namespace, key.namespace, labels, "Same")
