"""Farms by the Services that they were made from or refer to, and the policies that they refer to. No I/O."""

from collections import Counter

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.backends import services
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.farm_record import FarmRecord


class FarmIndex:
    """Finds farms without a scan of all."""

    def __init__(self) -> None:
        self.references: Counter[PolicyKey] = Counter()
        """The number of farms that refer to each policy."""
        self.made_from: Multimap[ServiceKey, FarmKey] = Multimap()
        """The farms that the operator made from each Service, which may not exist anymore."""
        self.referring: Multimap[ServiceKey, FarmKey] = Multimap()
        """The farms that refer to the endpoints of each Service."""
        self.routed: Multimap[ServiceKey, FarmKey] = Multimap()
        """Those of them that are of routes."""
        self.listing: Multimap[ServiceKey, FarmKey] = Multimap()
        """The farms of each Service, and of routes to it, that list IPs of its gated Pods."""
        self.balanced: Multimap[str, FarmKey] = Multimap()
        """The farms that have each load balancer address."""
        self.inside: Multimap[str, FarmKey] = Multimap()
        """The farms of routes that have each cluster IP."""

    def move(self, key: FarmKey, before: FarmRecord | None, after: FarmRecord | None) -> None:
        """Replace a farm by its new state; None is one that does not exist."""
        self.references.update(policies_of(after))
        for policy in policies_of(before):
            self.references[policy] -= 1
            if not self.references[policy]:
                del self.references[policy]
        for record, join in ((before, False), (after, True)):
            if record is not None:
                self._set(key, record, present=join)

    def _set(self, key: FarmKey, farm: FarmRecord, *, present: bool) -> None:
        for service in farm.reference.services if farm.reference is not None else ():
            self.referring.set(service, key, present=present)
            if farm.made_of_route:
                self.routed.set(service, key, present=present)
        for ip in farm.balanced:
            self.balanced.set(ip, key, present=present)
        for ip in farm.cluster_ips:
            self.inside.set(ip, key, present=present)
        if (maker := made_from(farm)) is not None:
            self.made_from.set(maker, key, present=present)
        for service in _listed(farm):
            self.listing.set(service, key, present=present)

    def has_cluster_ips(self) -> bool:
        """Return True if farms of routes have cluster IPs."""
        return bool(self.inside.keys())


def policies_of(farm: FarmRecord | None) -> list[PolicyKey]:
    """Return the policies that a farm refers to."""
    return [PolicyKey(farm.key.namespace, name) for name in farm.policies] if farm is not None else []


def made_from(farm: FarmRecord | None) -> ServiceKey | None:
    """Return the Service that the operator made a farm from; None if it was written by hand, or does not exist."""
    return ServiceKey(farm.port.namespace, farm.port.service) if farm is not None and farm.port is not None else None


def _listed(farm: FarmRecord) -> tuple[ServiceKey, ...]:
    """Return the Services of whose gated Pods the operator has a farm list IPs."""
    if farm.reference is None or not farm.reference.gated_ips:
        return ()
    if farm.made_of_route:
        return services((each for each in farm.reference.groups if each.gated_ips), farm.key.namespace)
    maker = made_from(farm)
    return (maker,) if maker is not None else ()
