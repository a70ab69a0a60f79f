"""Plan the writes for one Service at a time: its farms as they are to be, compared with those that exist."""

import asyncio
from functools import partial
from typing import NamedTuple

from kube_nftlb.api.budgets import ENTRIES_PER_SHARE
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import Built, Profile, build
from kube_nftlb.operator.farms.external_addresses import Objection, external_ips
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.readiness.gated_ips import GatedIPs, gated_ips
from kube_nftlb.operator.sync.diff import Writes, diff

_LARGE_PORTS = 32
"""Farms of more ports take more than some milliseconds to build; one counts once more for each 50 annotated Pods."""


class Planned(NamedTuple):
    """A Service, None for one that is gone, and the writes that it needs."""

    service: Service | None
    writes: Writes


class Planner:
    """Builds the farms of Services, those of many ports in a thread."""

    def __init__(self, ingest: Ingest, profile: Profile) -> None:
        self._cache = ingest.cache
        self._changes = ingest.changes
        self._profile = profile
        self._deciding = asyncio.Lock()
        self._building = asyncio.Lock()
        """Held while farms of many ports are built in a thread, of which one leaves the event loop enough time."""

    def must_wait(self, key: ServiceKey, annotated_pods: int) -> bool:
        """Return True if ``plan`` would wait for the thread, of which there is one."""
        service = self._cache.services.get(key)
        return service is not None and _is_large(service, annotated_pods) and self._building.locked()

    async def plan(self, key: ServiceKey, annotated_pods: int) -> Planned | None:
        """Return what a Service with so many annotated Pods needs; None if it changed meanwhile."""
        service, built = self._cache.services.get(key), None
        self._changes.begin(key)
        if service is not None and _is_large(service, annotated_pods):
            async with self._building:
                objection = self._objections(key, service).get
                pods, gated = self._cache.annotated_pods(key), gated_ips(self._cache, key)
                built = await asyncio.to_thread(self._build, key, service, pods, objection, gated)
            if self._cache.services.get(key) is not service:
                return None
        async with self._deciding:
            # Many may wait: let events and probes in between.
            await asyncio.sleep(0)
            if built is None:
                service = self._cache.services.get(key)
                self._changes.begin(key)
            return Planned(service, self.writes(key, service, built))

    def writes(self, key: ServiceKey, service: Service | None, built: Built | None = None) -> Writes:
        """Return the writes that a Service needs, None being one that is gone; it is built unless it is ``built``."""
        cache = self._cache
        if built is None:
            built = Built((), ())
            if service is not None:
                objection = self._objections(key, service).get
                built = self._build(key, service, cache.annotated_pods(key), objection, gated_ips(cache, key))
        return diff(service, built, cache.farms_of(key), contenders=cache.contenders, farm_at=cache.farms.get)

    def _objections(self, key: ServiceKey, service: Service) -> dict[str, str | None]:
        """Return why the Service does not get each of its external IPs. Not for other threads, as it reads changes."""
        return {ip: self._cache.reserved.why(ip, key) for ip in external_ips(service)}

    def _build(
        self, key: ServiceKey, service: Service, pods: list[str], objection: Objection, gated: GatedIPs
    ) -> Built:
        """Return the farms that a Service needs; ``pods`` are those with annotations. For any thread."""
        if refused := self._cache.budgets.refusal_of_service(key):
            return Built((), (Rejection("TooManyFarms", refused),))
        ignored = self._cache.budgets.refusal_of_overrides(key)
        options = partial(self._cache.options_of_pod, key.namespace)
        built = build(service, () if ignored else pods, options, self._profile, objection, gated)
        if ignored:
            return built._replace(problems=(*built.problems, Rejection("TooManyOverrides", ignored)))
        return built


def _is_large(service: Service, annotated_pods: int) -> bool:
    return len(service.spec.ports) * (1 + annotated_pods // ENTRIES_PER_SHARE) > _LARGE_PORTS
