"""Which objects refer to which."""

from collections.abc import Iterable, Iterator, Set
from typing import TypeVar

from kube_nftlb import names
from kube_nftlb.api.gateway.gateway import Gateway, ListenerSet
from kube_nftlb.api.gateway.route import Route
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.gateway.attachment import Entrances, ParentKey, Reference, references
from kube_nftlb.operator.gateway.backends import services_of
from kube_nftlb.operator.gateway.grants import ALL, Permission
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey

_V = TypeVar("_V")


class References:
    """Follows the references of Gateways, ListenerSets and routes, whether or not there is what they refer to."""

    def __init__(self) -> None:
        self._references: dict[RouteKey, frozenset[Reference]] = {}
        self._routes_naming: Multimap[Reference, RouteKey] = Multimap()
        self._routes_of: Multimap[ParentKey, RouteKey] = Multimap()
        self._services: dict[RouteKey, frozenset[ObjectKey]] = {}
        self._routes_into: Multimap[str, RouteKey] = Multimap()
        self._class_of: dict[ObjectKey, str] = {}
        self.routes_to: Multimap[ObjectKey, RouteKey] = Multimap()
        """The routes that refer to each Service."""
        self.routes_in: Multimap[str, RouteKey] = Multimap()
        """The routes of each namespace."""
        self.gateway_of: dict[ObjectKey, ObjectKey] = {}
        """The Gateway that each ListenerSet refers to."""
        self.sets_in: Multimap[str, ObjectKey] = Multimap()
        """The ListenerSets of each namespace."""
        self.sets_of: Multimap[ObjectKey, ObjectKey] = Multimap()
        """The ListenerSets that refer to each Gateway."""
        self.of_class: Multimap[str, ObjectKey] = Multimap()
        """The Gateways of each class."""

    def put_gateway(self, key: ObjectKey, gateway: Gateway | None) -> None:
        """Add, replace or (None) remove a Gateway."""
        _put(self._class_of, self.of_class, key, gateway.spec.gateway_class_name if gateway is not None else None)

    def put_set(self, key: ObjectKey, listener_set: ListenerSet | None) -> None:
        """Add, replace or (None) remove a ListenerSet."""
        _put(self.gateway_of, self.sets_of, key, _gateway(listener_set) if listener_set is not None else None)
        self.sets_in.set(key.namespace, key, present=listener_set is not None)

    def put_route(self, key: RouteKey, route: Route | None) -> None:
        """Add, replace or (None) remove a route."""
        for reference in self._references.pop(key, ()):
            self._routes_naming.discard(reference, key)
            self._routes_of.discard(reference.parent, key)
        for service in self._services.pop(key, ()):
            self.routes_to.discard(service, key)
            self._routes_into.discard(service.namespace, key)
        if route is None:
            self.routes_in.discard(key.namespace, key)
            return
        self.routes_in.add(key.namespace, key)
        self._references[key] = frozenset(reference for _, reference in references(route))
        self._services[key] = frozenset(services_of(route))
        for reference in self._references[key]:
            self._routes_naming.add(reference, key)
            self._routes_of.add(reference.parent, key)
        for service in self._services[key]:
            self.routes_to.add(service, key)
            if service.namespace != key.namespace:
                self._routes_into.add(service.namespace, key)

    def gateways(self, route: RouteKey) -> set[ObjectKey]:
        """Return the Gateways that a route refers to, itself or by a ListenerSet."""
        found = (
            parent.key if parent.kind == "Gateway" else self.gateway_of.get(parent.key)
            for parent, *_ in self._references.get(route, ())
        )
        return {gateway for gateway in found if gateway is not None}

    def routes(self, gateway: ObjectKey) -> Iterator[RouteKey]:
        """Yield the routes that refer to a Gateway, or to one of its ListenerSets; some of them several times."""
        yield from self._routes_of.get(ParentKey("Gateway", gateway))
        for each in self.sets_of.get(gateway):
            yield from self.routes_of_set(each)

    def routes_of_set(self, listener_set: ObjectKey) -> Set[RouteKey]:
        """Return the routes that refer to a ListenerSet."""
        return self._routes_of.get(ParentKey("ListenerSet", listener_set))

    def routes_between(self, before: Entrances, after: Entrances) -> Iterator[RouteKey]:
        """Yield the routes that name listeners of a Gateway that differ; some of them several times."""
        for parent in before.keys() | after.keys():
            had, has = before.get(parent), after.get(parent)
            if had is None or has is None:
                yield from self._routes_of.get(parent)
            elif had != has:
                for named in had.keys() | has.keys():
                    if had.get(named) != has.get(named):
                        yield from self._routes_naming.get(Reference(parent, *named))

    def routes_with(self, permissions: Iterable[Permission]) -> set[RouteKey]:
        """Return the routes whose references need one of these permissions."""
        sources: dict[ObjectKey, set[tuple[str, str]]] = {}
        for each in permissions:
            sources.setdefault(ObjectKey(each.namespace, each.service), set()).add((each.kind, each.source))
        found: set[RouteKey] = set()
        for service, of in sources.items():
            routes = self.routes_to.get(service) if service.name != ALL else self._routes_into.get(service.namespace)
            found.update(route for route in routes if (route.kind, route.namespace) in of)
        return found


def _put(index: dict[ObjectKey, _V], reverse: "Multimap[_V, ObjectKey]", key: ObjectKey, value: _V | None) -> None:
    """Replace the value of a key, None for no value, in an index and its reverse."""
    if (before := index.pop(key, None)) is not None:
        reverse.discard(before, key)
    if value is not None:
        index[key] = value
        reverse.add(value, key)


def _gateway(listener_set: ListenerSet) -> ObjectKey | None:
    parent = listener_set.spec.parent_ref
    if (parent.group or names.GATEWAY_API, parent.kind or "Gateway") != (names.GATEWAY_API, "Gateway"):
        return None
    return ObjectKey(parent.namespace or listener_set.metadata.namespace, parent.name)
