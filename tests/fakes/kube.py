"""An API server in memory: objects, resourceVersions, optimistic locking and watches, as far as the tests need them."""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from kube_nftlb import errors
from kube_nftlb.kube.client import Kube, Listing, Transform, WatchEvent
from kube_nftlb.kube.resources import JsonObject, Resource
from kube_nftlb.kube.servers import ApiServers

Key = tuple[Resource, str | None, str]

_POLL_S = 0.001
"""Not 0: in virtual time nobody would reach the end of a pause."""


class Write(NamedTuple):
    """A write as the client sent it."""

    verb: str
    resource: Resource
    name: str
    body: JsonObject


class FakeKube(Kube):
    """Answers at once. ``put`` and ``remove`` are what others do."""

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.servers = ApiServers()
        self.away = False
        """No request is answered."""
        self.delay_s = 0.0
        """Duration in seconds of a write of a status."""
        self.list_errors: deque[errors.KubeNftlbError | None] = deque()
        """Errors that the next lists raise; None answers one."""
        self.watch_errors: deque[Exception] = deque()
        """Errors that the next watches raise once they have delivered everything."""
        self.create_errors: deque[errors.KubeError] = deque()
        """Errors that the next creations raise."""
        self.apply_errors: deque[errors.KubeError] = deque()
        """Errors that the next server-side applies raise."""
        self.answers_lost = 0
        """Number of the next creations that are done, and whose answers are lost."""
        self.lists: list[tuple[str | None, str | None]] = []
        """``not_older_than`` and ``field_selector`` of each list."""
        self.listed: list[JsonObject] = []
        """The objects of the last list, after ``transform``."""
        self.writes: list[Write] = []
        self._objects: dict[Key, JsonObject] = {}
        self._history: list[tuple[Resource | None, WatchEvent]] = []
        self._watches: list[_Watch] = []

    def put(self, resource: Resource, raw: JsonObject) -> JsonObject:
        """Create or replace an object, at its own resourceVersion if it has one."""
        metadata = raw["metadata"]
        self.version = int(metadata.get("resourceVersion") or self.version + 1)
        key = (resource, metadata.get("namespace"), metadata["name"])
        kind = "MODIFIED" if key in self._objects else "ADDED"
        raw = {**raw, "metadata": {"uid": "uid", **metadata, "resourceVersion": str(self.version)}}
        self._objects[key] = raw
        self._happen(resource, WatchEvent(kind, raw))
        return raw

    def remove(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        version: int | None = None,
        *,
        missed: bool = False,
    ) -> None:
        """Delete an object; with ``missed`` no watch delivers it."""
        self.version = version or self.version + 1
        gone = self._objects.pop((resource, namespace, name))
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        if not missed:
            self._happen(resource, WatchEvent("DELETED", gone))

    def bookmark(self, version: int) -> None:
        self.version = version
        self._happen(None, WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}}))

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject | None:
        return self._objects.get((resource, namespace, name))

    async def delivered(self) -> None:
        """Wait until a watch is open and all open ones have delivered everything."""
        while not self._watches or any(watch.position < len(self._history) for watch in self._watches):
            await asyncio.sleep(_POLL_S)
        await asyncio.sleep(0)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        transform: Transform = lambda item: item,
        not_older_than: str | None = None,
    ) -> Listing:
        self.lists.append((not_older_than, field_selector))
        self._answer()
        if self.list_errors and (error := self.list_errors.popleft()) is not None:
            raise error
        found = [raw for key, raw in self._objects.items() if _matches(key, resource, namespace, field_selector)]
        kept = [transform(copy.deepcopy(raw)) for raw in found]
        self.listed = [item for item in kept if item is not None]
        return Listing(self.listed, str(self.version))

    async def newest(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> int:
        self._answer()
        return self.version

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        seconds: int = 60,
    ) -> AsyncIterator[WatchEvent]:
        watch = _Watch()
        self._watches.append(watch)
        try:
            while True:
                while watch.position < len(self._history):
                    about, event = self._history[watch.position]
                    metadata = event.object["metadata"]
                    if int(metadata["resourceVersion"]) > int(resource_version) and (
                        about is None
                        or _matches(
                            (about, metadata.get("namespace"), metadata["name"]), resource, namespace, field_selector
                        )
                    ):
                        yield event
                    watch.position += 1
                if self.watch_errors:
                    raise self.watch_errors.popleft()
                watch.news.clear()
                await watch.news.wait()
        finally:
            self._watches.remove(watch)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        self._answer()
        return self._known(resource, name, namespace)

    async def create(self, resource: Resource, body: JsonObject, namespace: str | None = None) -> JsonObject:
        if self.create_errors:
            raise self.create_errors.popleft()
        self._write("create", resource, body["metadata"]["name"], body)
        if self.find(resource, body["metadata"]["name"], namespace) is not None:
            raise errors.ConflictError(409, "AlreadyExists", "there is one")
        answer = self.put(resource, merged({"metadata": {"namespace": namespace}}, body))
        if self.answers_lost:
            self.answers_lost -= 1
            raise errors.KubeUnreachableError("away")
        return answer

    async def apply(
        self, resource: Resource, body: JsonObject, *, field_manager: str, subresource: str | None = None
    ) -> JsonObject:
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        if self.apply_errors:
            raise self.apply_errors.popleft()
        if subresource is not None:
            self._known(resource, name, namespace)
            await asyncio.sleep(self.delay_s)
        self._write("apply", resource, name, body)
        known = self.find(resource, name, namespace) or {}
        _check_version(body, known)
        return self._change(resource, known, body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: JsonObject,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> JsonObject:
        if subresource is not None:
            await asyncio.sleep(self.delay_s)
        self._write("patch", resource, name, body)
        known = self._known(resource, name, namespace)
        _check_version(body, known)
        return self._change(resource, known, body)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        self._write("delete", resource, name, {})
        metadata = self._known(resource, name, namespace)["metadata"]
        if uid not in (None, metadata["uid"]) or version not in (None, metadata["resourceVersion"]):
            raise errors.ConflictError(409, "Conflict", "another uid or version")
        self.remove(resource, name, namespace)

    def _answer(self) -> None:
        if self.away:
            raise errors.KubeUnreachableError("away")

    def _write(self, verb: str, resource: Resource, name: str, body: JsonObject) -> None:
        self._answer()
        self.writes.append(Write(verb, resource, name, body))

    def _known(self, resource: Resource, name: str, namespace: str | None) -> JsonObject:
        if (raw := self.find(resource, name, namespace)) is None:
            raise errors.NotFoundError(404, "NotFound", f"no {resource.plural} {name}")
        return raw

    def _change(self, resource: Resource, known: JsonObject, body: JsonObject) -> JsonObject:
        return self.put(resource, merged(merged(known, body), {"metadata": {"resourceVersion": None}}))

    def _happen(self, resource: Resource | None, event: WatchEvent) -> None:
        self._history.append((resource, event))
        for watch in self._watches:
            watch.news.set()


class _Watch:
    """The position of a watch."""

    def __init__(self) -> None:
        self.position = 0
        self.news = asyncio.Event()


def _matches(key: Key, resource: Resource, namespace: str | None, field_selector: str | None) -> bool:
    return (
        key[0] == resource
        and namespace in (None, key[1])
        and field_selector in (None, f"metadata.name={key[2]}", f"metadata.namespace={key[1]}")
    )


def _check_version(body: JsonObject, known: JsonObject) -> None:
    wanted = body.get("metadata", {}).get("resourceVersion")
    if wanted is not None and wanted != known.get("metadata", {}).get("resourceVersion"):
        raise errors.ConflictError(409, "Conflict", "another version")


def merged(known: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(known, dict) or not isinstance(patch, dict):
        return patch
    both = {**known, **{key: merged(known.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in both.items() if value is not None}
