"""The Kubernetes API over plain dictionaries, on the asynchronous client of the ``kubernetes`` package.

That client brings the connection, TLS and the credentials (kubeconfig, service account); its generated models are left
aside, because a watch of thousands of objects spends most of its time in them. What is read here is validated where it
is used, in ``kube_nftlb.api``.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from kube_nftlb import errors, metrics
from kube_nftlb.kube.resources import JsonObject, Resource

Transform = Callable[[JsonObject], JsonObject | None]
"""What is kept of an object of a list; None where nothing is."""
_T = TypeVar("_T")

_LIST_PAGE = 500
_LIST_TIMEOUT_S = 60
"""Thousands of farms at once are 50 MB and more."""
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH_TIMEOUT_S = 60
_WATCH_SILENCE_S = 75
"""A watch that says nothing for so long is broken: the API server ends it before, and a new one goes on from there.

Bookmarks do not tell: where nothing changes, and etcd reports no progress, there are none.
"""


class _Page(msgspec.Struct):
    """An answer to a list; its objects are taken apart one by one, for all at once are six times as much memory."""

    metadata: JsonObject
    items: list[msgspec.Raw] | None = None


_PAGES = msgspec.json.Decoder(_Page)


class Listing(NamedTuple):
    """All objects of one kind, and the resourceVersion at which that was so."""

    items: list[JsonObject]
    resource_version: str


class WatchEvent(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: JsonObject


class Kube:
    """A connection to the API server. Use ``Kube.connect``; close it when done, or use it as a context manager."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, user_agent: str = "kube-nftlb") -> Self:
        """Open a connection as the kubeconfig says; without one, as $KUBECONFIG or the pod's service account says."""
        configuration = Configuration()
        if kubeconfig is not None:
            await kube_config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        else:
            await kube_config.load_config(client_configuration=configuration)
        # Otherwise aiohttp looks for ~/.netrc, in a thread, at each request.
        configuration.client_session_kwargs = {"trust_env": False}
        api = ApiClient(configuration)
        api.user_agent = user_agent
        return cls(api)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

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
        """All objects of a kind, in one namespace or all, read in pages; or of each its metadata alone.

        Objects of a list do not carry ``kind`` and ``apiVersion``; they are put in. ``transform`` makes each object
        what is kept of it as soon as it is read, so that a list never costs more memory than that and a page.

        With ``not_older_than``, a resourceVersion or "0" for any, it is the state that the API server has in memory, in
        one page. Without, it may read all from etcd, which takes it milliseconds for each custom resource. Raises
        KubeError (504) where the API server does not get to that resourceVersion.
        """
        items: list[JsonObject] = []
        accept = _METADATA_LIST if metadata_only else _JSON
        query = _selectors(label_selector, field_selector)
        if not_older_than is None:
            query["limit"] = str(_LIST_PAGE)
        else:
            query |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
        while True:
            response = await self._send(
                "GET", resource.path(namespace), query=query, accept=accept, timeout_s=_LIST_TIMEOUT_S
            )
            page = _PAGES.decode(await _read(response))
            for number, raw in enumerate(page.items or (), 1):
                if (kept := transform(msgspec.json.decode(raw))) is not None:
                    items.append(kept)
                if number % _LIST_PAGE == 0:
                    # For what else waits for this thread.
                    await asyncio.sleep(0)
            if not (token := page.metadata.get("continue")):
                break
            query["continue"] = token
        for item in items:
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return Listing(items, page.metadata["resourceVersion"])

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """What happened since a resourceVersion, until the server ends the watch (a few minutes).

        Raises ExpiredError when the resourceVersion is too old, KubeUnreachableError when the connection breaks.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_TIMEOUT_S),
            "resourceVersion": resource_version,
            **_selectors(label_selector, field_selector),
        }
        path = resource.path(namespace)
        response = await self._send(
            "GET",
            path,
            query=query,
            accept=_METADATA if metadata_only else _JSON,
            timeout_s=_WATCH_TIMEOUT_S + 30,
            silence_s=_WATCH_SILENCE_S,
        )
        try:
            if response.status != 200:
                raise _error(response.status, await response.read())
            async for line in _lines(response.content.iter_any()):
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise _error(event["object"].get("code", 500), msgspec.json.encode(event["object"]))
                yield WatchEvent(event["type"], event["object"])
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
            # A ValueError is a line that was cut off.
            raise errors.KubeUnreachableError(f"the watch of {resource.plural} broke: {error!r}") from error
        finally:
            response.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """One object. Raises NotFoundError."""
        return await self.request("GET", resource.path(namespace, name))

    async def create(self, resource: Resource, body: JsonObject, namespace: str | None = None) -> JsonObject:
        """Create an object as written. Raises ConflictError where the name is taken."""
        return await self.request("POST", resource.path(namespace), body=body)

    async def apply(
        self, resource: Resource, body: JsonObject, *, field_manager: str, subresource: str | None = None
    ) -> JsonObject:
        """Server-side apply, by force: this field manager owns what the body names. Creates where there is nothing."""
        path = resource.path(body["metadata"].get("namespace"), body["metadata"]["name"], subresource)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.request(
            "PATCH",
            path,
            body=body,
            query={"fieldManager": field_manager, "force": "true"},
            content_type="application/apply-patch+yaml",
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: JsonObject,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> JsonObject:
        """JSON merge patch: null removes a key, lists are replaced whole."""
        return await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            body=body,
            content_type="application/merge-patch+json",
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete an object; with a uid, only that very object. Raises NotFoundError, ConflictError (another uid)."""
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        await self.request("DELETE", resource.path(namespace, name), body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float = 30,
    ) -> JsonObject:
        """One request, one JSON answer. Raises KubeError and its kind, or KubeUnreachableError."""
        response = await self._send(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
        )
        answer: JsonObject = msgspec.json.decode(await _read(response))
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float,
        silence_s: float | None = None,
    ) -> aiohttp.ClientResponse:
        configuration = self._api.configuration
        url = configuration.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "Content-Type": content_type, **self._api.default_headers}
        if (auth := (await configuration.auth_settings()).get("BearerToken")) is not None and auth["value"]:
            headers[auth["key"]] = auth["value"]
        try:
            response = await self._api.rest_client.request(
                method,
                url,
                headers=headers,
                body=body,
                _request_timeout=aiohttp.ClientTimeout(total=timeout_s, sock_read=silence_s),
            )
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            metrics.API_REQUESTS.labels(method, "error").inc()
            raise errors.KubeUnreachableError(f"{method} {path}: {error!r}") from error
        raw: aiohttp.ClientResponse = response.response
        metrics.API_REQUESTS.labels(method, str(raw.status)).inc()
        return raw


async def retry_unreachable(call: Callable[[], Awaitable[_T]], *, attempts: int = 50, delay_s: float = 0.2) -> _T:
    """Repeat a call while the API server cannot be reached, such as during its start. The last error is raised."""
    for _ in range(attempts - 1):
        try:
            return await call()
        except errors.KubeUnreachableError:
            await asyncio.sleep(delay_s)
    return await call()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        data = await response.read()
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        raise errors.KubeUnreachableError(f"{response.method} {response.url.path}: {error!r}") from error
    if response.status >= 300:
        raise _error(response.status, data)
    return data


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What comes in, line by line; aiohttp itself gives up on a line of more than 128 KiB, and objects are larger."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield b"".join((*parts, line))
            parts = []
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value is not None}


def _error(status: int, data: bytes) -> errors.KubeError:
    try:
        answer = msgspec.json.decode(data)
        reason, message = answer.get("reason", ""), answer.get("message", "")
    except ValueError:
        reason, message = "", data.decode(errors="replace")[:500]
    kind = {404: errors.NotFoundError, 409: errors.ConflictError, 410: errors.ExpiredError}.get(
        status, errors.KubeError
    )
    return kind(status, reason, message)
