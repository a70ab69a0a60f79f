"""EndpointSlices, farms and what nodes report, from the API server to the cache.

There is one slice and more for each Service, and three events of a farm, which the operator writes itself, for each
change of one: on each of them kopf spends a millisecond, a task and a copy. So not kopf, but the project's own
reflector, which looks at an object's resourceVersion and leaves it there where it is known.
"""

import asyncio
from collections.abc import Callable

import structlog

from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import JsonObject, Resource
from kube_nftlb.operator.cache.cache import Dirty
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.informers.kinds import WATCHED

_log = structlog.get_logger()


class Informers:
    """Keeps the cache up to date in ``run``; ``on_change`` is told what each change touches."""

    def __init__(self, kube: Kube, writer: CacheWriter, on_change: Callable[[Dirty], None]) -> None:
        self._kube = kube
        self._writer = writer
        self._on_change = on_change
        self._listed = {resource: asyncio.Event() for resource in WATCHED}

    async def until_listed(self) -> None:
        """Return once all are known: before that a farm might be taken for one that there is not."""
        for event in self._listed.values():
            await event.wait()

    async def run(self, resource: Resource) -> None:
        """List and watch one of WATCHED, for ever."""
        handlers = Handlers(
            replace=lambda listing: self._replace(resource, listing),
            put=lambda raw: self._change(resource, raw, self._writer.put),
            remove=lambda raw: self._change(resource, raw, self._writer.remove),
        )
        await list_and_watch(self._kube, resource, handlers, transform=lambda raw: self._take(resource, raw))

    def _take(self, resource: Resource, raw: JsonObject) -> JsonObject:
        """Take in an object of a list at once, so that no more than a page of them is ever there; its name is kept."""
        self._change(resource, raw, self._writer.put)
        return {"metadata": {key: raw["metadata"].get(key) for key in ("namespace", "name")}}

    def _replace(self, resource: Resource, listing: Listing) -> None:
        version = int(listing.resource_version)
        listed = {self._writer.key(resource, raw) for raw in listing.items}
        for key in self._writer.unlisted(resource, listed, version):
            self._on_change(self._writer.forget(resource, key, version))
        self._listed[resource].set()

    def _change(self, resource: Resource, raw: JsonObject, change: Callable[[Resource, JsonObject], Dirty]) -> None:
        try:
            dirty = change(resource, raw)
        except Exception:
            # An object that nobody thought of must not end the service of all others.
            _log.exception("an object cannot be read", resource=resource.plural, name=raw["metadata"]["name"])
        else:
            self._on_change(dirty)
