"""The routes that are attached to the listeners of a Gateway: of each listener the oldest one serves."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.gateway.route import Route
from kube_nftlb.operator.gateway.attachment import Attachment
from kube_nftlb.operator.gateway.backends import Backends
from kube_nftlb.operator.gateway.listeners import ListenerKey
from kube_nftlb.operator.gateway.objects import RouteKey

ROUTES_MAX: Final = 256
"""The number of routes of a namespace that a Gateway accepts; older ones come first."""


class Candidate(NamedTuple):
    """A route that refers to a Gateway, or to one of its ListenerSets."""

    route: Route
    attachments: tuple[Attachment, ...]
    backends: Backends

    @property
    def listeners(self) -> frozenset[ListenerKey]:
        """The listeners that it is attached to."""
        return frozenset(listener for each in self.attachments for listener in each.listeners)


class _Place(NamedTuple):
    """Of the routes of a listener, the lowest serves."""

    age: float
    namespace: str
    name: str
    key: RouteKey


class AttachedRoutes:
    """Changes by one route at a time, at a cost that hardly depends on how many there are."""

    def __init__(self) -> None:
        self._budget: Budget[RouteKey] = Budget(ROUTES_MAX)
        self._candidates: dict[RouteKey, Candidate] = {}
        self._routes: dict[ListenerKey, list[_Place]] = {}

    def __iter__(self) -> Iterator[RouteKey]:
        """Iterate over all routes, attached or not."""
        return iter(self._candidates)

    def get(self, key: RouteKey) -> Candidate | None:
        """Return a route."""
        return self._candidates.get(key)

    def is_surplus(self, key: RouteKey) -> bool:
        """Return True if the namespace of a route has too many older ones."""
        return self._budget.refuses(key)

    def serving(self, listener: ListenerKey) -> RouteKey | None:
        """Return the route that serves a listener."""
        places = self._routes.get(listener)
        return places[0].key if places else None

    def count(self, listener: ListenerKey) -> int:
        """Return the number of routes attached to a listener."""
        return len(self._routes.get(listener, ()))

    def put(self, key: RouteKey, candidate: Candidate | None) -> set[RouteKey]:
        """Add, replace or (None) remove a route. Return the routes about which something changed; itself always."""
        before = self._candidates.pop(key, None)
        touched: dict[ListenerKey, RouteKey | None] = {}
        if before is not None and not self.is_surplus(key):
            self._detach(key, before, touched)
        if candidate is None:
            changed = self._budget.remove(key)
        else:
            self._candidates[key] = candidate
            listeners = candidate.listeners
            changed = (
                self._budget.put(key, (False, candidate.route.metadata.created_s))
                if listeners
                else self._budget.remove(key)
            )
            if listeners and not self.is_surplus(key):
                self._attach(key, candidate, touched)
        for other in changed - {key}:
            move = self._detach if self.is_surplus(other) else self._attach
            move(other, self._candidates[other], touched)
        for listener, first in touched.items():
            if (now := self.serving(listener)) != first:
                changed |= {each for each in (first, now) if each is not None}
        return changed | {key}

    def _attach(self, key: RouteKey, candidate: Candidate, touched: dict[ListenerKey, RouteKey | None]) -> None:
        for listener in candidate.listeners:
            touched.setdefault(listener, self.serving(listener))
            insort(self._routes.setdefault(listener, []), _place(key, candidate))

    def _detach(self, key: RouteKey, candidate: Candidate, touched: dict[ListenerKey, RouteKey | None]) -> None:
        for listener in candidate.listeners:
            touched.setdefault(listener, self.serving(listener))
            places = self._routes[listener]
            del places[bisect_left(places, _place(key, candidate))]
            if not places:
                del self._routes[listener]


def _place(key: RouteKey, candidate: Candidate) -> _Place:
    return _Place(candidate.route.metadata.created_s, key.namespace, key.name, key)
