"""The routes that are attached to the listeners of a Gateway: of each listener the oldest one serves."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.gateway.route import Route
from kube_nftlb.operator.gateway.attachment import Attachment
from kube_nftlb.operator.gateway.backends import Backends
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem
from kube_nftlb.operator.gateway.objects import RouteKey

ROUTES_MAX: Final = 256
"""The number of routes of a namespace that a Gateway accepts; older ones come first."""


class Candidate(NamedTuple):
    """A route that refers to a Gateway, or to one of its ListenerSets."""

    route: Route
    attachments: tuple[Attachment, ...]
    backends: Backends


class _Place(NamedTuple):
    """Of the routes of a listener, the lowest serves."""

    age: float
    name: str
    """As Gateway API orders routes of the same age: ``{namespace}/{name}``."""
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

    def rank(self, key: RouteKey, created_s: float | None) -> set[RouteKey]:
        """Rank a route among those of its namespace; None: it is gone, or no listener admits it, so it does not count.

        Return the routes that are too many since, or no more.
        """
        return self._budget.remove(key) if created_s is None else self._budget.put(key, (False, created_s))

    def refused(self, key: RouteKey) -> Problem | None:
        """Return why a route is attached to no listener, if its namespace has too many older ones."""
        if not self._budget.refuses(key):
            return None
        message = f"the Gateway accepts {ROUTES_MAX} routes of a namespace, and has as many older ones"
        return Problem("TooManyRoutes", message)

    def serving(self, listener: ListenerKey) -> RouteKey | None:
        """Return the route that serves a listener."""
        places = self._routes.get(listener)
        return places[0].key if places else None

    def at(self, listener: ListenerKey) -> Iterator[RouteKey]:
        """Yield the routes attached to a listener."""
        return (place.key for place in self._routes.get(listener, ()))

    def count(self, listener: ListenerKey) -> int:
        """Return the number of routes attached to a listener."""
        return len(self._routes.get(listener, ()))

    def put(self, key: RouteKey, candidate: Candidate | None) -> set[RouteKey]:
        """Add, replace or (None) remove a route. Return the routes about which something changed."""
        before = self._candidates.pop(key, None)
        if candidate is not None:
            self._candidates[key] = candidate
        if before == candidate:
            return set()
        changed = {key}
        had, has = _places(key, before), _places(key, candidate)
        for listener in had.keys() | has.keys():
            if had.get(listener) != has.get(listener):
                first = self.serving(listener)
                self._move(listener, had.get(listener), has.get(listener))
                if (now := self.serving(listener)) != first:
                    changed.update(each for each in (first, now) if each is not None)
        return changed

    def _move(self, listener: ListenerKey, before: _Place | None, after: _Place | None) -> None:
        places = self._routes.setdefault(listener, [])
        if before is not None:
            del places[bisect_left(places, before)]
        if after is not None:
            insort(places, after)
        if not places:
            del self._routes[listener]


def _places(key: RouteKey, candidate: Candidate | None) -> dict[ListenerKey, _Place]:
    if candidate is None:
        return {}
    place = _Place(candidate.route.metadata.created_s, f"{key.namespace}/{key.name}", key)
    return dict.fromkeys((listener for each in candidate.attachments for listener in each.listeners), place)
