"""Routes as Gateways see them: to which listeners they are attached, and where their connections go."""

from collections.abc import Iterator, Mapping, Set

from kube_nftlb.operator.gateway.attached import AttachedRoutes, Candidate
from kube_nftlb.operator.gateway.attachment import attach
from kube_nftlb.operator.gateway.backends import Backends, resolve
from kube_nftlb.operator.gateway.changes import Changes, Outdated
from kube_nftlb.operator.gateway.grants import Grants
from kube_nftlb.operator.gateway.index import References
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey, RouteKey
from kube_nftlb.operator.gateway.record import Subject


class Routes:
    """Keeps the backends of routes, and attaches routes to Gateways."""

    def __init__(self, objects: GatewayObjects, references: References) -> None:
        self._objects = objects
        self._references = references
        self._grants = Grants()
        self._backends: dict[RouteKey, Backends] = {}

    def outdated(self, changes: Changes) -> set[RouteKey]:
        """Return the routes that have changed, or whose backends may be others since."""
        grants = self._objects.grants
        permissions = {each for key in changes.grants for each in self._grants.put(key, grants.get(key))}
        to_services = (self._references.routes_to.get(ObjectKey(*service)) for service in changes.services)
        return set(changes.routes).union(self._references.routes_with(permissions), *to_services)

    def resolve(self, key: RouteKey, *, ours: bool = True) -> bool:
        """Resolve the backends of a route anew. Return True if they have changed.

        Those of a route that no Gateway of ours looks at, or not yet, are resolved when one does.
        """
        before = self._backends.pop(key, None)
        if not ours or (route := self._objects.routes.get(key)) is None:
            return ours
        self._backends[key] = resolve(key, route, self._objects.services, self._grants)
        return self._backends[key] != before

    def attach(
        self, subject: Subject, attached: AttachedRoutes, outdated: Outdated, named: Set[RouteKey]
    ) -> Iterator[None]:
        """Attach the routes of a Gateway anew that are out of date, in steps. Add those whose statuses are.

        Of ``named`` nothing is new but listeners that they name: if they are too many, nothing else is said of them.
        """
        routes = set(outdated.routes)
        for key in outdated.routes | named:
            routes |= attached.rank(key, self._created_s(subject, key))
            yield
        routes.update(key for key in named if attached.refused(key) is None)
        for key in routes:
            outdated.statuses |= attached.put(key, self._candidate(subject, attached, key))
            yield

    def _created_s(self, subject: Subject, key: RouteKey) -> float | None:
        """Return when a route was created, None if it is gone, or if no listener of a Gateway admits it."""
        if (route := self._objects.routes.get(key)) is None:
            return None
        found = attach(subject.entrances, frozenset(), key, route, self._labels(key))
        return route.metadata.created_s if any(each.listeners for each in found) else None

    def _candidate(self, subject: Subject, attached: AttachedRoutes, key: RouteKey) -> Candidate | None:
        """Return a route as a Gateway sees it; None if it refers to it no more."""
        if (route := self._objects.routes.get(key)) is None:
            return None
        sets, refused = self._references.sets_of.get(subject.key), attached.refused(key)
        found = tuple(attach(subject.entrances, sets, key, route, self._labels(key), refused))
        if not found:
            return None
        if key not in self._backends:
            self.resolve(key)
        return Candidate(route, found, self._backends[key])

    def _labels(self, key: RouteKey) -> Mapping[str, str] | None:
        return self._objects.namespaces.get(key.namespace)
