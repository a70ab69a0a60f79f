"""Keep the farms of routes as ``operator.gateway`` wants them: create, restore and delete them."""

import sys
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from kube_nftlb import metrics
from kube_nftlb.api.budgets import Budget, rank
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.farm_record import FarmRecord, Owner
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import WantedFarm
from kube_nftlb.operator.sync.diff import Apply, Delete, apply_reason
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome

_REFUSED_RETRY_S = 60.0


class RouteFarms:
    """The queue of the farms of routes, and its workers. ``clock`` returns seconds.

    Nothing is deleted before ``replace``: until then what is wanted is not known. ``on_problem`` gets why a farm cannot
    be written, as a sentence, empty once it is.
    """

    def __init__(
        self,
        ingest: Ingest,
        farm_writer: FarmWriter,
        clock: Callable[[], float],
        on_written: Callable[[Affected], None],
    ) -> None:
        """``on_written`` gets what the answers make out of date."""
        self.queue: WorkQueue[FarmKey] = WorkQueue(clock, self._is_urgent, attrgetter("namespace"))
        self.on_problem: Callable[[FarmKey, str], None] = lambda *_: None
        self._cache = ingest.cache
        self._farm_writer = farm_writer
        self._on_written = on_written
        self._wanted: dict[FarmKey, WantedFarm] = {}
        self._budget: Budget[FarmKey] = Budget(ingest.cache.budgets.limits.farms, sys.maxsize)
        """Farms that do not fit are not made: those of a namespace are no more than it may have."""
        self._settled = False
        self.backoff: Backoff[FarmKey] = Backoff()
        """Counts the failed writes of each farm."""

    def want(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> None:
        """Take what is wanted of some farms; None: nothing any more. What goes is queued last."""
        for name, farm in sorted(farms.items(), key=lambda entry: entry[1] is None):
            key = FarmKey(*name)
            if farm is not None:
                self._wanted[key] = farm
                refitted = self._budget.put(key, rank(of_service=True, created=farm.route_created), 1)
            else:
                self._wanted.pop(key, None)
                refitted = self._budget.remove(key)
            self.queue.add_all([key, *refitted])

    def replace(self, farms: Mapping[ObjectKey, WantedFarm | None]) -> None:
        """Take all that is wanted: other farms of routes go."""
        gone = {ObjectKey(*key) for key in self._wanted} - farms.keys()
        self.want({**dict.fromkeys(gone), **farms})
        if not self._settled:
            self._settled = True
            self.mark(self._cache.farms.keys())

    def mark(self, farms: Iterable[FarmKey]) -> None:
        """Queue farms that have changed, or are gone, if they are those of routes."""
        for key in farms:
            farm = self._cache.farms.get(key)
            if key in self._wanted or (farm is not None and farm.is_ours_for_route):
                self.queue.add(key)

    def restores(self, farm: FarmRecord, owner: Owner) -> bool:
        """Return True if a farm without its labels is one of its route, which is about to restore them."""
        wanted = self._wanted.get(farm.key)
        if wanted is None or _owner_uid(wanted) != owner.uid:
            return False
        self.queue.add(farm.key)
        return True

    async def work(self) -> None:
        """Write farms until cancelled."""
        await self.queue.work("farm of route", self._reconcile_or_tell)

    def _is_urgent(self, key: FarmKey) -> bool:
        """Return True for a farm that is to come or to go: clients wait for it."""
        return (key in self._wanted) != (self._cache.farms.get(key) is not None)

    async def _reconcile_or_tell(self, key: FarmKey) -> float | None:
        try:
            return await self._reconcile(key)
        except FarmRefusedError as error:
            metrics.FARMS_REFUSED.inc()
            self.on_problem(key, f"the API server rejects its farm: {error}")
            return _REFUSED_RETRY_S

    async def _reconcile(self, key: FarmKey) -> float | None:
        """Write or delete a farm, if need be; return the seconds until a retry, or None if all is done."""
        wanted, farm = self._wanted.get(key), self._cache.farms.get(key)
        fits = not self._budget.refuses(key)
        outcome, why = Outcome.DONE, ""
        if farm is not None and farm.held_by and self._is_ours(farm):
            # It would serve its clients on when it is to go, and keep its name.
            outcome, affected = await self._farm_writer.release(farm)
            self._on_written(affected)
            farm = self._cache.farms.get(key)
        if outcome is not Outcome.DONE:
            pass
        elif wanted is not None and fits:
            outcome, why = await self._apply(key, wanted, farm)
        elif farm is not None and farm.is_ours_for_route and not farm.terminating and self._settled:
            outcome, affected, _ = await self._farm_writer.delete(Delete(farm, "RouteGone"))
            self._on_written(affected)
        if outcome in (Outcome.RETRY, Outcome.CONFLICT):
            metrics.FARM_WRITE_RETRIES.inc()
            retry_s = self.backoff.failed(key)
            if why and self.backoff.is_lasting(key):
                self.on_problem(key, f"it cannot be written, and is tried again: {why}")
            return retry_s
        self.backoff.forget(key)
        if wanted is not None:
            message = f"the routes of the namespace need more farms than the {self._cache.budgets.limits.farms} that"
            self.on_problem(key, "" if fits else f"{message} the administrator allows; older routes come first")
        # If a CustomResourceDefinition is deleted, it may come back.
        return _REFUSED_RETRY_S if outcome is Outcome.OBSOLETE and wanted is not None else None

    def _is_ours(self, farm: FarmRecord) -> bool:
        """Return True for a farm of a route, and for one that is about to become that."""
        return farm.is_ours_for_route or (farm.key in self._wanted and not farm.terminating)

    async def _apply(self, key: FarmKey, wanted: WantedFarm, farm: FarmRecord | None) -> tuple[Outcome, str]:
        is_owned = farm is not None and farm.owner_uid == _owner_uid(wanted)
        # Its labels are restored, too.
        is_whole = is_owned and farm is not None and farm.made_of_route
        if (reason := apply_reason(farm, wanted.digest, is_owned=is_whole)) is None:
            return Outcome.DONE, ""
        body = {"metadata": {**wanted.metadata, **({"uid": farm.uid} if farm is not None else {})}, "spec": wanted.spec}
        foreign = farm is not None and farm.owner_uid != "" and not is_owned
        outcome, affected, why = await self._farm_writer.apply(Apply(key, body, wanted.digest, reason, foreign))
        self._on_written(affected)
        return outcome, why


def _owner_uid(wanted: WantedFarm) -> str:
    uid: str = wanted.metadata["ownerReferences"][0]["uid"]
    return uid
