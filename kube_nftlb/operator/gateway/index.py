"""Which objects refer to which."""

from collections.abc import Iterable, Iterator, Set
from typing import TypeVar

from kube_nftlb import names
from kube_nftlb.api.gateway.gateway import Gateway, ListenerSet
from kube_nftlb.api.gateway.route import Route
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.gateway.attachment import ParentKey, parents
from kube_nftlb.operator.gateway.backends import services_of
from kube_nftlb.operator.gateway.grants import ALL, Permission
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey

_V = TypeVar("_V")


class References:
    """Follows the references of Gateways, ListenerSets and routes, whether or not there is what they refer to."""

    def __init__(self) -> None:
        self._parents: dict[RouteKey, frozenset[ParentKey]] = {}
        self._routes_of: Multimap[ParentKey, RouteKey] = Multimap()
        self._services: dict[RouteKey, frozenset[ObjectKey]] = {}
        self._routes_to: Multimap[ObjectKey, RouteKey] = Multimap()
        self._routes_into: Multimap[str, RouteKey] = Multimap()
        self._routes_in: Multimap[str, RouteKey] = Multimap()
        self._gateway_of: dict[ObjectKey, ObjectKey] = {}
        self._sets_in: Multimap[str, ObjectKey] = Multimap()
        self._sets_of: Multimap[ObjectKey, ObjectKey] = Multimap()
        self._class_of: dict[ObjectKey, str] = {}
        self._of_class: Multimap[str, ObjectKey] = Multimap()

    def put_gateway(self, key: ObjectKey, gateway: Gateway | None) -> None:
        """Add, replace or (None) remove a Gateway."""
        _put(self._class_of, self._of_class, key, gateway.spec.gateway_class_name if gateway is not None else None)

    def put_set(self, key: ObjectKey, listener_set: ListenerSet | None) -> None:
        """Add, replace or (None) remove a ListenerSet."""
        _put(self._gateway_of, self._sets_of, key, _gateway(listener_set) if listener_set is not None else None)
        (self._sets_in.add if listener_set is not None else self._sets_in.discard)(key.namespace, key)

    def put_route(self, key: RouteKey, route: Route | None) -> None:
        """Add, replace or (None) remove a route."""
        for parent in self._parents.pop(key, ()):
            self._routes_of.discard(parent, key)
        for service in self._services.pop(key, ()):
            self._routes_to.discard(service, key)
            self._routes_into.discard(service.namespace, key)
        if route is None:
            self._routes_in.discard(key.namespace, key)
            return
        self._routes_in.add(key.namespace, key)
        self._parents[key] = frozenset(parent for _, parent in parents(route))
        self._services[key] = frozenset(services_of(route))
        for parent in self._parents[key]:
            self._routes_of.add(parent, key)
        for service in self._services[key]:
            self._routes_to.add(service, key)
            if service.namespace != key.namespace:
                self._routes_into.add(service.namespace, key)

    def of_class(self, name: str) -> Set[ObjectKey]:
        """Return the Gateways of a class."""
        return self._of_class.get(name)

    def gateway_of(self, listener_set: ObjectKey) -> ObjectKey | None:
        """Return the Gateway that a ListenerSet refers to."""
        return self._gateway_of.get(listener_set)

    def sets_of(self, gateway: ObjectKey) -> Set[ObjectKey]:
        """Return the ListenerSets that refer to a Gateway."""
        return self._sets_of.get(gateway)

    def gateways(self, route: RouteKey) -> set[ObjectKey]:
        """Return the Gateways that a route refers to, itself or by a ListenerSet."""
        found = (
            parent.key if parent.kind == "Gateway" else self._gateway_of.get(parent.key)
            for parent in self._parents.get(route, ())
        )
        return {gateway for gateway in found if gateway is not None}

    def sets_in(self, namespace: str) -> Set[ObjectKey]:
        """Return the ListenerSets of a namespace."""
        return self._sets_in.get(namespace)

    def routes_in(self, namespace: str) -> Set[RouteKey]:
        """Return the routes of a namespace."""
        return self._routes_in.get(namespace)

    def routes(self, gateway: ObjectKey) -> Iterator[RouteKey]:
        """Yield the routes that refer to a Gateway, or to one of its ListenerSets; some of them several times."""
        yield from self._routes_of.get(ParentKey("Gateway", gateway))
        for each in self._sets_of.get(gateway):
            yield from self.routes_of_set(each)

    def routes_of_set(self, listener_set: ObjectKey) -> Set[RouteKey]:
        """Return the routes that refer to a ListenerSet."""
        return self._routes_of.get(ParentKey("ListenerSet", listener_set))

    def routes_to(self, service: ObjectKey) -> Set[RouteKey]:
        """Return the routes that refer to a Service."""
        return self._routes_to.get(service)

    def routes_with(self, permissions: Iterable[Permission]) -> set[RouteKey]:
        """Return the routes whose references need one of these permissions."""
        sources: dict[ObjectKey, set[tuple[str, str]]] = {}
        for each in permissions:
            sources.setdefault(ObjectKey(each.namespace, each.service), set()).add((each.kind, each.source))
        found: set[RouteKey] = set()
        for service, of in sources.items():
            routes = self._routes_to.get(service) if service.name != ALL else self._routes_into.get(service.namespace)
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
