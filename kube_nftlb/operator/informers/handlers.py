"""kopf: event handlers that pass events on, its settings, and its connection to the API server."""

import logging
from collections.abc import Callable, Iterator
from typing import cast

import aiohttp
import kopf
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from kube_nftlb.kube.resources import JsonObject, Resource
from kube_nftlb.kube.servers import CONNECT_WITHIN_S, ApiServers
from kube_nftlb.operator.informers.kinds import BY_KOPF
from kube_nftlb.operator.informers.kopf_storage import NoDiffBase, NoProgress

OnEvent = Callable[[Resource, str | None, JsonObject], None]

_PAGE = 250
_IDLE_TIMEOUT_S = 0.2
_SERVER_TIMEOUT_S = 600


def registry(on_event: OnEvent, servers: ApiServers) -> kopf.OperatorRegistry:
    """Return a registry with one event handler per kind, which calls ``on_event(resource, type, object)``."""
    handlers = kopf.OperatorRegistry()

    async def login(**_: object) -> kopf.AiohttpSession:
        return await _login(servers)

    kopf.on.login(registry=handlers)(login)
    for resource in BY_KOPF:
        _register(handlers, resource, on_event)
    return handlers


def _register(handlers: kopf.OperatorRegistry, resource: Resource, on_event: OnEvent) -> None:
    async def handle(event: kopf.RawEvent, **_: object) -> None:
        on_event(resource, event["type"], cast(JsonObject, event["object"]))

    kopf.on.event(resource.group, resource.version, resource.plural, id=resource.plural, registry=handlers)(handle)


def settings() -> kopf.OperatorSettings:
    """Return settings with which kopf only reads, and never gives up on the API server."""
    ours = kopf.OperatorSettings()
    ours.posting.enabled = False
    ours.scanning.disabled = True
    ours.persistence.diffbase_storage = NoDiffBase()
    ours.persistence.progress_storage = NoProgress()
    ours.networking.error_backoffs = _Backoffs()
    ours.networking.connect_timeout = CONNECT_WITHIN_S
    ours.networking.request_timeout = 60
    ours.watching.chunk_size = _PAGE
    ours.watching.server_timeout = _SERVER_TIMEOUT_S
    # kopf keeps a task and a queue per object for this long after its last event.
    ours.queueing.idle_timeout = _IDLE_TIMEOUT_S
    ours.queueing.exit_timeout = 0.5
    return ours


class _Backoffs:
    """Endless seconds between attempts: kopf exits after the last of a finite list."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.1, 0.2, 0.5, 1)
        while True:
            yield 2


async def _login(servers: ApiServers) -> kopf.AiohttpSession:
    """Connect as ``Kube.connect`` does: kopf's own logins support neither tls-server-name nor token rotation."""
    configuration = Configuration()
    await kube_config.load_config(client_configuration=configuration)

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if (auth := (await configuration.auth_settings()).get("BearerToken")) is not None and auth["value"]:
            request.headers[auth["key"]] = auth["value"]
        if configuration.tls_server_name:
            request.server_hostname = configuration.tls_server_name
        return await handler(request)

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context),
        headers={"User-Agent": "kube-nftlb-operator"},
        middlewares=(servers, authorize),
        proxy=configuration.proxy,
        trust_env=configuration.proxy is None,
    )
    return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)


class OncePerOutage(logging.Filter):
    """Limits a logger to one warning per 30 s: kopf repeats them while the API server is unreachable."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be logged."""
        if record.levelno < logging.WARNING or self._clock() >= self._quiet_until:
            self._quiet_until = self._clock() + 30
            return True
        return False
