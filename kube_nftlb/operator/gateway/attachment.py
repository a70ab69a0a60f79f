"""To which listeners of a Gateway a route is attached, by its parentRefs, and by what the listeners admit."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from kube_nftlb import names
from kube_nftlb.api.gateway.route import Route, RouteKindName
from kube_nftlb.api.gateway.selectors import AdmittedNamespaces
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem, Section, Sections
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey

ParentKind = Literal["Gateway", "ListenerSet"]


class ParentKey(NamedTuple):
    """What a parentRef refers to."""

    kind: ParentKind
    key: ObjectKey


class Reference(NamedTuple):
    """The listeners that a parentRef names."""

    parent: ParentKey
    name: str = ""
    """Empty: whatever their names are."""
    port: int = 0
    """0: whatever their ports are."""


class Entrance(NamedTuple):
    """What of a listener decides which routes are attached to it."""

    key: ListenerKey
    namespace: str
    kinds: tuple[RouteKindName, ...]
    namespaces: AdmittedNamespaces

    def admits(self, key: RouteKey, labels: Mapping[str, str] | None) -> bool:
        """Return True if it admits a route from a namespace with these labels, None if they are unknown."""
        return key.kind in self.kinds and self.namespaces.admits(self.namespace, key.namespace, labels, "Same")


Entrances = Mapping[ParentKey, Mapping[tuple[str, int], tuple[Entrance, ...]]]
"""The listeners of a Gateway and of its ListenerSets, by the names and ports of the references that name some."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """What becomes of one parentRef."""

    index: int
    """Its position in spec.parentRefs."""
    listeners: tuple[ListenerKey, ...]
    problem: Problem | None
    """Why it has none."""


def references(route: Route) -> Iterator[tuple[int, Reference]]:
    """Yield the parentRefs of a route that may be ours, with their positions."""
    for index, each in enumerate(route.spec.parent_refs):
        if each.group == names.GATEWAY_API and each.kind in ("Gateway", "ListenerSet"):
            parent = ObjectKey(each.namespace or route.metadata.namespace, each.name)
            kind = cast("ParentKind", each.kind)
            yield index, Reference(ParentKey(kind, parent), each.section_name or "", each.port or 0)


def entrances(gateway: ObjectKey, found: Sections) -> Entrances:
    """Return the listeners of a Gateway by the references that name them."""
    of_sets = {ParentKey("ListenerSet", key): sections for key, sections in found.of_sets.items()}
    return {key: _named(sections) for key, sections in {ParentKey("Gateway", gateway): found.own, **of_sets}.items()}


def _named(sections: Sequence[Section]) -> dict[tuple[str, int], tuple[Entrance, ...]]:
    every = [Entrance(each.key, each.namespace, each.kinds, each.namespaces) for each in sections]
    found: dict[tuple[str, int], list[Entrance]] = {("", 0): every}
    for each, entrance in zip(sections, every, strict=True):
        for named in ((each.key.name, 0), (each.key.name, each.port), ("", each.port)):
            found.setdefault(named, []).append(entrance)
    return {named: tuple(entrances) for named, entrances in found.items()}


def attach(
    found: Entrances,
    sets: Set[ObjectKey],
    key: RouteKey,
    route: Route,
    labels: Mapping[str, str] | None,
    refused: Problem | None = None,
) -> Iterator[Attachment]:
    """Yield what becomes of those parentRefs of a route that are of a Gateway with these listeners.

    ``sets`` are the ListenerSets that refer to it, admitted or not. ``labels`` are those of the route's namespace, None
    if it is unknown. ``refused`` is why the route is attached to none of them.
    """
    for index, reference in references(route):
        parent = reference.parent
        if (of_parent := found.get(parent)) is None:
            if parent.kind != "ListenerSet" or parent.key not in sets:
                continue
            message = "its Gateway does not accept the ListenerSet; see the conditions of that"
            yield Attachment(index, (), refused or Problem("NoMatchingParent", message))
        elif refused is not None:
            yield Attachment(index, (), refused)
        else:
            candidates = of_parent.get((reference.name, reference.port), ())
            listeners = tuple(each.key for each in candidates if each.admits(key, labels))
            yield Attachment(index, listeners, None if listeners else _problem(reference, candidates, key))


def _problem(reference: Reference, candidates: Sequence[Entrance], key: RouteKey) -> Problem:
    """Return why none of the listeners that a parentRef names admits a route."""
    if not candidates:
        wanted = [f"the name {reference.name}"] if reference.name else []
        wanted += [f"the port {reference.port}"] if reference.port else []
        lacks = f"listener with {' and '.join(wanted)}" if wanted else "listeners"
        return Problem("NoMatchingParent", f"the {reference.parent.kind} has no {lacks}")
    if not any(key.kind in each.kinds for each in candidates):
        message = f"no listener admits routes of kind {key.kind} (protocol, allowedRoutes.kinds)"
    else:
        message = f"no listener admits routes of the namespace {key.namespace} (allowedRoutes.namespaces)"
    return Problem("NotAllowedByListeners", message)
