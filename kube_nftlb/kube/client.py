"""The Kubernetes API over plain dictionaries, on the asynchronous client of the ``kubernetes`` package.

That client provides the connection, TLS and the credentials (kubeconfig, service account). Its generated models are
not used: a watch of thousands of objects would spend most of its time in them. Objects are validated by their users,
with ``kube_nftlb.api``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from kube_nftlb import errors, metrics
from kube_nftlb.kube import kubeconfig as kubeconfigs
from kube_nftlb.kube import protobuf, responses
from kube_nftlb.kube.impersonation import NOBODY, Impersonation
from kube_nftlb.kube.resources import JsonObject, Resource
from kube_nftlb.kube.servers import CONNECT_WITHIN_S, ApiServers

Transform = Callable[[JsonObject], JsonObject | None]
"""Returns the part of a listed object to keep, or None to drop it."""
_T = TypeVar("_T")

_LIST_PAGE = 500
_REQUEST_TIMEOUT_S = 30
_LIST_TIMEOUT_S = 60
"""Thousands of farms are 50 MB and more."""
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH_SILENCE_S = 75
"""A watch that is silent for longer may be broken, and ends: the API server sends a bookmark every minute.

It sends none of a kind of which it has heard nothing from etcd since the watch began: neither a change nor progress,
which etcd tells every ten minutes by default, and every five seconds as kubeadm sets it.
"""


class _Page(msgspec.Struct):
    """A page of a list. Its objects are decoded one by one: all at once need six times as much memory."""

    metadata: JsonObject
    items: list[msgspec.Raw] | None = None


_PAGES = msgspec.json.Decoder(_Page)
_ANSWERS = msgspec.json.Decoder(JsonObject)


class Listing(NamedTuple):
    """All objects of one kind, and the resourceVersion of that state."""

    items: list[JsonObject]
    resource_version: str


class WatchEvent(NamedTuple):
    """An event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: JsonObject


class Kube:
    """A connection to the API server, opened by ``Kube.connect``. Close it, or use it as a context manager."""

    def __init__(self, api: ApiClient, servers: ApiServers, timeout_s: float | None = None) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self.servers = servers

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        user_agent: str = "kube-nftlb",
        servers: ApiServers | None = None,
        *,
        context: str | None = None,
        impersonate: Impersonation = NOBODY,
        timeout_s: float | None = None,
    ) -> Self:
        """Connect as a context of the kubeconfig says, by default the current one of $KUBECONFIG, or as the pod.

        ``servers`` are further addresses of the API server. ``timeout_s`` is how long to wait for each answer; 0: as
        long as it takes, None: as long as is usual for it. Raises UnavailableError if there is neither a kubeconfig nor
        a service account, or if they cannot be used.
        """
        servers = servers or ApiServers()
        configuration = await kubeconfigs.load(kubeconfig, context, impersonate)
        # Otherwise aiohttp looks for ~/.netrc, in a thread, on every request.
        configuration.client_session_kwargs |= {"trust_env": False, "middlewares": (servers,)}
        api = ApiClient(configuration)
        api.user_agent = user_agent
        return cls(api, servers, timeout_s)

    @property
    def configuration(self) -> Configuration:
        """The address of the API server, and the credentials."""
        return self._api.configuration

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
        """List all objects of a kind, in one namespace or all, in pages; with ``metadata_only`` their metadata alone.

        ``kind`` and ``apiVersion``, which listed objects lack, are added. ``transform`` is called on each object as it
        is decoded, so a list needs no more memory than what it keeps and one page.

        With ``not_older_than``, a resourceVersion or "0" for any, the API server answers from memory, in one page.
        Without, it may read everything from etcd, which takes milliseconds per custom resource. Raises KubeError (504)
        if the API server does not reach that resourceVersion, NotFoundError if it does not know the kind.
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
            try:
                page = _decoded(_PAGES, await responses.read(response))
            except errors.NotFoundError as error:
                # Of a kind that it knows, a list of what is not there is empty.
                message = f"the API server does not know {resource.plural}.{resource.group}".rstrip(".")
                raise errors.NotFoundError(error.status, error.reason, message) from error
            for number, raw in enumerate(page.items or (), 1):
                if (item := transform(msgspec.json.decode(raw))) is not None:
                    items.append(item)
                if number % _LIST_PAGE == 0:
                    # Let other tasks run.
                    await asyncio.sleep(0)
            if not (token := page.metadata.get("continue")):
                break
            query["continue"] = token
        for item in items:
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return Listing(items, page.metadata["resourceVersion"])

    async def newest(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> int:
        """Return the resourceVersion that etcd has come to, as a list of this kind would have it."""
        query = _selectors(label_selector, field_selector) | {"limit": "1"}
        response = await self._send("GET", resource.path(namespace), query=query, timeout_s=_REQUEST_TIMEOUT_S)
        page = _decoded(_PAGES, await responses.read(response))
        return int(page.metadata["resourceVersion"])

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
        """Yield the events since a resourceVersion, until the API server ends the watch (``seconds``) or is silent.

        Raises ExpiredError when the resourceVersion is too old, KubeUnreachableError when the connection breaks.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            "resourceVersion": resource_version,
            **_selectors(label_selector, field_selector),
        }
        accept = protobuf.ACCEPT if resource in protobuf.RESOURCES else _JSON
        response = await self._send(
            "GET",
            resource.path(namespace),
            query=query,
            accept=_METADATA if metadata_only else accept,
            timeout_s=seconds + 30,
            silence_s=_WATCH_SILENCE_S,
        )
        try:
            if response.status != 200:
                raise responses.error(response.status, await response.read())
            async for event in responses.events(response):
                if event["type"] == "ERROR":
                    raise responses.error(event["object"].get("code", 500), msgspec.json.encode(event["object"]))
                yield WatchEvent(event["type"], event["object"])
        except TimeoutError:
            return
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            # A ValueError is a truncated event.
            why = responses.why_unreachable(error)
            raise errors.KubeUnreachableError(f"the watch of {resource.plural} broke: {why}") from error
        finally:
            response.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """Return one object. Raises NotFoundError."""
        return await self.request("GET", resource.path(namespace, name))

    async def create(self, resource: Resource, body: JsonObject, namespace: str | None = None) -> JsonObject:
        """Create an object. Raises ConflictError if the name is taken."""
        return await self.request("POST", resource.path(namespace), body=body)

    async def apply(
        self, resource: Resource, body: JsonObject, *, field_manager: str, subresource: str | None = None
    ) -> JsonObject:
        """Create or change an object by server-side apply; by force, the field manager owns the fields in the body."""
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
        field_manager: str | None = None,
    ) -> JsonObject:
        """Apply a JSON merge patch: None removes a key, lists are replaced as a whole."""
        return await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            body=body,
            query={"fieldManager": field_manager} if field_manager is not None else None,
            content_type="application/merge-patch+json",
        )

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
        """Delete an object, if it has the ``uid`` and the resourceVersion.

        Raises NotFoundError, and ConflictError if it has others.
        """
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        required = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value is not None}
        if required:
            body["preconditions"] = required
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        await self.request("DELETE", resource.path(namespace, name), body=body)

    async def text(self, path: str, query: Mapping[str, str], timeout_s: float = 60) -> str:
        """Return an answer that is not JSON, such as a log. Raises KubeError or a subclass, or KubeUnreachableError."""
        response = await self._send("GET", path, query=query, accept="*/*", timeout_s=timeout_s)
        return (await responses.read(response)).decode(errors="replace")

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content_type: str = _JSON,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> JsonObject:
        """Send a request and return the JSON answer. Raises KubeError or a subclass, or KubeUnreachableError."""
        response = await self._send(
            method, path, query=query, body=body, content_type=content_type, timeout_s=timeout_s
        )
        return _decoded(_ANSWERS, await responses.read(response))

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
                _request_timeout=aiohttp.ClientTimeout(
                    total=(timeout_s if self._timeout_s is None else self._timeout_s) or None,
                    sock_connect=CONNECT_WITHIN_S,
                    sock_read=silence_s,
                ),
            )
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            metrics.API_REQUESTS.labels(method, "error").inc()
            where = f"{method} {configuration.host}{path}"
            raise errors.KubeUnreachableError(f"{where}: {responses.why_unreachable(error)}") from error
        raw: aiohttp.ClientResponse = response.response
        metrics.API_REQUESTS.labels(method, str(raw.status)).inc()
        return raw


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    """Decode an answer. Raises KubeUnreachableError if it is none of an API server's."""
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise errors.KubeUnreachableError(
            f"the answer is no object: is it a Kubernetes API server? ({error})"
        ) from error


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value is not None}
