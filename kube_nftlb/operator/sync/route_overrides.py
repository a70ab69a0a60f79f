"""Follow the annotations of Pods in the farms of routes, which are decided without them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.farms.route_overrides import with_overrides
from kube_nftlb.operator.farms.spec import digest
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import WantedFarm
from kube_nftlb.operator.model.permissions import Permissions

Farms = dict[ObjectKey, WantedFarm | None]


class RouteOverrides:
    """Knows the farms as they were decided, and the Services that they refer to."""

    def __init__(self, cache: Cache, permissions: Permissions) -> None:
        self._cache = cache
        self._permissions = permissions
        self._farms: dict[ObjectKey, WantedFarm] = {}
        self._referring: Multimap[ServiceKey, ObjectKey] = Multimap()

    def take(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> Farms:
        """Return farms with the overrides of their backends."""
        for key, farm in farms.items():
            if (before := self._farms.pop(key, None)) is not None:
                for service in _services(before):
                    self._referring.discard(service, key)
            if farm is not None:
                self._farms[key] = farm
                for service in _services(farm):
                    self._referring.add(service, key)
        return {key: self._complete(farm) if farm is not None else None for key, farm in farms.items()}

    def again(self, services: Iterable[ServiceKey]) -> Farms:
        """Return the farms that refer to Services whose Pods have changed."""
        keys = {key for service in services for key in self._referring.get(service)}
        return {key: self._complete(self._farms[key]) for key in keys}

    def _complete(self, farm: WantedFarm) -> WantedFarm:
        namespace: str = farm.metadata["namespace"]
        cache = self._cache
        spec = with_overrides(farm.spec, namespace, cache.annotated_pods, cache.options_of_pod, self._permissions)
        return replace(farm, spec=spec, digest=digest(spec)) if spec != farm.spec else farm


def _services(farm: WantedFarm) -> Iterable[ServiceKey]:
    namespace: str = farm.metadata["namespace"]
    groups = farm.spec["backendsFrom"]
    return {ServiceKey(each.get("namespace") or namespace, each["service"]) for each in groups if each["service"]}
