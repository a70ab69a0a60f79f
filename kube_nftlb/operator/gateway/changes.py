"""What of the objects is new, and what that makes out of date."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from operator import attrgetter

from kube_nftlb.kube.fair_queue import FairQueue
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey, RouteKey


@dataclass(frozen=True, slots=True)
class Changes:
    """What of ``GatewayObjects`` was added, replaced or removed."""

    classes: Set[str] = frozenset()
    gateways: Set[ObjectKey] = frozenset()
    listener_sets: Set[ObjectKey] = frozenset()
    routes: Set[RouteKey] = frozenset()
    grants: Set[ObjectKey] = frozenset()
    namespaces: Set[str] = frozenset()
    services: Set[tuple[str, str]] = frozenset()
    addresses: Set[ObjectKey] = frozenset()
    farms: Set[ObjectKey] = frozenset()


def everything(objects: GatewayObjects) -> Changes:
    """Return the changes that lead from nothing to these objects."""
    return Changes(
        classes=frozenset(objects.classes),
        gateways=frozenset(objects.gateways),
        listener_sets=frozenset(objects.listener_sets),
        routes=frozenset(objects.routes),
        grants=frozenset(objects.grants),
    )


@dataclass(slots=True)
class Outdated:
    """What of a Gateway is out of date."""

    whole: bool = False
    """More is new than its addresses, ListenerSets and the states of its farms."""
    sets: set[ObjectKey] = field(default_factory=set)
    """The ListenerSets that are new, or are its no more."""
    routes: set[RouteKey] = field(default_factory=set)
    """The routes that are to be judged again."""
    statuses: set[RouteKey] = field(default_factory=set)
    """Those whose status is to be told again, once it is decided about."""


class Affected:
    """The Gateways that are to be decided about again. Namespaces take turns."""

    def __init__(self) -> None:
        self._queue: FairQueue[ObjectKey] = FairQueue(group=attrgetter("namespace"))
        self._outdated: dict[ObjectKey, Outdated] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._queue

    def next(self) -> ObjectKey | None:
        """Return the Gateway whose turn it is, None if none waits."""
        return next(iter(self._queue.take(1)), None)

    def take(self, key: ObjectKey) -> Outdated:
        """Return what of a Gateway is out of date, which is not from now on."""
        return self._outdated.pop(key, Outdated())

    def add(self, key: ObjectKey) -> Outdated:
        """Have a Gateway decided about. Return what of it is out of date, for more to be added."""
        self._queue.add(key)
        return self._outdated.setdefault(key, Outdated())

    def add_route(self, key: RouteKey, gateways: Iterable[ObjectKey]) -> None:
        """Have a route judged again by these Gateways."""
        for gateway in gateways:
            self.add(gateway).routes.add(key)
