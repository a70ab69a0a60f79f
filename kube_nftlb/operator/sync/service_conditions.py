"""Write the condition kube-nftlb.io/Programmed of Services, where the administrator allows it."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.status.farm_endpoints import Problem
from kube_nftlb.operator.status.service_condition import FarmState, condition, decide, farm_state, is_written

_DELAY_S = 2.0
"""The delay of each condition: the nodes have a changed farm within that time, as a rule."""
_INTERVAL_S = 5.0
"""The minimum time between two writes to one Service."""
_PER_S = 20.0
"""The maximum rate of writes to all Services."""
_RETRY_S = 5.0
_REFUSED_RETRY_S = 60.0

_log = structlog.get_logger()


class ServiceConditions:
    """Keeps the conditions up to date in ``run``. ``clock`` returns seconds, ``now`` the date."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._clock = clock
        self._now = now
        self._queue: WorkQueue[ServiceKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._problems: dict[ServiceKey, tuple[Problem, ...]] = {}
        self._farms: dict[FarmKey, FarmState] = {}
        self._service_of: dict[FarmKey, ServiceKey] = {}
        self._written_at: dict[ServiceKey, float] = {}

    def about_service(self, key: ServiceKey, problems: Iterable[Problem]) -> None:
        """Take what is told of a Service itself; of one that is gone, too, to forget it."""
        self._problems[key] = tuple(problems)
        self._queue.add(key, _DELAY_S)

    def about_farm(self, farm: FarmRecord, status: FarmStatus, problems: Iterable[Problem]) -> None:
        """Take what is told of a farm."""
        if farm.port is None:
            return
        self._farms[farm.key] = farm_state(farm.key.name, farm.engine, status, problems)
        service = self._service_of[farm.key] = ServiceKey(farm.port.namespace, farm.port.service)
        self._queue.add(service, _DELAY_S)

    def forget_farm(self, key: FarmKey) -> None:
        """Forget a farm that is gone, or about to go; its Service is looked at again."""
        self._farms.pop(key, None)
        service = self._service_of.get(key)
        if self._cache.farms.get(key) is None:
            # Not before: while the farm is there, its Service counts as served.
            self._service_of.pop(key, None)
        if service is not None:
            self._queue.add(service, _DELAY_S)

    async def run(self) -> None:
        """Write conditions that changed, until cancelled."""
        await self._queue.work("condition of Service", self._report)

    async def _report(self, key: ServiceKey) -> float | None:
        """Write the condition of a Service if it changed; return the seconds until a retry, or None if all is done."""
        if (service := self._cache.services.get(key)) is None:
            self._problems.pop(key, None)
            self._written_at.pop(key, None)
            return None
        before = next((each for each in service.status.conditions if each.type == names.SERVICE_CONDITION), None)
        if not self._cache.is_served(key) and not self._problems.get(key):
            # Another proxy serves it now, or none can: it is not for us to say.
            return await self._write(key, service, []) if before is not None else None
        farms = self._cache.farms_of(key)
        known = [self._farms.get(farm.key) for farm in farms]
        states = [state for state in known if state is not None]
        if len(states) < len(farms):
            # It is queued again once they have been looked at.
            return None
        lacking = [port.plain_name for port in self._cache.ports_without_farm(key)]
        verdict = decide(self._problems.get(key, ()), states, lacking)
        if is_written(verdict, before):
            return None
        if (wait_s := self._written_at.get(key, float("-inf")) + _INTERVAL_S - self._clock()) > 0:
            return wait_s
        now = timestamps.seconds(self._now())
        return await self._write(key, service, [condition(verdict, before, now)])

    async def _write(self, key: ServiceKey, service: Service, conditions: list[dict[str, Any]]) -> float | None:
        metadata = {"namespace": key.namespace, "name": key.name, "uid": service.metadata.uid}
        body = {"metadata": metadata, "status": {"conditions": conditions}}
        self._written_at[key] = self._clock()
        try:
            await self._kube.apply(SERVICES, body, field_manager=names.FIELD_MANAGER_STATUS, subresource="status")
        except errors.NotFoundError:
            return None
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            where = {"namespace": key.namespace, "service": key.name}
            _log.warning("cannot write status of Service, retrying", **where, error=str(error))
            refused = isinstance(error, errors.KubeError) and error.is_refusal
            retry_s: float | None = _REFUSED_RETRY_S if refused else _RETRY_S
        else:
            metrics.SERVICE_STATUSES_WRITTEN.inc()
            retry_s = None
        # Also after a failure: the API server may have too much to do as it is.
        await asyncio.sleep(1 / _PER_S)
        return retry_s
