"""Reconcile Services: each has exactly the farms that it needs."""

from collections.abc import Callable
from operator import attrgetter

from kube_nftlb import metrics
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import SERVICES
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.status.farm_endpoints import Problem
from kube_nftlb.operator.sync.planner import Planner
from kube_nftlb.operator.sync.service_conditions import ServiceConditions
from kube_nftlb.operator.sync.write_batch import BatchWriter

_REFUSED_RETRY_S = 60.0
_BUILDING_RETRY_S = 0.1


class ServiceReconciler:
    """The queue of Services and its workers. ``clock`` returns seconds."""

    def __init__(
        self,
        ingest: Ingest,
        planner: Planner,
        batch_writer: BatchWriter,
        events: Events,
        clock: Callable[[], float],
        on_written: Callable[[Affected], None],
        conditions: ServiceConditions | None,
    ) -> None:
        """``on_written`` gets the farms whose status shows other external IPs that their Service does not get."""
        self.queue: WorkQueue[ServiceKey] = WorkQueue(clock, self._is_urgent, attrgetter("namespace"))
        self._ingest = ingest
        self._cache = ingest.cache
        self._changes = ingest.changes
        self._planner = planner
        self._batch_writer = batch_writer
        self._events = events
        self._clock = clock
        self._on_written = on_written
        self._conditions = conditions
        self.backoff: Backoff[ServiceKey] = Backoff()
        """Counts the failed writes of each Service."""
        self._refused: dict[ServiceKey, set[PortKey | None]] = {}
        """The ports of Services in the middle of their turns whose farms the API server refused."""

    async def work(self) -> None:
        """Reconcile Services until cancelled."""
        await self.queue.work("Service", self._reconcile_timed)

    def _is_urgent(self, key: ServiceKey) -> bool:
        """Return True for a Service that has no farms yet or is deleted: clients wait for it."""
        return self._cache.services.get(key) is None or not self._cache.farms_of(key)

    async def _reconcile_timed(self, key: ServiceKey) -> float | None:
        started = self._clock()
        try:
            return await self._reconcile(key)
        finally:
            metrics.SERVICE_SYNC_SECONDS.observe(self._clock() - started)

    async def _reconcile(self, key: ServiceKey) -> float | None:
        """Reconcile the farms of a Service; return the seconds until a retry, or None if all is done."""
        if self._ingest.is_unreadable(key):
            self._changes.begin(key)
            self._changes.done(key)
            self.backoff.forget(key)
            return None
        pods = len(self._cache.annotated_pods(key))
        if self._planner.must_wait(key, pods):
            # Not to wait here: there are only so many workers.
            return _BUILDING_RETRY_S
        self.queue.add_all(self._ingest.services.count_overrides(key, pods).services)
        if (planned := await self._planner.plan(key, pods)) is None:
            return 0
        service, writes = planned
        refused_ips = tuple(each for each in writes.problems if each.reason == "ExternalIPRefused")
        self._on_written(self._ingest.services.refuse_ips(key, refused_ips))
        result = await self._batch_writer.write(writes, self._refused.pop(key, set()))
        if result.more:
            self._refused[key] = result.refused
            return 0
        problems: list[Problem] = [*writes.problems, *result.problems] if service is not None else []
        retry_s: float | None = None
        if result.retry is not None:
            metrics.FARM_WRITE_RETRIES.inc()
            retry_s = self.backoff.failed(key)
        else:
            self.backoff.forget(key)
        if service is not None:
            if result.retry is not None and self.backoff.is_lasting(key):
                problems.append(Lasting("FarmNotWritten", result.retry))
            self._events.report(Subject(SERVICES, *key, service.metadata.uid), problems)
        if self._conditions is not None:
            self._conditions.about_service(key, problems)
        if retry_s is not None:
            return retry_s
        self._changes.done(key)
        # If the CustomResourceDefinition is deleted, not the namespace, it may come back.
        waits = result.obsolete and self._cache.services.get(key) is not None
        return _REFUSED_RETRY_S if result.refused or waits else None
