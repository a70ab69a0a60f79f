"""Farms by the Services that they were made from or refer to, and the policies that they refer to. No I/O."""

from collections import Counter

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
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
        self.listing: Multimap[ServiceKey, FarmKey] = Multimap()
        """The farms made from each Service that list IPs of gated Pods."""
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
            if record is not None and record.reference is not None:
                for service in record.reference.services:
                    self.referring.set(service, key, present=join)
            for ip in record.balanced if record is not None else ():
                self.balanced.set(ip, key, present=join)
            for ip in record.cluster_ips if record is not None else ():
                self.inside.set(ip, key, present=join)
            if (maker := made_from(record)) is not None:
                self.made_from.set(maker, key, present=join)
                if record is not None and record.reference is not None and record.reference.gated_ips:
                    self.listing.set(maker, key, present=join)

    def has_cluster_ips(self) -> bool:
        """Return True if farms of routes have cluster IPs."""
        return bool(self.inside.keys())


def policies_of(farm: FarmRecord | None) -> list[PolicyKey]:
    """Return the policies that a farm refers to."""
    return [PolicyKey(farm.key.namespace, name) for name in farm.policies] if farm is not None else []


def made_from(farm: FarmRecord | None) -> ServiceKey | None:
    """Return the Service that the operator made a farm from; None if it was written by hand, or does not exist."""
    return ServiceKey(farm.port.namespace, farm.port.service) if farm is not None and farm.port is not None else None
