"""What ReferenceGrants permit, so that a reference is one look-up however many grants there are."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.api.gateway import GROUP
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
        self._of: dict[ObjectKey, frozenset[Permission]] = {}
        self._granted: Counter[Permission] = Counter()
        """How many grants give a permission."""

    def put(self, key: ObjectKey, grant: ReferenceGrant | None) -> set[Permission]:
        """Add, replace or (None) remove a grant. Return the permissions that are there since, or no more."""
        before, after = self._of.pop(key, frozenset()), frozenset(_permissions(key, grant))
        if after:
            self._of[key] = after
        changed: set[Permission] = set()
        for each in before - after:
            self._granted[each] -= 1
            if not self._granted[each]:
                del self._granted[each]
                changed.add(each)
        for each in after - before:
            self._granted[each] += 1
            if self._granted[each] == 1:
                changed.add(each)
        return changed

    def permit(self, namespace: str, service: str, kind: str, source: str) -> bool:
        """Return True if routes of a kind in a namespace, ``source``, may refer to a Service of another namespace."""
        wanted = Permission(namespace, service, kind, source)
        return wanted in self._granted or wanted._replace(service=ALL) in self._granted


def _permissions(key: ObjectKey, grant: ReferenceGrant | None) -> Iterator[Permission]:
    if grant is None:
        return
    services = {each.name or ALL for each in grant.spec.targets if (each.group, each.kind) == ("", "Service")}
    for each in grant.spec.sources:
        if each.group == GROUP and each.kind in PROTOCOLS:
            for service in services:
                yield Permission(key.namespace, service, each.kind, each.namespace)
