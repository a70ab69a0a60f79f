"""Change Services, and what decides about their farms: Pods, and addresses that are reserved. No I/O.

Each change returns what it makes out of date.
"""

from collections.abc import Iterable

from kube_nftlb.api.budgets import rank
from kube_nftlb.api.farm import OVERRIDES_MAX
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.index import SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.environment import IpNetwork
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_index import made_from
from kube_nftlb.operator.farms.ports import allocated_ips, port_keys
from kube_nftlb.operator.model.pods import PodKey, PodRecord
from kube_nftlb.operator.model.rejections import Rejection

_API_SERVER = ServiceKey("default", "kubernetes")


class ServiceChanges:
    """Makes changes to a cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def put(self, service: Service) -> Affected:
        """Add or replace a Service."""
        cache, key = self._cache, ServiceKey(service.metadata.namespace, service.metadata.name)
        before = cache.services.get(key)
        if not cache.services.put(key, service):
            return NOTHING
        had = self._addresses_of(key)
        sharing: set[ServiceKey] = set()
        if before is not None and before.metadata.uid != service.metadata.uid:
            # Nobody saw that it went: what was decided for it does not count for its successor.
            cache.refused_ips.pop(key, None)
            if cache.addresses is not None:
                sharing.update(cache.addresses.remove(key))
        ports = port_keys(service, cache.budgets.limits.service_ports)
        cache.service_index.move(key, before, service, ports)
        created = rank(of_service=True, created=service.metadata.creation_timestamp)
        budget = cache.budgets.services
        refitted = budget.put(key, created, len(ports)) if ports else budget.remove(key)
        if cache.addresses is not None:
            sharing.update(cache.addresses.put_service(key, service))
        asking = cache.service_index.asking_for(had ^ self._addresses_of(key)) | self._reserve(key, before, service)
        return Affected(services=frozenset({key, *refitted, *sharing}) | asking)

    def remove(self, key: ServiceKey, version: int) -> Affected:
        """Remove a Service."""
        cache = self._cache
        if (before := cache.services.remove(key, version)) is None:
            return NOTHING
        cache.service_index.move(key, before, None)
        cache.refused_ips.pop(key, None)
        cache.gates.note_ready(key, (), version)
        refitted = cache.budgets.services.remove(key) | cache.budgets.overrides.remove(key)
        asking = cache.service_index.asking_for(self._addresses_of(key)) | self._reserve(key, before, None)
        sharing = cache.addresses.remove(key) if cache.addresses is not None else ()
        return Affected(services=frozenset({key, *refitted, *sharing}) | asking)

    def refuse_ips(self, key: ServiceKey, refused: tuple[Rejection, ...]) -> Affected:
        """Note which external IPs a Service does not get, which the status of its farms says."""
        if refused == self._cache.refused_ips.get(key, ()):
            return NOTHING
        self._cache.refused_ips[key] = refused
        return Affected(farms=frozenset(farm.key for farm in self._cache.farms_of(key)))

    def count_overrides(self, key: ServiceKey, annotated_pods: int) -> Affected:
        """Count the annotated Pods of a Service, once for each of its farms. Return the others that this affects."""
        cache = self._cache
        service, budget = cache.services.get(key), cache.budgets.overrides
        farms = 0 if cache.budgets.services.refuses(key) else len(cache.service_index.ports(key))
        overrides = farms * min(annotated_pods, OVERRIDES_MAX)
        if service is None or not overrides:
            return Affected(services=frozenset(budget.remove(key)))
        created = rank(of_service=True, created=service.metadata.creation_timestamp)
        return Affected(services=frozenset(budget.put(key, created, overrides) - {key}))

    def count_overrides_in_force(self) -> None:
        """Count the overrides that farms of Services have: what others would add is judged beside them."""
        pods: dict[ServiceKey, int] = {}
        for farm in self._cache.farms.values():
            if (key := made_from(farm)) is not None and farm.reference is not None:
                pods[key] = max((pods.get(key, 0), *(len(each.overrides) for each in farm.reference.groups)))
        for key, number in pods.items():
            self.count_overrides(key, number)

    def keep_addresses(self, key: ServiceKey, service: Service) -> None:
        """Give nobody else the addresses that the status of a Service has which is not known otherwise."""
        if self._cache.addresses is not None and self._cache.services.get(key) is None:
            self._cache.addresses.keep_addresses(key, service)

    def put_pod(self, key: PodKey, pod: PodRecord) -> Affected:
        """Add or replace a Pod."""
        before = self._cache.pods.get(key)
        if not self._cache.pods.put(key, pod):
            return NOTHING
        self._cache.pods_in.add(key.namespace, key)
        if before is not None and (before.given, before.labels) == (pod.given, pod.labels):
            return NOTHING
        return self._affected_by_pod(key, before, pod)

    def remove_pod(self, key: PodKey, version: int) -> Affected:
        """Remove a Pod, or one that lost its annotations."""
        # Most Pods never had annotations: their deletions are not remembered.
        if self._cache.pods.get(key) is None or (before := self._cache.pods.remove(key, version)) is None:
            return NOTHING
        self._cache.pods_in.discard(key.namespace, key)
        return self._affected_by_pod(key, before)

    def put_service_cidrs(self, name: str, version: int, cidrs: tuple[IpNetwork, ...], *, assignable: bool) -> Affected:
        """Add or replace a ServiceCIDR. See ``Reserved``."""
        cache = self._cache
        changed = cache.service_cidrs.put(name, version) and cache.reserved.put_service_cidrs(
            name, cidrs, assignable=assignable
        )
        return self.with_external_ips() if changed else NOTHING

    def remove_service_cidrs(self, name: str, version: int) -> Affected:
        """Remove a ServiceCIDR."""
        cache = self._cache
        gone = cache.service_cidrs.remove(name, version) is not None and cache.reserved.put_service_cidrs(name, ())
        return self.with_external_ips() if gone else NOTHING

    def put_api_host(self, host: str, ips: Iterable[str]) -> Affected:
        """Replace the addresses of the API server by a name, or by another source that is no EndpointSlice."""
        # No EndpointSlice has a name like this.
        return self._put_api_endpoints(f"host {host}", ips)

    def put_api_slice(self, key: SliceKey, new: Slice | None) -> Affected:
        """Replace the addresses of the API server in an EndpointSlice, which has none unless it is of its Service."""
        namespace, name = key
        if namespace != _API_SERVER.namespace:
            return NOTHING
        has = new is not None and new.service == _API_SERVER.name
        return self._put_api_endpoints(name, [each.ip for each in new.endpoints] if new is not None and has else [])

    def with_external_ips(self) -> Affected:
        """Return the Services that ask for external IPs."""
        return Affected(services=self._cache.service_index.asking())

    def _put_api_endpoints(self, name: str, ips: Iterable[str]) -> Affected:
        return self.with_external_ips() if self._cache.reserved.put_api_endpoints(name, ips) else NOTHING

    def _reserve(self, key: ServiceKey, before: Service | None, after: Service | None) -> frozenset[ServiceKey]:
        """Reserve the cluster IPs of a Service, also of one that another proxy serves.

        Return the Services with external IPs that are one of them, or were.
        """
        had, has = (allocated_ips(each).values() if each is not None else () for each in (before, after))
        return self._cache.service_index.asking_for(self._cache.reserved.put_cluster_ips(key, has, had))

    def _addresses_of(self, key: ServiceKey) -> set[str]:
        """Return the addresses that a Service of type LoadBalancer has, and no other can choose as external IPs."""
        book = self._cache.addresses
        return set(map(str, book.has(key))) if book is not None else set()

    def _affected_by_pod(self, key: PodKey, *states: PodRecord | None) -> Affected:
        """Return the Services with a Pod among their endpoints, or that selected it in one of these states."""
        index, slices = self._cache.service_index, self._cache.slices
        selected = (index.selecting(key.namespace, pod.labels) for pod in states if pod is not None)
        # The slices of a Service without a selector are written by hand.
        by_hand = slices.services_in(key.namespace) & index.without_selector(key.namespace)
        having = {each for each in by_hand if key.name in slices.pods_of(each)}
        return Affected(services=frozenset(having.union(*selected)))
