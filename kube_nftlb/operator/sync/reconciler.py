"""Workers that reconcile Services and the statuses of farms."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter

import structlog

from kube_nftlb import metrics
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.events import Events, Subject
from kube_nftlb.kube.resources import FARMS, SERVICES
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.cache import Dirty
from kube_nftlb.operator.cache.farm_record import FarmRecord, Owner, changed_fields, status_digest
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.farms.builder import Built, Profile, build
from kube_nftlb.operator.farms.external_addresses import Objection, external_ips
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.readiness.gated_ips import GatedIPs, gated_ips
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints, Problem, farm_endpoints
from kube_nftlb.operator.status.farm_status import decide, endpoints_programmed, forged, problems_of_farm
from kube_nftlb.operator.status.lateness import Late, Lateness, problem
from kube_nftlb.operator.sync.diff import Apply, Delete, Writes, diff
from kube_nftlb.operator.sync.farm_events import FarmEvents
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome
from kube_nftlb.operator.sync.service_conditions import ServiceConditions
from kube_nftlb.operator.sync.status_budget import StatusBudget
from kube_nftlb.operator.sync.status_pacing import LIST, StatusPacing, StatusTiming

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 15.0
_REFUSED_RETRY_S = 60.0
_OWNER_RETRY_S = 1.0
_NOT_PROGRAMMED_S = 30.0
_STATUS_DELAY_S = 0.05
"""The delay of each status: the slices of a Service change one after the other, and nodes report one by one."""
_STATUS_PATIENCE_S = 0.1
"""Maximum time in seconds that a status waits for Services to be reconciled first."""
_CONFLICT_RETRY_S = 0.1
STATUSES_PER_S = 500
"""The default of the highest rate at which statuses are written."""

_LARGE_PORTS = 32
"""Farms of more ports take more than some milliseconds to build."""
_BUILDING_RETRY_S = 0.1
_WRITES_MAX = 128
"""Number of farms that a worker writes, in about a second, before another Service has its turn."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Turn:
    """The results of the writes of a Service."""

    refused: set[PortKey | None]
    """The ports whose farms the API server refused."""
    awaited: set[PortKey | None] = field(default_factory=set)
    """The ports with a write that has to be repeated."""
    problems: list[Rejection] = field(default_factory=list)
    retry: bool = False
    obsolete: bool = False
    more: bool = False
    """True if there are writes that were not tried."""

    def waits(self, write: Apply | Delete) -> bool:
        """Return True for a write that must wait for others, which failed.

        Addresses of a farm that goes move to one that does not exist yet: if that is rejected, the old farm stays.
        """
        if isinstance(write, Delete):
            return self.retry or _whole(write.farm.port) in self.refused
        return write.reason != "Created" and _whole(write.wanted.port) in self.awaited


class Reconciler:
    """Both queues and their workers. ``clock`` returns seconds, ``now`` the date."""

    def __init__(
        self,
        writer: CacheWriter,
        farm_writer: FarmWriter,
        events: Events,
        clock: Callable[[], float],
        profile: Profile = Profile(),  # noqa: B008 - immutable
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        timing: StatusTiming = StatusTiming(),  # noqa: B008 - immutable
        budget: StatusBudget | None = None,
        lateness: Lateness | None = None,
        on_policies: Callable[[Collection[PolicyKey]], None] = lambda _: None,
        conditions: ServiceConditions | None = None,
    ) -> None:
        """``on_policies`` gets the policies to which the farms that are written refer, or did.

        ``conditions`` gets what Events tell of Services and their farms; None: Services have no condition of ours.
        """
        self.cache = writer.cache
        self.changes = writer.changes
        self._writer = writer
        self.services: WorkQueue[ServiceKey] = WorkQueue(clock, self._is_urgent, attrgetter("namespace"))
        self.statuses: WorkQueue[FarmKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._farm_writer = farm_writer
        self._events = events
        self._farm_events = FarmEvents(events, self.cache)
        self._on_policies = on_policies
        self._conditions = conditions
        self._clock = clock
        self._profile = profile
        self._now = now
        self._failures: dict[ServiceKey | FarmKey, int] = {}
        self._pacing = StatusPacing(timing)
        self.budget = budget or StatusBudget(STATUSES_PER_S)
        self._lateness = lateness or Lateness(_NOT_PROGRAMMED_S)
        self._refused: dict[ServiceKey, set[PortKey | None]] = {}
        """The ports of Services in the middle of their turns whose farms the API server refused."""
        self._late: set[FarmKey] = set()
        """The farms of which an Event says that nodes are late."""
        self._deciding = asyncio.Lock()
        self._building = asyncio.Lock()
        """Held while farms of many ports are built in a thread, of which one leaves the event loop enough time."""

    def mark(self, dirty: Dirty) -> None:
        """Queue everything that may be out of date."""
        for key in dirty.services:
            self.services.add(key)
        self._mark_statuses(dirty)

    def _is_urgent(self, key: ServiceKey) -> bool:
        """Return True for a Service that has no farms yet or is deleted: clients wait for it."""
        return self.cache.services.get(key) is None or not self.cache.farms_of(key)

    def _mark_statuses(self, dirty: Dirty) -> None:
        for key in dirty.farms:
            farm = self.cache.farms.get(key)
            self.statuses.add(key, 0 if farm is not None and farm.is_forged else _STATUS_DELAY_S)

    async def work_on_services(self) -> None:
        """Reconcile Services until cancelled."""
        await self.services.work(self._reconcile_in_any_case)

    async def _reconcile_in_any_case(self, key: ServiceKey) -> float | None:
        started = self._clock()
        try:
            return await self._reconcile(key)
        except Exception:
            # A defect with one Service must not stop the others.
            _log.exception("cannot reconcile Service", namespace=key.namespace, service=key.name)
            return _REFUSED_RETRY_S
        finally:
            metrics.SERVICE_SYNC_SECONDS.observe(self._clock() - started)

    async def work_on_statuses(self) -> None:
        """Write statuses of farms until cancelled; Services come first, for a while."""
        await self.statuses.work(self._report_in_any_case, self._until_budget)

    async def _until_budget(self) -> None:
        """Wait until a status may be written: until then farms wait in the queue, where namespaces take turns."""
        self.budget.set_nodes(len(self.cache.nodes.keys()))
        if (wait_s := self.budget.wait_s(self._clock())) > 0:
            await asyncio.sleep(wait_s)

    async def _report_in_any_case(self, key: FarmKey) -> float | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_PATIENCE_S):
                await self.services.until_idle()
        try:
            return await self._report(key)
        except Exception:
            _log.exception("cannot reconcile farm status", namespace=key.namespace, farm=key.name)
            return _REFUSED_RETRY_S

    async def _reconcile(self, key: ServiceKey) -> float | None:
        """Reconcile the farms of a Service; return the seconds until a retry, or None if all is done."""
        service = self.cache.services.get(key)
        if service is not None and len(service.spec.ports) > _LARGE_PORTS and self._building.locked():
            # Not to wait here: there are only so many workers.
            return _BUILDING_RETRY_S
        if (found := await self._todo(key)) is None:
            return 0
        service, todo = found
        self._refuse_ips(key, tuple(each for each in todo.problems if each.reason == "ExternalIPRefused"))
        turn = await self._write_some(todo, self._refused.pop(key, set()))
        if turn.more:
            self._refused[key] = turn.refused
            return 0
        problems = [*todo.problems, *turn.problems] if service is not None else []
        if service is not None:
            self._events.report(Subject(SERVICES, *key, service.metadata.uid), problems)
        if self._conditions is not None:
            self._conditions.about_service(key, problems)
        if turn.retry:
            metrics.FARM_WRITE_RETRIES.inc()
            return self._backoff(key)
        self.changes.done(key)
        self._failures.pop(key, None)
        # If the CustomResourceDefinition is deleted, not the namespace, it may come back.
        waits = turn.obsolete and self.cache.services.get(key) is not None
        return _REFUSED_RETRY_S if turn.refused or waits else None

    async def _write_some(self, todo: Writes, refused: AbstractSet[PortKey | None]) -> _Turn:
        """Write until another Service has its turn. Ports that were ``refused`` in earlier turns come last."""
        turn = _Turn(set(refused))
        applies = sorted(todo.applies, key=lambda each: _whole(each.wanted.port) in refused)
        writes: list[Apply | Delete] = [*applies, *todo.deletes]
        for attempts, write in enumerate(writes):
            if attempts >= _WRITES_MAX:
                again = isinstance(write, Apply) and _whole(write.wanted.port) in refused
                turn.more = not turn.retry and not again
                break
            if not turn.waits(write):
                await self._try(write, turn)
        return turn

    async def _try(self, write: Apply | Delete, turn: _Turn) -> None:
        port = _whole(write.wanted.port) if isinstance(write, Apply) else None
        try:
            outcome = await self._write(write)
        except FarmRefusedError as error:
            turn.refused.add(port)
            metrics.FARMS_REFUSED.inc()
            turn.problems.append(Rejection("FarmRefused", str(error)))
            return
        turn.retry = turn.retry or outcome is Outcome.RETRY
        turn.obsolete = turn.obsolete or outcome is Outcome.OBSOLETE
        if isinstance(write, Apply) and outcome is Outcome.RETRY:
            turn.awaited.add(port)

    def _refuse_ips(self, key: ServiceKey, refused: tuple[Rejection, ...]) -> None:
        """Note which external IPs a Service does not get, for the status of its farms."""
        if refused != self.cache.refused_ips.get(key, ()):
            self.cache.refused_ips[key] = refused
            self._mark_statuses(Dirty(farms=frozenset(farm.key for farm in self.cache.farms_of(key))))

    async def _todo(self, key: ServiceKey) -> tuple[Service | None, Writes] | None:
        """Return a Service, None for one that is gone, and the writes that it needs; None if it changed meanwhile."""
        service, built = self.cache.services.get(key), None
        self.changes.begin(key)
        if service is not None and len(service.spec.ports) > _LARGE_PORTS:
            async with self._building:
                objection = self._objections(key, service).get
                pods, gated = self.cache.annotated_pods(key), gated_ips(self.cache, key)
                built = await asyncio.to_thread(self._build, key, service, pods, objection, gated)
            if self.cache.services.get(key) is not service:
                return None
        async with self._deciding:
            # Many may wait: let events and probes in between.
            await asyncio.sleep(0)
            if built is None:
                service = self.cache.services.get(key)
                self.changes.begin(key)
            return service, self._diff(key, service, built)

    def _objections(self, key: ServiceKey, service: Service) -> dict[str, str | None]:
        """Return why the Service does not get each of its external IPs. Not for other threads, as it reads changes."""
        return {ip: self.cache.reserved.why(ip, key) for ip in external_ips(service)}

    def _build(
        self, key: ServiceKey, service: Service, pods: list[str], objection: Objection, gated: GatedIPs
    ) -> Built:
        """Return the farms that a Service needs; ``pods`` are those with annotations. For any thread."""
        if refused := self.cache.budgets.refusal_of_service(key):
            return Built((), (Rejection("TooManyFarms", refused),))
        options = partial(self.cache.options_of_pod, key.namespace)
        return build(service, pods, options, self._profile, objection, gated)

    def _diff(self, key: ServiceKey, service: Service | None, built: Built | None = None) -> Writes:
        cache = self.cache
        if built is None:
            built = Built((), ())
            if service is not None:
                objection = self._objections(key, service).get
                built = self._build(key, service, cache.annotated_pods(key), objection, gated_ips(cache, key))
        return diff(service, built, cache.farms_of(key), contenders=cache.contenders, farm_at=cache.farms.get)

    async def _write(self, write: Apply | Delete) -> Outcome:
        if isinstance(write, Delete):
            outcome, dirty = await self._farm_writer.delete(write)
        else:
            before = self.cache.farms.get(write.key)
            outcome, dirty = await self._farm_writer.apply(write)
            if before is not None and outcome is Outcome.DONE:
                self._farm_events.written(before, write.wanted.spec, self._profile.engine)
        # The Service is being reconciled: the answer for its farm is no reason to do it again.
        self._mark_statuses(dirty)
        self._on_policies(dirty.policies)
        return outcome

    async def _report(self, key: FarmKey) -> float | None:
        """Reconcile the status of a farm; return the seconds until a retry, or None if all is done."""
        farm = self.cache.farms.get(key)
        if farm is None or farm.terminating:
            self._failures.pop(key, None)
            self._pacing.forget(key)
            self._lateness.forget(key)
            self._late.discard(key)
            if self._conditions is not None:
                self._conditions.forget_farm(key)
            return None
        if farm.owner is not None and farm.is_forged:
            return await self._disown(farm, farm.owner)
        loss = self.cache.conflicts.get(key)
        refused = self.cache.budgets.refusal_of_farm(key)
        endpoints = farm_endpoints(farm, self.cache)
        nodes = list(self.cache.settled_nodes)
        service = ServiceKey(farm.port.namespace, farm.port.service) if farm.port else None
        refused_ips = self.cache.refused_ips.get(service, ()) if service is not None else ()
        if (restless_s := self._pacing.restless_s(key, endpoints.changed_at, self._clock())) > 0:
            endpoints = endpoints._replace(shown=())
            self.statuses.remind(key, restless_s)
        status = decide(farm, endpoints, loss, nodes, timestamps.seconds(self._now()), refused_ips, refused)
        accepted = not (farm.invalid or refused) and (loss is None or not loss.everything)
        late = self._late_nodes(farm, endpoints, accepted=accepted)
        problems = [*problems_of_farm(loss, status), *endpoints.problems, *late]
        self._farm_events.problems(farm, problems)
        if self._conditions is not None:
            self._conditions.about_farm(farm, status, problems)
        unfinished = accepted and status.programmed_nodes < status.total_nodes
        behind = accepted and not all(endpoints_programmed(endpoints, node) for node in nodes)
        self._writer.set_progress(
            key,
            accepted=accepted,
            unfinished_since=farm.since if unfinished else None,
            endpoints_since=endpoints.changed_at if behind else None,
        )
        fields = changed_fields(farm.status.digest, status_digest(status))
        if not fields:
            self._pacing.unchanged(key)
            return None
        reached = min((node.slice_watermark for node in nodes), default=0)
        now = self._clock()
        wait_s = self._pacing.wait_s(key, status, fields, reached, now, scarce=self.budget.is_scarce(now))
        return wait_s if wait_s > 0 else await self._write_status(farm, status, fields)

    async def _write_status(self, farm: FarmRecord, status: FarmStatus, fields: tuple[str, ...]) -> float | None:
        """Write these fields of a status; return the seconds until a retry, or None if all is done."""
        key, began = farm.key, self._clock()
        self.budget.take(began)
        try:
            outcome, dirty = await self._farm_writer.write_status(farm, status, fields)
        except FarmRefusedError as error:
            _log.warning("API server rejects status", namespace=key.namespace, farm=key.name, message=str(error))
            return _REFUSED_RETRY_S
        now = self._clock()
        self.budget.done(now - began, now, overloaded=outcome is Outcome.RETRY)
        self.services.add_all(dirty.services)
        if outcome is Outcome.CONFLICT:
            return _CONFLICT_RETRY_S
        if outcome is Outcome.RETRY:
            return self._backoff(key)
        outdated_s = self._pacing.written(key, now)
        if not LIST.issuperset(fields):
            metrics.FARM_STATUS_SECONDS.observe(outdated_s)
        self._failures.pop(key, None)
        return None

    def _late_nodes(self, farm: FarmRecord, endpoints: FarmEndpoints, *, accepted: bool) -> list[Problem]:
        """Return what is to be said of nodes that are late with a farm, and report it if they no longer are."""
        late = Late()
        if accepted:
            late = self._lateness.look(farm, endpoints.changed_at, self.cache.working_nodes(), self._clock())
        else:
            self._lateness.forget(farm.key)
        if late.again_s is not None:
            # Not among those that wait: their number delays the statuses of the namespace.
            self.statuses.remind(farm.key, late.again_s)
        if late.nodes:
            self._late.add(farm.key)
            return [problem(late, self._lateness.after_s)]
        if farm.key in self._late and accepted and late.again_s is None:
            self._late.discard(farm.key)
            self._farm_events.recovered(farm)
        return []

    async def _disown(self, farm: FarmRecord, owner: Owner) -> float | None:
        """Remove a forged controller from a farm, unless its Service is about to restore the labels."""
        key = ServiceKey(farm.key.namespace, owner.name)
        if any(apply.key == farm.key for apply in self._diff(key, self.cache.services.get(key)).applies):
            self.services.add(key)
            return _OWNER_RETRY_S
        self._events.report(Subject(FARMS, *farm.key, farm.uid), [forged(owner)])
        try:
            outcome, dirty = await self._farm_writer.disown(farm)
        except FarmRefusedError as error:
            _log.warning(
                "API server rejects owner",
                namespace=farm.key.namespace,
                farm=farm.key.name,
                message=str(error),
            )
            return _REFUSED_RETRY_S
        self._mark_statuses(dirty)
        if outcome is Outcome.RETRY:
            return self._backoff(farm.key)
        return None

    def _backoff(self, key: ServiceKey | FarmKey) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(_RETRY_FIRST_S * 2.0 ** min(failures - 1, 16), _RETRY_MAX_S)


def _whole(port: PortKey | None) -> PortKey | None:
    """Return what both farms of a Service port have in common."""
    return port and port._replace(external=False)
