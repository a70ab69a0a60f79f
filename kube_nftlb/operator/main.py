"""Run the operator: list, watch and reconcile until SIGTERM."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import kopf
import structlog

from kube_nftlb import errors, logs, metrics
from kube_nftlb.http_server import Answer, serve
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.kube.lease import Lease, new_identity
from kube_nftlb.kube.lease_thread import LeaseThread
from kube_nftlb.kube.resources import SERVICES, JsonObject, Resource
from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.operator import gauges, health
from kube_nftlb.operator.cache.cache import Cache, Dirty
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.cache.reserved import Reserved
from kube_nftlb.operator.farms.builder import Profile
from kube_nftlb.operator.informers import handlers
from kube_nftlb.operator.informers.informers import Informers
from kube_nftlb.operator.informers.kinds import BY_KOPF, KINDS, WATCHED
from kube_nftlb.operator.informers.pod_informer import PodInformer
from kube_nftlb.operator.informers.relist import Lister
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.readiness.gate_keeper import GateKeeper
from kube_nftlb.operator.readiness.informer import GatedPodInformer
from kube_nftlb.operator.status.lateness import Lateness
from kube_nftlb.operator.status.policy_status import PolicyStatuses
from kube_nftlb.operator.subjects import exists
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.operator.sync.service_conditions import ServiceConditions
from kube_nftlb.operator.sync.status_budget import StatusBudget
from kube_nftlb.operator.sync.status_pacing import StatusTiming
from kube_nftlb.settings import OperatorSettings

_COMPONENT = "kube-nftlb-operator"
_LEASE = "kube-nftlb-operator"
_SERVICE_WORKERS = 16
_STATUS_WORKERS = 4
_GATE_WRITERS = 4
_RELIST_SOON_S = 2.0
"""The delay of a list after kopf has listed: it does not report what was deleted since it lost its watch."""
_KOPF_LISTS_WITHIN_S = 5.0
"""Time in seconds after which the operator looks whether there is any Service: kopf reports no empty list."""
_RESTART_DELAY_S = 1.0
_SETTLE_EVERY_S = 1.0
_END_PATIENCE_S = 1.5

_log = structlog.get_logger()


def main(settings: OperatorSettings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises UsageError if listening on the metrics or health address fails, and LeaseLostError when another replica may
    lead.
    """
    logs.configure(settings.log_level, settings.log_format)
    logging.getLogger("kopf._cogs.clients.watching").addFilter(handlers.OncePerOutage(time.monotonic))
    asyncio.run(_run(settings))


async def _run(settings: OperatorSettings) -> None:
    stop = asyncio.Event()
    _stop_on_signals(stop)
    servers = ApiServers(settings.api_servers)
    async with await Kube.connect(user_agent=_COMPONENT, servers=servers) as kube:
        operator = _Operator(kube, settings, stop)
        page = await serve(operator.metrics_page.answer, settings.metrics_address, "metrics")
        probes = await serve(operator.probe, settings.health_address)
        writers = [asyncio.create_task(work) for work in operator.writers()]
        tasks = [*writers, *(asyncio.create_task(work) for work in operator.readers())]
        session = asyncio.create_task(operator.session())
        ended = asyncio.create_task(stop.wait())
        _log.info("operator started", relist_s=settings.relist_s)
        await asyncio.wait([session, ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        _log.info("operator stopping")
        # First of all, so that the next leader need not wait for the rest.
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        await operator.resign()
        if stop.is_set():
            await asyncio.wait([session], timeout=_END_PATIENCE_S)
        for task in (session, ended, *tasks):
            task.cancel()
        probes.close()
        page.close()
        for result in await asyncio.gather(session, ended, *tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


def _stop_on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


class _Operator:
    """All parts of the operator, connected."""

    def __init__(self, kube: Kube, settings: OperatorSettings, stop: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        cache = Cache(
            Reserved(settings.pod_cidrs, [settings.api_server, *(each.host for each in settings.api_servers)]),
            limits=settings.limits,
            clock=clock,
        )
        self._stop = stop
        self._servers = kube.servers
        self._identity = new_identity()
        self._relist_s = settings.relist_s
        self._begun = asyncio.Event()
        self._kopf_listed = asyncio.Event()
        self._filled = asyncio.Event()
        self._active = asyncio.Event()
        self._writer = CacheWriter(cache)
        self._events = Events(kube, Source(_COMPONENT), exists=partial(exists, cache))
        self._lister = Lister(kube, self._writer)
        self._policies = PolicyStatuses(kube, self._writer, self._events, clock)
        profile = Profile(
            settings.default_mode,
            settings.default_engine,
            settings.external_ip_ranges if settings.external_ips else None,
            Permissions(
                settings.source_address_ranges,
                settings.annotation_marks,
                settings.annotation_queues,
                settings.annotation_helpers,
                settings.annotation_engines,
            ),
            settings.limits.service_ports,
        )
        self._conditions = ServiceConditions(kube, cache, clock) if settings.service_status else None
        self._reconciler = Reconciler(
            self._writer,
            FarmWriter(kube, self._writer),
            self._events,
            clock,
            profile,
            timing=StatusTiming(patience_s=settings.status_s),
            budget=StatusBudget(settings.statuses_per_s),
            lateness=Lateness(settings.not_programmed_s),
            on_policies=self._policies.mark,
            conditions=self._conditions,
        )
        self._pods = PodInformer(kube, self._writer, self._events, self._mark)
        self._informers = Informers(kube, self._writer, self._mark)
        self._gate_keeper: GateKeeper | None = None
        self._gated_pods: GatedPodInformer | None = None
        if settings.readiness_gate:
            reconcile = self._reconciler.services.add
            self._gate_keeper = GateKeeper(
                kube, self._writer, self._events, clock, reconcile, settings.not_programmed_s
            )
            self._gated_pods = GatedPodInformer(kube, self._writer, self._gate_keeper.wake)
        self._lease: LeaseThread | None = None
        if settings.leader_election:
            self._lease = LeaseThread(
                lambda: Kube.connect(user_agent=_COMPONENT, servers=kube.servers),
                lambda kube: Lease(kube, settings.namespace, _LEASE, time.monotonic, self._identity),
            )
        metrics.LEADER.set_function(lambda: self._leads)
        self.metrics_page = metrics.Page(
            "operator", lambda: gauges.refresh(self._reconciler, leads=self._active.is_set())
        )

    def readers(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs beside kopf's watches. Start it before them: kopf cancels tasks younger than itself."""
        followed = (self._informers.run(resource) for resource in WATCHED)
        gated = [self._gated_pods.run()] if self._gated_pods is not None else []
        return [self._pods.run(), *gated, *followed, self._relist()]

    def writers(self) -> list[Coroutine[Any, Any, None]]:
        """Return the election and what writes once it is won. Start it before kopf's watches too."""
        return [
            *([self._lease.run()] if self._lease is not None else []),
            self._begin(),
            self._when_leading(self._events.run),
            self._when_leading(self._policies.write),
            self._when_leading(self._settle),
            *(self._when_leading(self._reconciler.work_on_services) for _ in range(_SERVICE_WORKERS)),
            *(self._when_leading(self._reconciler.work_on_statuses) for _ in range(_STATUS_WORKERS)),
            *(self._when_leading(work) for work in self._gate_work()),
            *([self._when_leading(self._conditions.run)] if self._conditions is not None else []),
        ]

    def _gate_work(self) -> list[Callable[[], Awaitable[None]]]:
        if (keeper := self._gate_keeper) is None:
            return []
        return [keeper.look, keeper.check, keeper.withdraw, *[keeper.write] * _GATE_WRITERS]

    async def resign(self) -> None:
        """Release leadership, once all writers have ended."""
        if self._lease is not None:
            await self._lease.release()

    def probe(self, path: str) -> Answer:
        """Answer a probe. A standby replica is as healthy and ready as the leader."""
        stalled_s = max(self._reconciler.services.stalled_s(), self._reconciler.statuses.stalled_s())
        answer = health.answer(
            path, now=datetime.now(UTC), stalled_s=stalled_s, listed=self._filled.is_set(), leads=self._leads
        )
        if answer.status != 404:
            metrics.PROBES.labels(path, str(answer.status)).inc()
        return answer

    @property
    def _leads(self) -> bool:
        return self._lease is None or self._lease.leading.is_set()

    async def _begin(self) -> None:
        """Reconcile everything once all is listed and the election is won, and from then on what changes.

        A standby replica watches as the leader does, so it need not list everything when it takes over.
        """
        await self._filled.wait()
        if self._lease is not None:
            await self._lease.leading.wait()
            await self._lister.fill_services()
        self._active.set()
        self._writer.changes.forget()
        self._mark(self._reconciler.cache.everything())
        self._pods.start_reporting()
        await asyncio.Event().wait()

    async def _when_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        await self._active.wait()
        await work()

    async def session(self) -> None:
        """List and watch until stopped; again if kopf fails, as it does after an error event of a watch."""
        while True:
            watching = asyncio.create_task(self._watch(), name="kopf")
            try:
                await self._fill(watching)
                await watching
            except Exception as error:
                _log.exception("watches failed, restarting", error=repr(error))
            finally:
                watching.cancel()
            if self._stop.is_set():
                return
            metrics.WATCH_RESTARTS.inc()
            await asyncio.sleep(_RESTART_DELAY_S)

    async def _fill(self, watching: "asyncio.Task[None]") -> None:
        """List everything after kopf has: its watch reports what is deleted after its list, and ours has no more.

        The other way around, what was deleted between the two would be in neither, and would get farms.
        """
        self._kopf_listed.clear()
        listed = asyncio.create_task(self._kopf_listed.wait())
        heard = False
        while not heard:
            await asyncio.wait([watching, listed], timeout=_KOPF_LISTS_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
            heard = listed.done() or watching.done()
            self._mark(await self._lister.fill())
            heard = heard or not self._reconciler.cache.services.keys()
        listed.cancel()
        await self._pods.listed.wait()
        if self._gated_pods is not None:
            await self._gated_pods.listed.wait()
        await self._informers.until_listed()
        self._begun.set()
        self._filled.set()

    async def _watch(self) -> None:
        others = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=handlers.registry(self._on_event, self._servers),
            settings=handlers.settings(),
            clusterwide=True,
            standalone=True,
            # Without one, kopf looks up the name of the user, who has none in a container.
            identity=self._identity,  # type: ignore[arg-type]  # its type is a str that kopf does not export
            stop_flag=self._stop,
        )
        # kopf has just replaced them.
        _stop_on_signals(self._stop)
        await kopf.run_tasks(tasks, ignored=others)

    def _on_event(self, resource: Resource, event_type: str | None, raw: JsonObject) -> None:
        if event_type is None and resource is SERVICES:
            self._kopf_listed.set()
        change = self._writer.remove if event_type == "DELETED" else self._writer.put
        self._mark(change(resource, raw))

    def _mark(self, dirty: Dirty) -> None:
        # Until this replica writes nothing has to wait: everything is reconciled then.
        if self._active.is_set():
            self._reconciler.mark(dirty)
            self._policies.mark(dirty.policies)
            if self._gate_keeper is not None:
                self._gate_keeper.wake()
        else:
            self._writer.changes.forget()

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(_SETTLE_EVERY_S)
            self._mark(self._writer.settle_nodes())

    async def _relist(self) -> None:
        await self._begun.wait()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._relist_s):
                    await self._kopf_listed.wait()
            kinds: Iterable[Resource] = KINDS
            if self._kopf_listed.is_set():
                await asyncio.sleep(_RELIST_SOON_S)
                kinds = BY_KOPF
                self._kopf_listed.clear()
            try:
                async for dirty in self._lister.repair(kinds):
                    self._mark(dirty)
                if kinds is KINDS:
                    metrics.LAST_LIST.set_to_current_time()
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("periodic list failed", error=str(error))
