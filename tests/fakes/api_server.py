"""An API server for programs that bring a client of their own, such as kopf: HTTP in front of a ``FakeKube``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from aiohttp import web

from kube_nftlb import errors
from kube_nftlb.kube.resources import (
    CRDS,
    ENDPOINT_SLICES,
    EVENTS,
    FARMS,
    LEASES,
    NAMESPACES,
    NFTLB_NODES,
    NODES,
    PODS,
    POLICIES,
    SERVICE_CIDRS,
    SERVICES,
    JsonObject,
    Resource,
)
from tests.fakes.kube import FakeKube

_SERVED = (SERVICES, POLICIES, FARMS, ENDPOINT_SLICES, NFTLB_NODES, NODES, SERVICE_CIDRS, PODS, EVENTS, LEASES)
# kopf waits until there are the last two.
_KINDS = {kind.plural: kind for kind in (*_SERVED, NAMESPACES, CRDS)}


class ObjectPath(NamedTuple):
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


class ApiServer:
    """Lists, watches, applies, creates and deletes objects; ``kube`` has them."""

    def __init__(self) -> None:
        self.kube = FakeKube(version=1)
        self.lists: dict[Resource, int] = {}
        """Number of lists of each kind."""

    def listed(self, resource: Resource) -> None:
        """Called after each list of a kind was made, before it is answered."""
        self.lists[resource] = self.lists.get(resource, 0) + 1

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as the API server does."""
        if (path := _parsed(request.path)) is None:
            return await _discovery(request)
        try:
            if request.method == "GET" and path.name is None:
                return await (self.watch if request.query.get("watch") else self.list)(request, path)
            return web.json_response(await self._one(request, path))
        except errors.KubeError as error:
            status = {"kind": "Status", "code": error.status, "reason": error.reason, "message": error.message}
            return web.json_response(status, status=error.status)

    async def _one(self, request: web.Request, path: ObjectPath) -> JsonObject:
        name = path.name or ""
        if request.method == "GET":
            return await self.kube.get(path.resource, name, path.namespace)
        body: JsonObject = msgspec.json.decode(await request.read())
        if request.method == "POST":
            return await self.kube.create(path.resource, body, path.namespace)
        if request.method == "DELETE":
            await self.kube.delete(path.resource, name, path.namespace)
            return {}
        if request.content_type == "application/merge-patch+json":
            return await self.kube.patch(path.resource, name, body, path.namespace, subresource=path.subresource)
        return await self.kube.apply(path.resource, body, field_manager="any", subresource=path.subresource)

    async def list(self, request: web.Request, path: ObjectPath) -> web.Response:
        listing = await self.kube.list(path.resource, path.namespace)
        self.listed(path.resource)
        metadata = {"resourceVersion": listing.resource_version}
        return web.json_response({"kind": f"{path.resource.kind}List", "metadata": metadata, "items": listing.items})

    async def watch(self, request: web.Request, path: ObjectPath) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async for event in self.kube.watch(path.resource, request.query["resourceVersion"], namespace=path.namespace):
            await response.write(msgspec.json.encode({"type": event.type, "object": event.object}) + b"\n")
        return response


@asynccontextmanager
async def serving(server: ApiServer, folder: Path) -> AsyncIterator[Path]:
    """Serve on a free port of 127.0.0.1; yield a kubeconfig for it."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "fake", "cluster": {"server": f"http://{host}:{port}"}}],
                "users": [{"name": "fake", "user": {}}],
                "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                "current-context": "fake",
            }
        ).decode()
    )
    try:
        yield kubeconfig
    finally:
        await runner.cleanup()


def _parsed(path: str) -> ObjectPath | None:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = None
    if len(parts) > 1 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    if not parts or parts[0] not in _KINDS:
        return None
    return ObjectPath(_KINDS[parts[0]], namespace, *parts[1:])


async def _discovery(request: web.Request) -> web.Response:
    """Answer what kopf asks before it watches: which kinds there are."""
    prefix = request.path.strip("/")
    if prefix == "api":
        return web.json_response({"versions": ["v1"]})
    if prefix == "apis":
        groups = sorted({kind.group for kind in _KINDS.values() if kind.group})
        version = {group: next(kind.version for kind in _KINDS.values() if kind.group == group) for group in groups}
        return web.json_response(
            {
                "groups": [
                    {
                        "name": group,
                        "preferredVersion": {"version": version[group]},
                        "versions": [{"version": version[group]}],
                    }
                    for group in groups
                ]
            }
        )
    found = [kind for kind in _KINDS.values() if _prefix(kind) == prefix]
    return web.json_response(
        {
            "resources": [
                {
                    "name": kind.plural,
                    "singularName": kind.kind.lower(),
                    "kind": kind.kind,
                    "namespaced": kind.namespaced,
                    "verbs": ["list", "watch", "patch", "get"],
                }
                for kind in found
            ]
        }
    )


def _prefix(kind: Resource) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
