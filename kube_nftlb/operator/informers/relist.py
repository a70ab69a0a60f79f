"""List all objects: first before anything is decided, later to repair what watches missed.

The first list is not kopf's index (1.45), which is full before any event handler runs: the task of each object waits
for that and is woken for each other one, so the time grows with the square of their number. For 500 and 2,000 Services
it took 2 and 30 s of processor time, and kopf's events with this list 0.4 and 1.1 s; for 2,000, memory grew by 40 MB
instead of 17.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES, JsonObject, Resource
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.ingest import Ingest, ObjectKey
from kube_nftlb.operator.informers.kinds import BY_KOPF, KINDS
from kube_nftlb.operator.informers.malformed import skip_malformed
from kube_nftlb.operator.informers.waiting import until_set

_PAGE = 250
"""Objects per page: all EndpointSlices at once would be the operator's peak of memory."""

_GRACE_S = 2.0
"""Differences that a watch resolves within this time are ignored."""

_SOON_S = 2.0
"""The delay of a list after kopf has listed: it does not report what was deleted since it lost its watch."""

_RETRY_MAX_S = 5.0

_log = structlog.get_logger()


class Lister:
    """Lists the watched kinds into the cache; ``on_change`` gets what that makes out of date."""

    def __init__(self, kube: Kube, ingest: Ingest, on_change: Callable[[Affected], None]) -> None:
        self._kube = kube
        self._ingest = ingest
        self._on_change = on_change
        self._listed_by_kopf = asyncio.Event()
        self._reported_by_kopf = False

    def note_event_of_kopf(self, *, of_list: bool) -> None:
        """Note that kopf reports a Service. If it is of a list, or the first of all, kopf has begun to list them."""
        if of_list or not self._reported_by_kopf:
            self._listed_by_kopf.set()
        self._reported_by_kopf = True

    async def fill(self) -> None:
        """List what kopf follows, with retries, once it has listed the Services.

        Its watch reports what is deleted after its list, and there is no watch after this one. The other way around,
        what was deleted between the two would be in neither, and would get farms. kopf has a Service to report, as
        the API server keeps one of its own; just after its start it may create that one only after kopf's list.
        """
        warning = "kopf has not reported any Service yet: no farms are written until it does"
        await until_set(self._listed_by_kopf, partial(_log.warning, warning))
        for resource in BY_KOPF:
            await self._with_retries(resource)
        metrics.LAST_LIST.set_to_current_time()

    async def fill_services(self) -> None:
        """List the Services once more, with retries.

        A new leader may know farms that the last one just made from a Service which it does not know yet.
        """
        await self._with_retries(SERVICES)

    async def run(self, every_s: float) -> None:
        """Repair the cache every ``every_s`` seconds, and soon after kopf has listed, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._listed_by_kopf.wait()
            kinds: Iterable[Resource] = KINDS
            if self._listed_by_kopf.is_set():
                await asyncio.sleep(_SOON_S)
                kinds = BY_KOPF
                self._listed_by_kopf.clear()
            try:
                async for affected in self._repair(kinds):
                    self._on_change(affected)
                if kinds is KINDS:
                    metrics.LAST_LIST.set_to_current_time()
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("periodic list failed", error=str(error))
                if kinds is BY_KOPF:
                    # Until then nobody knows what was deleted while kopf had no watch.
                    self._listed_by_kopf.set()

    async def _repair(self, kinds: Iterable[Resource]) -> AsyncIterator[Affected]:
        """List these kinds and cache what the watches missed; yield what each find makes out of date.

        Raises KubeError, KubeUnreachableError, RestoredError.
        """
        for resource in kinds:
            suspects: dict[ObjectKey, JsonObject] = {}
            listed: set[ObjectKey] = set()
            version = 0
            async for listed_at, page in self._pages(resource):
                version = listed_at
                for raw in page:
                    listed.add(self._ingest.key(resource, raw))
                    self._ingest.check_listed(resource, raw, version)
                    if self._ingest.is_newer(resource, raw):
                        suspects[self._ingest.key(resource, raw)] = raw
            gone = self._ingest.unlisted(resource, listed, version)
            if suspects or gone:
                await asyncio.sleep(_GRACE_S)
            for raw in suspects.values():
                if self._ingest.is_newer(resource, raw):
                    self._found(resource, raw["metadata"]["name"], "changed")
                    yield skip_malformed(self._ingest.put, resource, raw)
            for key in gone:
                if (affected := self._ingest.forget(resource, key, version)) != Affected():
                    self._found(resource, str(key), "deleted")
                    yield affected

    async def _with_retries(self, resource: Resource) -> None:
        delay_s = 0.1
        while True:
            try:
                return await self._once(resource)
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("list failed, retrying", resource=resource.plural, error=str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _RETRY_MAX_S)

    async def _once(self, resource: Resource) -> None:
        listed: set[ObjectKey] = set()
        version = 0
        async for listed_at, page in self._pages(resource):
            version = listed_at
            for raw in page:
                listed.add(self._ingest.key(resource, raw))
                self._ingest.check_listed(resource, raw, version)
                self._on_change(skip_malformed(self._ingest.put, resource, raw))
        for key in self._ingest.unlisted(resource, listed, version):
            self._on_change(self._ingest.forget(resource, key, version))

    async def _pages(self, resource: Resource) -> AsyncIterator[tuple[int, list[JsonObject]]]:
        query = {"limit": str(_PAGE)}
        while True:
            page = await self._kube.request("GET", resource.path(), query=query)
            yield int(page["metadata"]["resourceVersion"]), page["items"]
            if not (token := page["metadata"].get("continue")):
                return
            query["continue"] = token

    def _found(self, resource: Resource, name: str, what: str) -> None:
        metrics.RELIST_REPAIRS.labels(resource.plural).inc()
        _log.warning("a watch missed a change", resource=resource.plural, name=name, change=what)
