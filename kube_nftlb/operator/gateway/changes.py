"""What of the objects is new, and what that makes out of date."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

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
class Affected:
    """What changes make out of date."""

    gateways: set[ObjectKey] = field(default_factory=set)
    subjects: set[ObjectKey] = field(default_factory=set)
    """Those of them of which more is new than their addresses, ListenerSets and the states of their farms."""
    sets: dict[ObjectKey, set[ObjectKey]] = field(default_factory=dict)
    """The ListenerSets of these Gateways that are new, or are theirs no more."""
    routes: dict[ObjectKey, set[RouteKey]] = field(default_factory=dict)
    """The routes of these Gateways that are to be judged again."""
    statuses: set[RouteKey] = field(default_factory=set)
    """Routes whose status is to be told again."""

    def add_subjects(self, keys: Iterable[ObjectKey]) -> None:
        """Have Gateways decided about of which anything may be new."""
        for key in keys:
            self.subjects.add(key)
            self.gateways.add(key)

    def add_route(self, key: RouteKey, gateways: Iterable[ObjectKey]) -> None:
        """Have a route judged again by these Gateways."""
        for gateway in gateways:
            self.routes.setdefault(gateway, set()).add(key)
            self.gateways.add(gateway)

    def add_sets(self, keys: Iterable[ObjectKey], gateway: ObjectKey) -> None:
        """Have a Gateway look at ListenerSets."""
        self.sets.setdefault(gateway, set()).update(keys)
        self.gateways.add(gateway)
