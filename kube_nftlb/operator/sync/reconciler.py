"""Reconcile Services, and the statuses of their farms: both halves, connected."""

from collections.abc import Callable, Collection

from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.kube.events import Events
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import Profile
from kube_nftlb.operator.status.lateness import Lateness
from kube_nftlb.operator.sync.farm_events import FarmEvents
from kube_nftlb.operator.sync.farm_statuses import StatusReconciler
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.forged_owners import ForgedOwners
from kube_nftlb.operator.sync.planner import Planner
from kube_nftlb.operator.sync.route_farms import RouteFarms
from kube_nftlb.operator.sync.service_conditions import ServiceConditions
from kube_nftlb.operator.sync.services import ServiceReconciler
from kube_nftlb.operator.sync.status_budget import StatusBudget
from kube_nftlb.operator.sync.status_pacing import StatusPacing, StatusTiming
from kube_nftlb.operator.sync.write_batch import BatchWriter

_NOT_PROGRAMMED_S = 30.0
_STATUSES_PER_S = 500
"""The default of the highest rate at which statuses are written."""


class Reconciler:
    """Services become farms, and what nodes report of these becomes their status. ``clock`` returns seconds."""

    def __init__(
        self,
        ingest: Ingest,
        farm_writer: FarmWriter,
        events: Events,
        clock: Callable[[], float],
        profile: Profile = Profile(),  # noqa: B008 - immutable
        timing: StatusTiming = StatusTiming(),  # noqa: B008 - immutable
        budget: StatusBudget | None = None,
        lateness: Lateness | None = None,
        on_policies: Callable[[Collection[PolicyKey]], None] = lambda _: None,
        conditions: ServiceConditions | None = None,
    ) -> None:
        """``on_policies`` gets the policies to which the farms that are written refer, or did.

        ``conditions`` gets what Events tell of Services and their farms; None: Services have no condition of ours.
        """
        self._on_policies = on_policies
        planner = Planner(ingest, profile)
        farm_events = FarmEvents(events, ingest.cache)
        batch_writer = BatchWriter(farm_writer, farm_events, ingest.cache, profile.engine, self._written)
        self.services = ServiceReconciler(ingest, planner, batch_writer, events, clock, self._written, conditions)
        self.routes = RouteFarms(ingest, farm_writer, clock, self._written)
        forged_owners = ForgedOwners(
            ingest.cache, planner, self.services.queue, self.routes, farm_writer, events, self._written
        )
        self.statuses = StatusReconciler(
            ingest.cache,
            farm_writer,
            farm_events,
            forged_owners,
            self.services.queue,
            clock,
            StatusPacing(timing),
            budget or StatusBudget(_STATUSES_PER_S),
            lateness or Lateness(_NOT_PROGRAMMED_S),
            [conditions] if conditions is not None else [],
        )

    def mark(self, affected: Affected) -> None:
        """Queue everything that may be out of date."""
        for key in affected.services:
            self.services.queue.add(key)
        self.routes.mark(affected.farms)
        self.statuses.mark(affected.farms)

    def stalled_s(self) -> float:
        """Return the seconds since a worker took or finished anything; 0 if nothing is due."""
        queues = (self.services.queue, self.routes.queue, self.statuses.queue)
        return max(queue.stalled_s() for queue in queues)

    def _written(self, affected: Affected) -> None:
        # Not the Service: it is being reconciled, and the answer for its farm is no reason to do it again.
        self.statuses.mark(affected.farms)
        self._on_policies(affected.policies)
