"""Take forged controllers from farms: an owner reference to a Service or route that did not make the farm."""

from collections.abc import Callable

import structlog

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.events import Events, Subject
from kube_nftlb.kube.resources import FARMS
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord, Owner
from kube_nftlb.operator.status.farm_status import forged
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome
from kube_nftlb.operator.sync.planner import Planner
from kube_nftlb.operator.sync.route_farms import RouteFarms

_REFUSED_RETRY_S = 60.0
_OWNER_RETRY_S = 1.0

_log = structlog.get_logger()


class ForgedOwners:
    """Removes them; ``on_written`` gets what the answers make out of date."""

    def __init__(
        self,
        cache: Cache,
        planner: Planner,
        services: WorkQueue[ServiceKey],
        routes: RouteFarms,
        farm_writer: FarmWriter,
        events: Events,
        on_written: Callable[[Affected], None],
    ) -> None:
        self._cache = cache
        self._planner = planner
        self._services = services
        self._routes = routes
        self._farm_writer = farm_writer
        self._events = events
        self._on_written = on_written

    async def remove(self, farm: FarmRecord, owner: Owner, failed: Callable[[], float]) -> float | None:
        """Remove a forged controller from a farm, unless its Service or route is about to restore the labels.

        Return the seconds until a retry, those of ``failed`` after a failure, or None if all is done.
        """
        if self._is_restored(farm, owner):
            return _OWNER_RETRY_S
        self._events.report(Subject(FARMS, *farm.key, farm.uid), [forged(owner)])
        try:
            outcome, affected = await self._farm_writer.disown(farm)
        except FarmRefusedError as error:
            where = {"namespace": farm.key.namespace, "farm": farm.key.name}
            _log.warning("API server rejects owner", **where, message=str(error))
            return _REFUSED_RETRY_S
        self._on_written(affected)
        return failed() if outcome is Outcome.RETRY else None

    def _is_restored(self, farm: FarmRecord, owner: Owner) -> bool:
        if owner.is_route:
            return self._routes.restores(farm, owner)
        key = ServiceKey(farm.key.namespace, owner.name)
        writes = self._planner.writes(key, self._cache.services.get(key))
        if any(apply.key == farm.key for apply in writes.applies):
            self._services.add(key)
            return True
        return False
