"""Follow Pods in the farms of routes, which are decided without them: their annotations, and their readiness gate."""

import sys
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import cache, partial

import structlog

from kube_nftlb.api.budgets import Budget, rank
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.farms.route_pods import with_gated_ips, with_overrides
from kube_nftlb.operator.farms.spec import Spec, digest
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import WantedFarm
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.readiness.gated_ips import GatedIPs, gated_ips

_log = structlog.get_logger()

Farms = dict[ObjectKey, WantedFarm | None]


class RoutePods:
    """Knows the farms as they were decided, and the Services that they refer to."""

    def __init__(self, cache: Cache, permissions: Permissions) -> None:
        self._cache = cache
        self._permissions = permissions
        self._farms: dict[ObjectKey, WantedFarm] = {}
        self._referring: Multimap[ServiceKey, ObjectKey] = Multimap()
        self._budget: Budget[ObjectKey] = Budget(sys.maxsize, cache.budgets.overrides_max)
        """The farms, by the number of their overrides: one that does not fit has none."""

    def replace(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> Farms:
        """Take all farms. Return them with what follows from Pods, and None for others that were known."""
        return self.take({**dict.fromkeys(self._farms.keys() - farms.keys()), **farms})

    def take(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> Farms:
        """Return farms with what follows from Pods, and others whose overrides fit since, or no more."""
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
        specs = {key: self._overridden(key) for key in keys}
        for key, spec in specs.items():
            overrides = sum(len(each["overrides"]) for each in spec["backendsFrom"])
            created = rank(of_service=True, created=self._farms[key].route_created)
            refitted |= self._budget.put(key, created, overrides) if overrides else self._budget.remove(key)
        for key in refitted - specs.keys():
            if key in self._farms:
                specs[key] = self._overridden(key)
        # Once for all farms of a Service.
        gated = cache(partial(gated_ips, self._cache))
        return {key: self._complete(key, spec, gated) for key, spec in specs.items()}

    def _refuses(self, key: ObjectKey) -> bool:
        if refused := self._budget.refuses(key):
            most = self._cache.budgets.overrides_max
            _log.warning("annotations of pods ignored", namespace=key.namespace, farm=key.name, overrides_max=most)
        return refused

    def _overridden(self, key: ObjectKey) -> Spec:
        """Return the spec of a farm with its overrides, whether or not they fit."""
        pods, options = self._cache.annotated_pods, self._cache.options_of_pod
        return with_overrides(self._farms[key].spec, key.namespace, pods, options, self._permissions)

    def _complete(self, key: ObjectKey, overridden: Spec, gated: Callable[[ServiceKey], GatedIPs]) -> WantedFarm:
        farm = self._farms[key]
        spec = with_gated_ips(farm.spec if self._refuses(key) else overridden, key.namespace, gated)
        return replace(farm, spec=spec, digest=digest(spec)) if spec != farm.spec else farm


def _services(farm: WantedFarm) -> Iterable[ServiceKey]:
    namespace: str = farm.metadata["namespace"]
    groups = farm.spec["backendsFrom"]
    return {ServiceKey(each.get("namespace") or namespace, each["service"]) for each in groups if each["service"]}
