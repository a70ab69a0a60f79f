"""Give Services addresses from NftlbAddressPools: write what ``addresses.allocate`` decides into their statuses."""

import asyncio
from collections.abc import Callable, Iterable, Set
from datetime import UTC, datetime
from operator import attrgetter

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.api.address_ranges import Ip
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import SERVICES, JsonObject
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.addresses.allocate import Outcome, allocate
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.requests import condition_of
from kube_nftlb.operator.addresses.service_status import is_written, status
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.subjects import ADDRESS_PART

_LOOK_S = 0.1
"""The shortest interval in which Services and Gateways that wait are looked at again, after something was freed."""
_LOOK_EACH_S = 0.001
"""How much longer it is for each of them: however many there are, most of the time is for others."""
_REFUSED_RETRY_S = 60.0
_UNCERTAIN_RETRY_S = 0.5

_log = structlog.get_logger()


class AddressAssigner:
    """Keeps the addresses of Services up to date. Namespaces take turns.

    ``now`` returns the date, ``leads`` whether no other replica can lead now.
    ``on_change`` gets what a write makes out of date: the farms of the Service. ``on_decided`` gets a Service that
    ``mark`` has held back. ``on_freed`` is called when others that wait may get addresses, too, and returns how many.
    """

    def __init__(
        self,
        kube: Kube,
        ingest: Ingest,
        book: Book,
        events: Events,
        clock: Callable[[], float],
        on_change: Callable[[Affected], None],
        on_decided: Callable[[ServiceKey], None],
        on_freed: Callable[[], int] = lambda: 0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        claimed: asyncio.Event | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """``claimed`` is set once it is known what others than Services have had: before, nobody gets an address."""
        self._kube = kube
        self._ingest = ingest
        self._cache = ingest.cache
        self._book = book
        self._events = events
        self._on_change = on_change
        self._on_decided = on_decided
        self._on_freed = on_freed
        self._now = now
        self._claimed = claimed
        self._leads = leads
        self._queue: WorkQueue[ServiceKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._waiting: dict[ServiceKey, str] = {}
        """The Services that lack an address, with the reason."""
        self._backoff: Backoff[ServiceKey] = Backoff()
        self._new: set[ServiceKey] = set()
        """Those that were held back."""

    @property
    def waiting(self) -> Iterable[str]:
        """Return the reason of each Service that lacks an address."""
        return self._waiting.values()

    def mark(self, services: Iterable[ServiceKey]) -> Set[ServiceKey]:
        """Queue those Services that get addresses from pools, or did. Return those that are held back.

        These are new, and are about to get an address: their farms are to be made once, with it.
        """
        held: set[ServiceKey] = set()
        for key in services:
            service = self._cache.services.get(key)
            if key in self._waiting or (service is not None and self._concerns(key, service)):
                self._queue.add(key)
                if service is not None and self._is_open and self._is_new(key, service):
                    held.add(key)
        self._new |= held
        return held

    async def work(self) -> None:
        """Write addresses until cancelled."""
        if self._claimed is not None:
            await self._claimed.wait()
        await self._queue.work("addresses of Service", self._handle)

    async def retry(self) -> None:
        """Look again at the Services that wait whenever they may get addresses, until cancelled."""
        others = 0
        while True:
            await asyncio.sleep(_LOOK_S + _LOOK_EACH_S * (len(self._waiting) + others))
            if self._ingest.pools is not None:
                self._on_change(self._ingest.pools.judge(cluster_ips=True))
            if self._book.freed:
                self._book.freed = False
                self._queue.add_all(list(self._waiting))
                others = self._on_freed()

    @property
    def _is_open(self) -> bool:
        return self._claimed is None or self._claimed.is_set()

    def _concerns(self, key: ServiceKey, service: Service) -> bool:
        return self._book.request(key) is not None or condition_of(service) is not None

    def _is_new(self, key: ServiceKey, service: Service) -> bool:
        decided = key in self._waiting or bool(self._book.has(key)) or condition_of(service) is not None
        return self._book.request(key) is not None and not decided

    async def _handle(self, key: ServiceKey) -> float | None:
        try:
            return await self._assign(key)
        finally:
            if key in self._new:
                self._new.discard(key)
                self._on_decided(key)

    async def _assign(self, key: ServiceKey) -> float | None:
        """Write the addresses of a Service if they changed; return the seconds until a retry, None if all is done."""
        service, request = self._cache.services.get(key), self._book.request(key)
        self._waiting.pop(key, None)
        if service is None:
            self._backoff.forget(key)
            return None
        if request is None:
            self._report(key, service, None)
            # What nobody else has written, too, goes with our part of the status.
            return await self._write(key, service, {"conditions": []}) if condition_of(service) is not None else None
        outcome = allocate(request, self._book)
        self._report(key, service, outcome)
        if outcome.waits:
            self._waiting[key] = outcome.reason
        if outcome.leave:
            return None
        self._note(key, outcome.addresses)
        if is_written(service, outcome):
            return None
        return await self._write(key, service, status(service, outcome, timestamps.seconds(self._now())))

    def _note(self, key: ServiceKey, ips: tuple[Ip, ...]) -> None:
        """Note what a Service is to have, and look again at those that ask for such an address as an external IP."""
        had = self._book.has(key)
        self._book.assign(key, ips)
        changed = map(str, set(had) ^ set(self._book.has(key)))
        self._on_change(Affected(services=self._cache.service_index.asking_for(changed)))

    def _report(self, key: ServiceKey, service: Service, outcome: Outcome | None) -> None:
        subject = Subject(SERVICES, *key, service.metadata.uid)
        found = (
            [Lasting(outcome.reason, outcome.message)] if outcome is not None and outcome.reason != "Assigned" else []
        )
        self._events.report(subject, found, ADDRESS_PART)

    async def _write(self, key: ServiceKey, service: Service, body: JsonObject) -> float | None:
        if not self._leads():
            # While this replica stood still, another one may have given these addresses to others.
            return _UNCERTAIN_RETRY_S
        known = {"uid": service.metadata.uid, "resourceVersion": service.metadata.resource_version}
        metadata = {"namespace": key.namespace, "name": key.name, **known}
        applied = {"metadata": metadata, "status": body}
        manager = names.FIELD_MANAGER_ADDRESSES
        try:
            answer = await self._kube.apply(SERVICES, applied, field_manager=manager, subresource="status")
        except (errors.NotFoundError, errors.ConflictError):
            # It is gone, or has changed since the decision: with the news, which are on their way, it is made anew.
            return None
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            where = {"namespace": key.namespace, "service": key.name}
            _log.warning("cannot write addresses of Service, retrying", **where, error=str(error))
            refused = isinstance(error, errors.KubeError) and error.is_refusal
            return _REFUSED_RETRY_S if refused else self._backoff.failed(key)
        self._backoff.forget(key)
        metrics.ADDRESSES_WRITTEN.inc()
        self._on_change(self._ingest.put(SERVICES, answer))
        return None
