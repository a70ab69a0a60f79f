"""What ReferenceGrants permit, so that a reference is one look-up however many grants there are."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.gateway.route import PROTOCOLS, ReferenceGrant
from kube_nftlb.operator.gateway.objects import ObjectKey

ALL: Final = ""
"""Stands for all Services of a namespace."""


class Permission(NamedTuple):
    """Routes of a kind and namespace may refer to a Service of another namespace, or to all of them."""

    namespace: str
    """The one of the Service, and of the grant."""
    service: str
    kind: str
    source: str
    """The namespace of the routes."""


class Grants:
    """All grants, one at a time."""

    def __init__(self) -> None:
        self._of: dict[ObjectKey, ReferenceGrant] = {}
        self._services: dict[tuple[str, str, str], Counter[str]] = {}
        """How many grants permit each Service, by the grants' namespace, the kind and the namespace of the routes."""

    def put(self, key: ObjectKey, grant: ReferenceGrant | None) -> set[Permission]:
        """Add, replace or (None) remove a grant. Return the permissions that are there since, or no more."""
        before, after = set(_permissions(key, self._of.pop(key, None))), set(_permissions(key, grant))
        if grant is not None:
            self._of[key] = grant
        gone = {each for each in before - after if self._count(each, -1) == 0}
        return gone | {each for each in after - before if self._count(each, 1) == 1}

    def permit(self, namespace: str, service: str, kind: str, source: str) -> bool:
        """Return True if routes of a kind in a namespace, ``source``, may refer to a Service of another namespace."""
        services = self._services.get((namespace, kind, source), ())
        return service in services or ALL in services

    def _count(self, permission: Permission, change: int) -> int:
        """Return how many grants give a permission, after this change of their number."""
        namespace, service, kind, source = permission
        services = self._services.setdefault((namespace, kind, source), Counter())
        services[service] += change
        if not (count := services[service]):
            del services[service]
        if not services:
            del self._services[namespace, kind, source]
        return count


def _permissions(key: ObjectKey, grant: ReferenceGrant | None) -> Iterator[Permission]:
    if grant is None:
        return
    services = {each.name or ALL for each in grant.spec.targets if (each.group, each.kind) == ("", "Service")}
    for each in grant.spec.sources:
        if each.group == names.GATEWAY_API and each.kind in PROTOCOLS:
            for service in services:
                yield Permission(key.namespace, service, each.kind, each.namespace)
