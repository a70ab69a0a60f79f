"""Report in Events what befalls a farm: on the farm, and on its Service, where users look."""

from kube_nftlb.api.farm.engines import lacking
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import FARMS, SERVICES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.farms.spec import Spec
from kube_nftlb.operator.status.farm_endpoints import Problem
from kube_nftlb.reasons import EventReason
from kube_nftlb.settings import DefaultEngine


class FarmEvents:
    """Reports on farms, and on the Services that they were made from."""

    def __init__(self, events: Events, cache: Cache) -> None:
        self._events = events
        self._cache = cache

    def problems(self, farm: FarmRecord, problems: list[Problem]) -> None:
        """Report the current problems of a farm."""
        self._events.report(Subject(FARMS, *farm.key, farm.uid), problems)
        if (service := self._service_of(farm)) is not None:
            name = farm.key.name
            self._events.report(_subject(service), [_about(name, problem) for problem in problems], about=name)

    def recovered(self, farm: FarmRecord) -> None:
        """Report that no ready node is late with a farm any more."""
        self._news(farm, "Programmed", "its changes are programmed on all ready nodes again")

    def written(self, before: FarmRecord, spec: Spec, default: DefaultEngine) -> None:
        """Report if a write changed the engine of a farm; ``default`` is that of Services that name none."""
        if (engine := spec["engine"]) == before.engine:
            return
        message = f"the engine {engine} serves it instead of {before.engine}; open connections go on"
        if default == "auto" and (why := lacking(spec)) is not None:
            message += f" ({why})"
        self._news(before, "EngineChanged", message)

    def _news(self, farm: FarmRecord, reason: EventReason, message: str) -> None:
        """Report what is no problem."""
        self._events.report_resolved(Subject(FARMS, *farm.key, farm.uid), reason, message)
        if (service := self._service_of(farm)) is not None:
            self._events.report_resolved(_subject(service), reason, f"farm {farm.key.name}: {message}")

    def _service_of(self, farm: FarmRecord) -> Service | None:
        """Return the Service that controls a farm which the operator made."""
        service = self._cache.services.get(ServiceKey(farm.port.namespace, farm.port.service)) if farm.port else None
        return service if service is not None and farm.owner_uid == service.metadata.uid else None


def _subject(service: Service) -> Subject:
    return Subject(SERVICES, service.metadata.namespace, service.metadata.name, service.metadata.uid)


def _about(farm: str, problem: Problem) -> Problem:
    message = f"farm {farm}: {problem.message}"
    if isinstance(problem, Lasting):
        return Lasting(problem.reason, message)
    return problem._replace(message=message)
