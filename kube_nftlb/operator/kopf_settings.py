"""Settings of kopf with which it only reads, never gives up on the API server, and keeps little of each object.

Its connection to the API server is made here, and ended.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client.rest import RESTClientObject

from kube_nftlb.kube import kubeconfig
from kube_nftlb.kube.resources import Resource
from kube_nftlb.kube.servers import CONNECT_WITHIN_S, ApiServers


async def login(servers: ApiServers) -> kopf.AiohttpSession:
    """Connect as ``Kube.connect`` does: kopf's own logins support neither tls-server-name nor token rotation."""
    configuration = await kubeconfig.load()

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if (auth := (await configuration.auth_settings()).get("BearerToken")) is not None and auth["value"]:
            request.headers[auth["key"]] = auth["value"]
        if configuration.tls_server_name:
            request.server_hostname = configuration.tls_server_name
        return await handler(request)

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context),
        headers=[*configuration.client_session_kwargs["headers"], ("User-Agent", "kube-nftlb-operator")],
        middlewares=(servers, authorize),
        proxy=configuration.proxy,
        trust_env=False,
    )
    return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)


async def end_watches() -> None:
    """End the watches that kopf (1.45) leaves open if one has failed.

    At its end it would close their connection, cancel them together with what pauses them, and wait for ever for one
    that takes this for a pause and asks for a new connection.
    """
    watches = [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")]
    for task in watches:
        task.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


def watches(resource: Resource) -> bool:
    """Return True if kopf (1.45) watches a kind.

    It asks once which kinds there are. Of several API servers the one that it asks may not know yet of a definition
    that another one knows; it would never ask again.
    """
    name = f"watcher for {resource.plural}.{resource.version}"
    return any(task.get_name().startswith(name) for task in asyncio.all_tasks())


_PAGE = 250
_IDLE_TIMEOUT_S = 0.2
_SERVER_TIMEOUT_S = 600
_OUTAGE_WARNING_EVERY_S = 30.0


def configure(settings: kopf.OperatorSettings) -> None:
    """Change kopf's default settings, and have its watches warn of an outage twice a minute at most."""
    # A Lease elects the leader, and standby replicas watch too; with peering, kopf would pause them.
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.networking.error_backoffs = _Backoffs()
    settings.networking.connect_timeout = CONNECT_WITHIN_S
    settings.networking.request_timeout = 60
    settings.watching.chunk_size = _PAGE
    settings.watching.server_timeout = _SERVER_TIMEOUT_S
    # kopf keeps a task and a queue per object for this long after its last event.
    settings.queueing.idle_timeout = _IDLE_TIMEOUT_S
    settings.queueing.exit_timeout = 0.5
    logging.getLogger("kopf._cogs.clients.watching").addFilter(_once_per_outage)


class _Backoffs:
    """Endless seconds between attempts: kopf exits after the last of a finite list."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.1, 0.2, 0.5, 1)
        while True:
            yield 2


class OncePerOutage(logging.Filter):
    """Limits a logger to one warning per 30 s: kopf repeats them while the API server is unreachable."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be logged."""
        if record.levelno < logging.WARNING or self._clock() >= self._quiet_until:
            self._quiet_until = self._clock() + _OUTAGE_WARNING_EVERY_S
            return True
        return False


_once_per_outage = OncePerOutage(time.monotonic)


# Event handlers need no storages; kopf's own copy each object several times per event, half of its work.


class _NoDiffBase(kopf.DiffBaseStorage):
    """Treats every object as unchanged, which does not matter to event handlers."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return the same for every object."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Return None: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers."""

    def fetch(self, **_: Any) -> Any:
        """Return None: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Do nothing."""

    def touch(self, **_: Any) -> None:
        """Do nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence as it is."""
        return essence
