"""Farms by the Services that they were made from or refer to, and the policies that they refer to. No I/O."""

from collections import Counter
from collections.abc import Collection, KeysView, Set

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
        self._referring: Multimap[ServiceKey, FarmKey] = Multimap()
        self._listing: Multimap[ServiceKey, FarmKey] = Multimap()
        self._balanced: Multimap[str, FarmKey] = Multimap()
        self._inside: Multimap[str, FarmKey] = Multimap()
        self._farms_of: Multimap[ServiceKey, FarmKey] = Multimap()

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
                    (self._referring.add if join else self._referring.discard)(service, key)
            for ip in record.balanced if record is not None else ():
                (self._balanced.add if join else self._balanced.discard)(ip, key)
            for ip in record.cluster_ips if record is not None else ():
                (self._inside.add if join else self._inside.discard)(ip, key)
            if (maker := made_from(record)) is not None:
                (self._farms_of.add if join else self._farms_of.discard)(maker, key)
                if record is not None and record.reference is not None and record.reference.gated_ips:
                    (self._listing.add if join else self._listing.discard)(maker, key)

    def made_from(self, service: ServiceKey) -> Set[FarmKey]:
        """Return the farms that the operator made from a Service, which may not exist anymore."""
        return self._farms_of.get(service)

    def services(self) -> KeysView[ServiceKey]:
        """Return the Services with farms."""
        return self._farms_of.keys()

    def referring(self, service: ServiceKey) -> Set[FarmKey]:
        """Return the farms that refer to the endpoints of a Service."""
        return self._referring.get(service)

    def with_address(self, ip: str) -> Set[FarmKey]:
        """Return the farms that have a load balancer address."""
        return self._balanced.get(ip)

    def with_cluster_ip(self, ip: str) -> Set[FarmKey]:
        """Return the farms of routes that have a cluster IP."""
        return self._inside.get(ip)

    def has_cluster_ips(self) -> bool:
        """Return True if farms of routes have cluster IPs."""
        return bool(self._inside.keys())

    def listing(self) -> Collection[ServiceKey]:
        """Return the Services with farms that list IPs of gated Pods."""
        return self._listing.keys()


def policies_of(farm: FarmRecord | None) -> list[PolicyKey]:
    """Return the policies that a farm refers to."""
    return [PolicyKey(farm.key.namespace, name) for name in farm.policies] if farm is not None else []


def made_from(farm: FarmRecord | None) -> ServiceKey | None:
    """Return the Service that the operator made a farm from; None if it was written by hand, or does not exist."""
    return ServiceKey(farm.port.namespace, farm.port.service) if farm is not None and farm.port is not None else None
