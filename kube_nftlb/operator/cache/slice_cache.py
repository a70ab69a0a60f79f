"""EndpointSlices in the cache. No I/O."""

from collections.abc import Collection, Set
from typing import NamedTuple

from kube_nftlb.endpointslices.index import ENDPOINTS_OF_NAMESPACE_MAX, SliceIndex, SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.versioned_map import VersionedMap


class SliceChange(NamedTuple):
    """The Services whose endpoints a change of a slice concerns, and the names of Pods that came, went or moved."""

    services: Collection[ServiceKey] = ()
    pods: Collection[str] = ()


class SliceCache:
    """The newest state of each EndpointSlice, and when the endpoints of each Service last changed."""

    def __init__(self, endpoints_max: int = ENDPOINTS_OF_NAMESPACE_MAX) -> None:
        """``endpoints_max`` limits the endpoints of each namespace."""
        self.versions: VersionedMap[SliceKey, int] = VersionedMap(int)
        """The resourceVersions of all EndpointSlices."""
        self.index = SliceIndex(endpoints_max)
        """All of them, as far as their namespaces have room."""
        self._changed_at: dict[ServiceKey, int] = {}
        self._services_in: Multimap[str, ServiceKey] = Multimap()

    def services_in(self, namespace: str) -> Set[ServiceKey]:
        """Return the Services of a namespace that have slices, or had some until ``forget_unused``."""
        return self._services_in.get(namespace)

    def pods_of(self, service: ServiceKey) -> set[str]:
        """Return the names of the Pods among the endpoints of a Service."""
        return {pod for each in self.index.of(service) for pod in _pods_of(each)}

    def changed_at(self, service: ServiceKey) -> int:
        """Return the resourceVersion at which the endpoints of a Service last changed; 0 if it never had any.

        Their deletion counts until ``forget_unused``.
        """
        return self._changed_at.get(service, 0)

    def put_again(self, key: SliceKey, version: int, new: Slice | None) -> SliceChange:
        """Replace an EndpointSlice that was cut; its version may be the known one."""
        if version < self.versions.newest(key):
            return SliceChange()
        self.versions.put(key, version)
        return self._move(key, new, version)

    def put(self, key: SliceKey, version: int, new: Slice | None) -> SliceChange:
        """Add or replace an EndpointSlice; ``new`` is None if no farm needs it."""
        return self._move(key, new, version) if self.versions.put(key, version) else SliceChange()

    def remove(self, key: SliceKey, version: int) -> SliceChange:
        """Remove an EndpointSlice."""
        return self._move(key, None, version) if self.versions.remove(key, version) is not None else SliceChange()

    def forget_unused(self, service: ServiceKey) -> None:
        """Forget when the slices of a Service changed, if none is left."""
        if not self.index.of(service):
            self._changed_at.pop(service, None)
            self._services_in.discard(service.namespace, service)

    def _move(self, key: SliceKey, new: Slice | None, version: int) -> SliceChange:
        had = _pods_of(self.index.get(key))
        services = self.index.put(key, new)
        has = _pods_of(self.index.get(key))
        for service in services:
            # A list delivers the slices of a Service in any order.
            self._changed_at[service] = max(version, self.changed_at(service))
            self._services_in.add(service.namespace, service)
        # If it moves from one Service to another, so do all of its Pods.
        return SliceChange(services, had | has if len(services) > 1 else had ^ has)


def _pods_of(each: Slice | None) -> set[str]:
    return {endpoint.pod for endpoint in each.endpoints if endpoint.pod} if each is not None else set()
