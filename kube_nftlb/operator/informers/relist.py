"""List all objects: first before anything is decided, later to repair what watches missed."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES, JsonObject, Resource
from kube_nftlb.operator.cache.cache import Dirty
from kube_nftlb.operator.cache.ingest import CacheWriter, ObjectKey
from kube_nftlb.operator.informers.kinds import BY_KOPF, KINDS

_PAGE = 250
"""Objects per page: all EndpointSlices at once would be the operator's peak of memory."""

_GRACE_S = 2.0
"""Differences that a watch resolves within this time are ignored."""

_RETRY_MAX_S = 5.0

_log = structlog.get_logger()


class Lister:
    """Lists the watched kinds into the cache."""

    def __init__(self, kube: Kube, writer: CacheWriter) -> None:
        self._kube = kube
        self._writer = writer

    async def fill(self) -> Dirty:
        """List what kopf is about to watch, with retries; return what that makes out of date."""
        found = [dirty for resource in BY_KOPF for dirty in await self._with_retries(resource)]
        metrics.LAST_LIST.set_to_current_time()
        return Dirty(*(frozenset().union(*parts) for parts in zip(*found, strict=True)))

    async def fill_services(self) -> None:
        """List the Services once more, with retries.

        A new leader may know farms that the last one just made from a Service which it does not know yet.
        """
        await self._with_retries(SERVICES)

    async def repair(self, kinds: Iterable[Resource] = KINDS) -> AsyncIterator[Dirty]:
        """List these kinds and cache what the watches missed; yield what each find makes out of date.

        Raises KubeError, KubeUnreachableError.
        """
        for resource in kinds:
            suspects: dict[ObjectKey, JsonObject] = {}
            listed: set[ObjectKey] = set()
            version = 0
            async for listed_at, page in self._pages(resource):
                version = listed_at
                for raw in page:
                    listed.add(self._writer.key(resource, raw))
                    if self._writer.is_news(resource, raw):
                        suspects[self._writer.key(resource, raw)] = raw
            gone = self._writer.unlisted(resource, listed, version)
            if suspects or gone:
                await asyncio.sleep(_GRACE_S)
            for raw in suspects.values():
                if self._writer.is_news(resource, raw):
                    self._found(resource, raw["metadata"]["name"], "changed")
                    yield self._writer.put(resource, raw)
            for key in gone:
                if (dirty := self._writer.forget(resource, key, version)) != Dirty():
                    self._found(resource, str(key), "deleted")
                    yield dirty

    async def _with_retries(self, resource: Resource) -> list[Dirty]:
        delay_s = 0.1
        while True:
            try:
                return await self._once(resource)
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("list failed, retrying", resource=resource.plural, error=str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _RETRY_MAX_S)

    async def _once(self, resource: Resource) -> list[Dirty]:
        found: list[Dirty] = []
        listed: set[ObjectKey] = set()
        version = 0
        async for listed_at, page in self._pages(resource):
            version = listed_at
            for raw in page:
                listed.add(self._writer.key(resource, raw))
                found.append(self._writer.put(resource, raw))
        found.extend(
            self._writer.forget(resource, key, version) for key in self._writer.unlisted(resource, listed, version)
        )
        return found

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
