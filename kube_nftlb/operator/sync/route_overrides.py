"""Follow the annotations of Pods in the farms of routes, which are decided without them."""

import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

import structlog

from kube_nftlb.api.budgets import Budget, rank
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.farms.route_overrides import with_overrides
from kube_nftlb.operator.farms.spec import digest
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import WantedFarm
from kube_nftlb.operator.model.permissions import Permissions

_log = structlog.get_logger()

Farms = dict[ObjectKey, WantedFarm | None]


class RouteOverrides:
    """Knows the farms as they were decided, and the Services that they refer to."""

    def __init__(self, cache: Cache, permissions: Permissions) -> None:
        self._cache = cache
        self._permissions = permissions
        self._farms: dict[ObjectKey, WantedFarm] = {}
        self._referring: Multimap[ServiceKey, ObjectKey] = Multimap()
        self._budget: Budget[ObjectKey] = Budget(sys.maxsize, cache.budgets.overrides_max)
        """The farms, by the number of their overrides: one that does not fit has none."""

    def replace(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> Farms:
        """Take all farms. Return them with the overrides of their backends, and None for others that were known."""
        return self.take({**dict.fromkeys(self._farms.keys() - farms.keys()), **farms})

    def take(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> Farms:
        """Return farms with the overrides of their backends, and others whose overrides fit since, or no more."""
        refitted: set[ObjectKey] = set()
        for key, farm in farms.items():
            if (before := self._farms.pop(key, None)) is not None:
                for service in _services(before):
                    self._referring.discard(service, key)
            if farm is not None:
                self._farms[key] = farm
                for service in _services(farm):
                    self._referring.add(service, key)
            else:
                refitted |= self._budget.remove(key)
        gone: Farms = {key: None for key, farm in farms.items() if farm is None}
        return gone | self._completed(farms.keys() - gone.keys(), refitted)

    def again(self, services: Iterable[ServiceKey]) -> Farms:
        """Return the farms that refer to Services whose Pods have changed."""
        keys = {key for service in services for key in self._referring.get(service)}
        return self._completed(keys, set())

    def _completed(self, keys: Set[ObjectKey], refitted: set[ObjectKey]) -> Farms:
        farms = {key: self._complete(self._farms[key]) for key in keys}
        for key, farm in farms.items():
            overrides = sum(len(each["overrides"]) for each in farm.spec["backendsFrom"])
            created = rank(of_service=True, created=farm.route_created)
            refitted |= self._budget.put(key, created, overrides) if overrides else self._budget.remove(key)
        for key in refitted - farms.keys():
            if key in self._farms:
                farms[key] = self._complete(self._farms[key])
        return {key: self._farms[key] if self._refuses(key) else farm for key, farm in farms.items()}

    def _refuses(self, key: ObjectKey) -> bool:
        if refused := self._budget.refuses(key):
            most = self._cache.budgets.overrides_max
            _log.warning("annotations of pods ignored", namespace=key.namespace, farm=key.name, overrides_max=most)
        return refused

    def _complete(self, farm: WantedFarm) -> WantedFarm:
        namespace: str = farm.metadata["namespace"]
        cache = self._cache
        spec = with_overrides(farm.spec, namespace, cache.annotated_pods, cache.options_of_pod, self._permissions)
        return replace(farm, spec=spec, digest=digest(spec)) if spec != farm.spec else farm


def _services(farm: WantedFarm) -> Iterable[ServiceKey]:
    namespace: str = farm.metadata["namespace"]
    groups = farm.spec["backendsFrom"]
    return {ServiceKey(each.get("namespace") or namespace, each["service"]) for each in groups if each["service"]}
