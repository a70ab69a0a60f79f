"""List and watch the objects of Gateway API, of the kinds whose CustomResourceDefinitions are there.

Users install these, perhaps later: what the API server has is asked again and again.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from kube_nftlb import errors, names
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import CRDS, GATEWAYS, JsonObject, Resource
from kube_nftlb.operator.cache.gateway_store import KINDS, GatewayStore, Ref, ref_of
from kube_nftlb.operator.informers.waiting import until_set

DISCOVER_EVERY_S = 15.0
"""The interval at which the API server is asked which kinds it has."""
_FIRST_EVERY_S = 2.0
"""The same until it has said of each kind whether it has it."""
_VERSION = f"{names.GATEWAY_API}/bundle-version"

_log = structlog.get_logger()


class GatewayInformer:
    """Keeps a store up to date. ``on_change`` is called after each change, ``on_seen`` with each object that comes."""

    def __init__(
        self, kube: Kube, store: GatewayStore, on_change: Callable[[], None], on_seen: Callable[[Ref], None]
    ) -> None:
        self._kube = kube
        self._store = store
        self._on_change = on_change
        self._on_seen = on_seen
        self._watches: dict[Resource, asyncio.Task[None]] = {}
        self._waiting: set[Resource] = set(KINDS)
        """Kinds that are not listed yet."""
        self._versions: dict[Resource, str] = {}
        self._routability = False
        self._removed: set[str] | None = None
        """The uids of objects that are gone since a list of their kind began; None while there is none."""
        self.listed = asyncio.Event()
        """Set once all kinds that are there have been listed."""

    async def run(self) -> None:
        """Follow the kinds that are there until cancelled. Raises what ends a watch, as RestoredError."""
        try:
            while True:
                await self._discover()
                await self._pause(_FIRST_EVERY_S if self._waiting else DISCOVER_EVERY_S)
        finally:
            for task in self._watches.values():
                task.cancel()

    async def until_listed(self) -> None:
        """Wait until all kinds that are there have been listed."""
        await until_set(self.listed, self._warn)

    async def catch_up(self) -> None:
        """List all kinds that are there once more, with retries.

        A new leader may not know yet what the last one gave to Gateways, and would delete the farms that it has just
        made, or serve by a ReferenceGrant that is gone.
        """
        for resource in KINDS:
            await self._list_again(resource)

    async def _list_again(self, resource: Resource) -> None:
        """Put in the objects of a kind, and remove those that are gone."""
        while resource in self._watches:
            removed = self._removed = set()
            try:
                listing = await self._kube.list(resource, transform=_without_managed_fields)
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("cannot list kind of Gateway API, retrying", kind=resource.kind, error=str(error))
                await asyncio.sleep(_FIRST_EVERY_S)
                continue
            for raw in listing.items:
                if raw["metadata"]["uid"] not in removed:
                    self._put(resource, raw)
            listed = {ref_of(resource, raw) for raw in listing.items}
            self._store.remove_unlisted(resource, listed, int(listing.resource_version))
            break
        self._removed = None

    def _warn(self) -> None:
        kinds = sorted(each.kind for each in self._waiting)
        _log.warning("kinds of Gateway API are not listed yet: addresses of Gateways and Services wait", kinds=kinds)

    async def _pause(self, seconds: float) -> None:
        if not self._watches:
            await asyncio.sleep(seconds)
            return
        done, _ = await asyncio.wait(self._watches.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()

    async def _discover(self) -> None:
        try:
            present = await self._kinds()
            gone = {each for each in KINDS if await self._is_gone(each)}
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            _log.warning("cannot ask which kinds of Gateway API there are, retrying", error=str(error))
            return
        for resource in KINDS:
            if resource in gone:
                self._miss(resource)
            elif resource in present and resource not in self._watches:
                _log.info("kind of Gateway API found", kind=resource.kind)
                self._watches[resource] = asyncio.create_task(self._watch(resource))
        versions = frozenset(self._versions.get(each, "") for each in self._watches)
        if (versions, self._routability) != (self._store.versions, self._store.routability):
            self._store.versions, self._store.routability = versions, self._routability
            self._on_change()

    def _miss(self, resource: Resource) -> None:
        """Note that a kind is gone, and all objects of it."""
        if (task := self._watches.pop(resource, None)) is not None:
            _log.info("kind of Gateway API gone", kind=resource.kind)
            task.cancel()
        self._replace(resource, Listing([], "0"))

    async def _kinds(self) -> set[Resource]:
        try:
            found = await self._kube.request("GET", f"/apis/{KINDS[0].api_version}")
        except errors.NotFoundError:
            return set()
        plurals = {each["name"] for each in found["resources"]}
        return {each for each in KINDS if each.plural in plurals}

    async def _is_gone(self, resource: Resource) -> bool:
        """Return True if a kind is not defined, or not served. Discovery is no proof: it may not know all yet."""
        try:
            found = await self._kube.get(CRDS, f"{resource.plural}.{resource.group}")
        except errors.NotFoundError:
            return True
        except errors.KubeError as error:
            if error.status != 403:
                raise
            # That proves nothing. A kind that discovery knows is watched all the same.
            return False
        self._versions[resource] = str((found["metadata"].get("annotations") or {}).get(_VERSION, ""))
        versions = [each for each in found["spec"]["versions"] if each["name"] == resource.version]
        if resource is GATEWAYS:
            self._routability = any(map(has_routability, versions))
        return not any(each["served"] for each in versions)

    async def _watch(self, resource: Resource) -> None:
        def put(raw: JsonObject) -> None:
            self._put(resource, raw)
            self._on_change()

        def remove(raw: JsonObject) -> None:
            if self._removed is not None:
                self._removed.add(raw["metadata"]["uid"])
            self._store.remove(resource, raw)
            self._on_change()

        handlers = Handlers(lambda listing: self._replace(resource, listing), put, remove)
        await list_and_watch(self._kube, resource, handlers, transform=_without_managed_fields)

    def _replace(self, resource: Resource, listing: Listing) -> None:
        self._store.replace(resource, listing.items)
        for raw in listing.items:
            self._on_seen(ref_of(resource, raw))
        self._waiting.discard(resource)
        if not self._waiting:
            self.listed.set()
        self._on_change()

    def _put(self, resource: Resource, raw: JsonObject) -> None:
        self._store.put(resource, raw)
        self._on_seen(ref_of(resource, raw))


def has_routability(version: JsonObject) -> bool:
    """Return True if the addresses of Gateways have a routability, by a version of their CustomResourceDefinition."""
    found: Any = version
    for key in ("schema", "openAPIV3Schema", "properties", "spec", "properties", "addresses", "items", "properties"):
        found = found.get(key) or {}
    return "routability" in found


def _without_managed_fields(raw: JsonObject) -> JsonObject:
    raw["metadata"].pop("managedFields", None)
    return raw
