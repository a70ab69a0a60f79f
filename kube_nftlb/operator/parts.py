"""All parts of the operator, connected.

A feature of its own is one part more: what it watches is in ``readers``, what it writes in ``writers``, and what its
first list has to wait for in ``until_listed``. A kind that people write is followed by kopf: it has a handler in
``main``, and stands in ``informers.kinds.BY_KOPF``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kube_nftlb import errors, names
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Part, Source
from kube_nftlb.operator import gauges
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.api_addresses import ApiAddresses
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.reserved import Reserved
from kube_nftlb.operator.farms.builder import Profile
from kube_nftlb.operator.gateway_parts import GatewayParts
from kube_nftlb.operator.informers.address_informer import AddressInformer
from kube_nftlb.operator.informers.informers import Informers
from kube_nftlb.operator.informers.kinds import WATCHED
from kube_nftlb.operator.informers.pod_informer import PodInformer
from kube_nftlb.operator.informers.relist import Lister
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.readiness.controller import ReadinessGateController
from kube_nftlb.operator.readiness.informer import GatedPodInformer
from kube_nftlb.operator.status.lateness import Lateness
from kube_nftlb.operator.status.policy_status import PolicyStatuses
from kube_nftlb.operator.status.silent_agents import SilentAgents
from kube_nftlb.operator.subjects import exists
from kube_nftlb.operator.sync.address_assigner import AddressAssigner
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.pool_statuses import PoolStatuses
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.operator.sync.service_conditions import ServiceConditions
from kube_nftlb.operator.sync.status_budget import StatusBudget
from kube_nftlb.operator.sync.status_pacing import StatusTiming
from kube_nftlb.settings import OperatorSettings

_SERVICE_WORKERS = 16
_ROUTE_WORKERS = 8
_STATUS_WORKERS = 4
_GATE_WRITERS = 4
_ADDRESS_WRITERS = 8
_SETTLE_EVERY_S = 1.0

Work = Callable[[], Coroutine[Any, Any, None]]
"""Something to run until cancelled."""


class Parts:
    """The cache, what reads into it, and what writes by it."""

    def __init__(self, kube: Kube, settings: OperatorSettings, leads: Callable[[], bool] = lambda: True) -> None:
        """Connect all; ``leads``: no other replica can lead now. Raises UsageError if settings exclude each other."""
        if settings.gateway and not settings.addresses:
            raise errors.UsageError(
                "KUBE_NFTLB_GATEWAY requires KUBE_NFTLB_ADDRESSES: Gateways get addresses from pools"
            )
        clock = asyncio.get_running_loop().time
        api_hosts = [settings.api_server, *(each.host for each in settings.api_servers)]
        self.cache = Cache(
            Reserved(settings.pod_cidrs, api_hosts),
            limits=settings.limits,
            clock=clock,
            silent_after_s=settings.agent_silent_s,
            addresses=Book(without_class=settings.addresses_without_class) if settings.addresses else None,
        )
        self.ingest = Ingest(self.cache)
        self.lister = Lister(kube, self.ingest, self.mark)
        self.active = asyncio.Event()
        """Set once this replica writes."""
        book = self.cache.addresses
        self._events = Events(kube, Source(names.OPERATOR_COMPONENT), exists=self._exists)
        self._policies = PolicyStatuses(kube, self.ingest, self._events, clock)
        self._silent_agents = SilentAgents(kube, self.ingest, self._events, self.mark)
        self._conditions = ServiceConditions(kube, self.cache, clock) if settings.service_status else None
        self.reconciler = Reconciler(
            self.ingest,
            FarmWriter(kube, self.ingest),
            self._events,
            clock,
            _profile(settings),
            timing=StatusTiming(patience_s=settings.status_s),
            budget=StatusBudget(settings.statuses_per_s),
            lateness=Lateness(settings.not_programmed_s),
            on_policies=self._policies.mark,
            conditions=self._conditions,
        )
        self._api_addresses = ApiAddresses(
            api_hosts, lambda: kube.servers.peers, self.ingest.services.put_api_host, self.mark
        )
        self._pods = PodInformer(kube, self.ingest, self._events, self.mark)
        self._informers = Informers(kube, self.ingest, self.mark)
        self._addresses: AddressAssigner | None = None
        self._pool_statuses: PoolStatuses | None = None
        self._address_informer: AddressInformer | None = None
        self._gateways: GatewayParts | None = None
        if settings.gateway and book is not None:
            self._gateways = GatewayParts(
                kube,
                self.cache,
                book,
                self._events,
                self.reconciler,
                clock,
                self.mark,
                settings.gateway_engine,
                _permissions(settings),
                settings.gateway_cluster_ips,
            )
        gateways = self._gateways.gateways if self._gateways is not None else None
        if book is not None and self.ingest.pools is not None:
            reconcile = self.reconciler.services.queue.add
            self._addresses = AddressAssigner(
                kube,
                self.ingest,
                book,
                self._events,
                clock,
                self.mark,
                reconcile,
                gateways.addresses_freed if gateways is not None else lambda: 0,
                claimed=gateways.claimed if gateways is not None else None,
                leads=leads,
            )
            self._pool_statuses = PoolStatuses(kube, book)
            self._address_informer = AddressInformer(
                kube,
                self.ingest.pools,
                book,
                self.mark,
                gateways.namespace_changed if gateways is not None else lambda _: None,
            )
        self._readiness_gates: ReadinessGateController | None = None
        self._gated_pods: GatedPodInformer | None = None
        if settings.readiness_gate:
            self._readiness_gates = ReadinessGateController(
                kube, self.ingest, self._events, clock, self._have_listed, settings.not_programmed_s
            )
            self._gated_pods = GatedPodInformer(kube, self.ingest, self._readiness_gates.wake)

    def readers(self) -> list[Work]:
        """Return what reads beside kopf, in every replica: a standby is as well informed as the leader."""
        followed = (partial(self._informers.run, resource) for resource in WATCHED)
        gated = [self._gated_pods.run] if self._gated_pods is not None else []
        pools = self._address_informer
        addresses = [pools.run_pools, pools.run_namespaces] if pools is not None else []
        gateways = self._gateways.readers() if self._gateways is not None else []
        others = [self._informers.read_cut_slices, self._api_addresses.run, self._settle_nodes]
        return [self._pods.run, *gated, *addresses, *gateways, *followed, *others]

    def writers(self) -> list[Work]:
        """Return what writes, in the leader alone."""
        return [
            self._events.run,
            self._policies.write,
            self._silent_agents.run,
            *[self.reconciler.services.work] * _SERVICE_WORKERS,
            *[self.reconciler.routes.work] * _ROUTE_WORKERS,
            *[self.reconciler.statuses.work] * _STATUS_WORKERS,
            *self._gate_work(),
            *self._address_work(),
            *(self._gateways.writers() if self._gateways is not None else []),
            *([self._conditions.run] if self._conditions is not None else []),
        ]

    def _gate_work(self) -> list[Work]:
        if (keeper := self._readiness_gates) is None:
            return []
        return [keeper.look, keeper.check, keeper.withdraw, *[keeper.write] * _GATE_WRITERS]

    def _address_work(self) -> list[Work]:
        if self._addresses is None or self._pool_statuses is None:
            return []
        return [self._addresses.retry, self._pool_statuses.write, *[self._addresses.work] * _ADDRESS_WRITERS]

    async def until_listed(self) -> None:
        """Wait until everything is listed: before that, an existing farm might seem to be needed no more."""
        await self.lister.fill()
        await self._pods.listed.wait()
        if self._gated_pods is not None:
            await self._gated_pods.listed.wait()
        if self._address_informer is not None:
            await self._address_informer.until_listed()
        await self._informers.until_listed()
        # Before any farm is made of a Service.
        await self._api_addresses.look()

    def activate(self) -> None:
        """Reconcile everything, and from now on what changes: this replica writes."""
        self.active.set()
        self.ingest.changes.forget()
        # Else a Service that did not fit would have overrides until those before it are reconciled.
        self.ingest.services.count_overrides_in_force()
        # Else farms would wait for a moment for nodes that have gone since this replica started.
        self.ingest.nodes.flush()
        self.mark(self.cache.everything())
        if self._gateways is None:
            # Those of routes that were served before go.
            self.reconciler.routes.replace({})
        self._pods.start_reporting()

    def mark(self, affected: Affected) -> None:
        """Queue what a change has made out of date."""
        # Until this replica writes nothing has to wait: everything is reconciled then.
        if self.active.is_set():
            if self.ingest.pools is not None:
                # Before anybody gets an address of a pool that a new Node makes unacceptable.
                affected |= self.ingest.pools.judge()
            held = self._addresses.mark(affected.services) if self._addresses is not None else frozenset()
            self.reconciler.mark(affected._replace(services=affected.services - held))
            self._policies.mark(affected.policies)
            if self._gateways is not None:
                self._gateways.gateways.services_changed(affected.services)
            if self._readiness_gates is not None:
                self._readiness_gates.wake()
        else:
            self.ingest.changes.forget()

    def _have_listed(self, service: ServiceKey) -> None:
        """Have the farms of a Service list the gated Pods that they are to list, and those of routes to it."""
        self.reconciler.services.queue.add(service)
        if self._gateways is not None:
            self._gateways.gateways.services_changed([service])

    def _exists(self, part: Part) -> bool:
        known = self._gateways.knows(part) if self._gateways is not None else None
        return exists(self.cache, part) if known is None else known

    def refresh_gauges(self) -> None:
        """Set the gauges of the cluster, if this replica writes."""
        waiting = self._addresses.waiting if self._addresses is not None else ()
        gauges.refresh(self.ingest, self.reconciler, waiting, leads=self.active.is_set())

    async def _settle_nodes(self) -> None:
        while True:
            await asyncio.sleep(_SETTLE_EVERY_S)
            self.mark(self.ingest.nodes.flush())


def _profile(settings: OperatorSettings) -> Profile:
    return Profile(
        settings.default_mode,
        settings.default_engine,
        settings.external_ip_ranges if settings.external_ips else None,
        _permissions(settings),
        settings.limits.service_ports,
    )


def _permissions(settings: OperatorSettings) -> Permissions:
    return Permissions(
        settings.source_address_ranges,
        settings.annotation_marks,
        settings.annotation_queues,
        settings.annotation_helpers,
        settings.annotation_engines,
    )
