"""Reconcile the statuses of farms with what the nodes report."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Protocol

import structlog

from kube_nftlb import metrics
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord, changed_fields, status_digest
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints, Problem, farm_endpoints
from kube_nftlb.operator.status.farm_status import decide, endpoints_programmed, problems_of_farm
from kube_nftlb.operator.status.lateness import Late, Lateness, problem
from kube_nftlb.operator.sync.farm_events import FarmEvents
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome
from kube_nftlb.operator.sync.forged_owners import ForgedOwners
from kube_nftlb.operator.sync.status_budget import StatusBudget
from kube_nftlb.operator.sync.status_pacing import LIST, StatusPacing

_REFUSED_RETRY_S = 60.0
_CONFLICT_RETRY_S = 0.1
_DELAY_S = 0.05
"""The delay of each status: the slices of a Service change one after the other, and nodes report one by one."""
_LEAST_S = 0.001
"""The shortest delay: less may be no time at all to a clock."""
_PATIENCE_S = 0.1
"""Maximum time in seconds that a status waits for Services to be reconciled first."""

_log = structlog.get_logger()


class FarmObserver(Protocol):
    """Gets what is decided about farms, before it is written."""

    def about_farm(self, farm: FarmRecord, status: FarmStatus, problems: Iterable[Problem]) -> None:
        """Take the status of a farm, and what Events tell of it."""

    def forget_farm(self, key: FarmKey) -> None:
        """Forget a farm that is gone, or about to go."""


class StatusReconciler:
    """The queue of farms and its workers. ``clock`` returns seconds."""

    def __init__(
        self,
        cache: Cache,
        farm_writer: FarmWriter,
        farm_events: FarmEvents,
        forged_owners: ForgedOwners,
        services: WorkQueue[ServiceKey],
        clock: Callable[[], float],
        pacing: StatusPacing,
        budget: StatusBudget,
        lateness: Lateness,
        observers: Iterable[FarmObserver],
    ) -> None:
        self.queue: WorkQueue[FarmKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self.budget = budget
        self._cache = cache
        self._farm_writer = farm_writer
        self._farm_events = farm_events
        self._forged_owners = forged_owners
        self._services = services
        self._clock = clock
        self._pacing = pacing
        self._lateness = lateness
        self.observers = list(observers)
        """What gets what is decided about farms."""
        self._backoff: Backoff[FarmKey] = Backoff()
        self._late: set[FarmKey] = set()
        """The farms of which an Event says that nodes are late."""

    def mark(self, farms: Iterable[FarmKey]) -> None:
        """Queue farms whose status may be out of date."""
        for key in farms:
            farm = self._cache.farms.get(key)
            self.queue.add(key, 0 if farm is not None and farm.is_forged else _DELAY_S)

    async def work(self) -> None:
        """Write statuses of farms until cancelled; Services come first, for a while."""
        await self.queue.work("farm status", self._report_when_idle, self._until_budget)

    async def _until_budget(self) -> None:
        """Wait until a status may be written: until then farms wait in the queue, where namespaces take turns."""
        self.budget.set_nodes(len(self._cache.nodes.keys()))
        if (wait_s := self.budget.wait_s(self._clock())) > 0:
            await asyncio.sleep(wait_s)

    async def _report_when_idle(self, key: FarmKey) -> float | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._services.until_idle()
        return await self._report(key)

    async def _report(self, key: FarmKey) -> float | None:
        """Reconcile the status of a farm; return the seconds until a retry, or None if all is done."""
        farm = self._cache.farms.get(key)
        if farm is None or farm.terminating:
            self._forget(key)
            return None
        if farm.owner is not None and farm.is_forged:
            return await self._forged_owners.remove(farm, farm.owner, lambda: self._backoff.failed(key))
        loss = self._cache.conflicts.get(key)
        refused = self._cache.budgets.refusal_of_farm(key)
        endpoints = farm_endpoints(farm, self._cache)
        nodes = list(self._cache.debounced_nodes)
        service = ServiceKey(farm.port.namespace, farm.port.service) if farm.port else None
        refused_ips = self._cache.refused_ips.get(service, ()) if service is not None else ()
        if (restless_s := self._pacing.restless_s(key, endpoints.changed_at, self._clock())) > 0:
            endpoints = endpoints._replace(shown=())
            self.queue.remind(key, max(restless_s, _LEAST_S))
        status = decide(farm, endpoints, loss, nodes, timestamps.seconds(datetime.now(UTC)), refused_ips, refused)
        accepted = not (farm.invalid or refused) and (loss is None or not loss.everything)
        late = self._late_nodes(farm, endpoints, accepted=accepted)
        problems = [*problems_of_farm(loss, status), *endpoints.problems, *late]
        self._farm_events.problems(farm, problems)
        for each in self.observers:
            each.about_farm(farm, status, problems)
        # Without a node, nobody has it.
        unfinished = accepted and status.programmed_nodes < max(status.total_nodes, 1)
        behind = accepted and not all(endpoints_programmed(endpoints, node) for node in nodes)
        self._cache.progress.set_farm(
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
        return max(wait_s, _LEAST_S) if wait_s > 0 else await self._write(farm, status, fields)

    async def _write(self, farm: FarmRecord, status: FarmStatus, fields: tuple[str, ...]) -> float | None:
        """Write these fields of a status; return the seconds until a retry, or None if all is done."""
        key, began = farm.key, self._clock()
        self.budget.take(began)
        try:
            outcome, affected = await self._untracked(farm)
            if outcome is Outcome.DONE:
                farm = self._cache.farms.get(key) or farm
                outcome, affected = await self._farm_writer.write_status(farm, status, fields)
        except FarmRefusedError as error:
            _log.warning("API server rejects status", namespace=key.namespace, farm=key.name, message=str(error))
            return _REFUSED_RETRY_S
        now = self._clock()
        self.budget.done(now - began, now, overloaded=outcome is Outcome.RETRY)
        self._services.add_all(affected.services)
        if outcome is Outcome.CONFLICT:
            return _CONFLICT_RETRY_S
        if outcome is Outcome.RETRY:
            return self._backoff.failed(key)
        if outcome is Outcome.OBSOLETE:
            # By then the cache knows if it is gone.
            return _REFUSED_RETRY_S
        outdated_s = self._pacing.written(key, now)
        if not LIST.issuperset(fields):
            metrics.FARM_STATUS_SECONDS.observe(outdated_s)
        self._backoff.forget(key)
        return None

    async def _untracked(self, farm: FarmRecord) -> tuple[Outcome, Affected]:
        """Make the next statuses of a farm of ours cheaper, if that pays off. Raises FarmRefusedError."""
        ours = farm.port is not None or farm.made_of_route
        if not (ours and farm.is_tracked and self._pacing.pays_off(farm.key)) or self.budget.is_scarce(self._clock()):
            return Outcome.DONE, Affected()
        self.budget.take(self._clock())
        self._pacing.spent(farm.key)
        return await self._farm_writer.untrack(farm)

    def _late_nodes(self, farm: FarmRecord, endpoints: FarmEndpoints, *, accepted: bool) -> list[Problem]:
        """Return what is to be said of nodes that are late with a farm, and report it if they no longer are."""
        late = Late()
        if accepted:
            late = self._lateness.look(farm, endpoints.changed_at, self._cache.working_nodes(), self._clock())
        else:
            self._lateness.forget(farm.key)
        if late.again_s is not None:
            # Not among those that wait: their number delays the statuses of the namespace.
            self.queue.remind(farm.key, late.again_s)
        if late.nodes:
            self._late.add(farm.key)
            return [problem(late, self._lateness.after_s)]
        if farm.key in self._late and accepted and late.again_s is None:
            self._late.discard(farm.key)
            self._farm_events.recovered(farm)
        return []

    def _forget(self, key: FarmKey) -> None:
        """Forget a farm that is gone, or about to go."""
        self._backoff.forget(key)
        self._pacing.forget(key)
        self._lateness.forget(key)
        self._late.discard(key)
        for each in self.observers:
            each.forget_farm(key)
