"""The addresses of the API server, and fail-over between them: for all requests of a program, as aiohttp middleware.

Requests go to one address until that fails, then to the next. The first is that of the kubeconfig or the pod's service
account; those of the settings follow, then the endpoints of the Service ``kubernetes`` once they are known. Each server
must prove itself to be the address that it was asked at, by its certificate.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import structlog

from kube_nftlb import names
from kube_nftlb.environment import ListenAddress
from kube_nftlb.kube.resources import JsonObject

CONNECT_WITHIN_S = 5
"""Maximum time in seconds for a server to accept a connection, until the next is tried."""
_SERVICE = ("default", "kubernetes")
_PORT_NAME = "https"
_PEERS_MAX = 16

_log = structlog.get_logger()


class ApiServers:
    """Sends each request to an API server that can be reached."""

    def __init__(self, further: Iterable[ListenAddress] = ()) -> None:
        """``further`` are addresses beside that of the kubeconfig or the service account."""
        self._further = tuple(further)
        self._endpoints: dict[str, tuple[ListenAddress, ...]] = {}
        self._current: ListenAddress | None = None
        self._gave_up: ListenAddress | None = None
        self._date = ("", datetime.now(UTC))
        """What the last answer said, and when that was by this machine's clock."""
        self.peers: tuple[str, ...] = ()
        """The IP addresses that watches were connected to last: a name may stand for others by now."""

    @property
    def now(self) -> datetime:
        """The date by the clock of the server that answered last, to a second; by this machine's if that says none."""
        text, at = self._date
        here = datetime.now(UTC)
        try:
            return parsedate_to_datetime(text).replace(tzinfo=UTC) + (here - at)
        except ValueError:
            return here

    def learn(self, raw: JsonObject) -> None:
        """Take an EndpointSlice; only those of the Service ``kubernetes`` matter."""
        metadata = raw["metadata"]
        service = (metadata.get("labels") or {}).get(names.LABEL_SLICE_SERVICE)
        if (metadata.get("namespace"), service) == _SERVICE:
            # Replaced, not changed: the thread of the Lease reads it.
            self._endpoints = {**self._endpoints, metadata["name"]: tuple(_endpoints(raw))}

    def forget(self, raw: JsonObject) -> None:
        """Forget an EndpointSlice that was deleted."""
        if raw["metadata"].get("namespace") == _SERVICE[0]:
            gone = raw["metadata"]["name"]
            self._endpoints = {name: each for name, each in self._endpoints.items() if name != gone}

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request to the first server that can be reached. Raises the last error of aiohttp if none can."""
        first = ListenAddress(request.url.host or "", request.url.port or 0)
        error: aiohttp.ClientError | None = None
        for address in self._in_order(first):
            request.url = request.url.with_host(address.host).with_port(address.port)
            try:
                response = await handler(request)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as caught:
                # Nothing was sent, so that any request can be repeated.
                self._failed(address, first, caught)
                error = caught
            except (aiohttp.ClientError, OSError, asyncio.CancelledError) as caught:
                # Also of a server that has not answered in time: aiohttp cancels the request.
                self._failed(address, first, caught)
                raise
            else:
                if self._current not in (None, address) or self._gave_up is not None:
                    _log.info("API server reached", host=address.host, port=address.port)
                self._current, self._gave_up = address, None
                self._note_peer(response)
                self._date = response.headers.get("Date", ""), datetime.now(UTC)
                return response
        assert error is not None  # noqa: S101 - there is one address at least
        raise error

    def _note_peer(self, response: aiohttp.ClientResponse) -> None:
        # Without a connection, the answer has been read whole: that of a watch never is.
        transport = response.connection.transport if response.connection is not None else None
        peer = transport.get_extra_info("peername") if transport is not None else None
        if peer and (ip := str(peer[0]).partition("%")[0]) not in self.peers:
            self.peers = (ip, *self.peers)[:_PEERS_MAX]

    def addresses(self, first: ListenAddress) -> list[ListenAddress]:
        """Return all addresses, where ``first`` is that of the kubeconfig or the service account."""
        endpoints = (address for each in self._endpoints.values() for address in each)
        return list(dict.fromkeys((first, *self._further, *endpoints)))

    def _in_order(self, first: ListenAddress) -> list[ListenAddress]:
        known = self.addresses(first)
        start = known.index(self._current) if self._current in known else 0
        return known[start:] + known[:start]

    def _failed(self, address: ListenAddress, first: ListenAddress, error: BaseException) -> None:
        """Have the next request begin with the next address."""
        known = self.addresses(first)
        if len(known) == 1 or self._current not in (None, address):
            return
        if self._gave_up is None and not isinstance(error, asyncio.CancelledError):
            _log.warning("API server failed, trying another", host=address.host, port=address.port, error=repr(error))
            self._gave_up = address
        position = known.index(address) if address in known else -1
        self._current = known[(position + 1) % len(known)]


def _endpoints(raw: JsonObject) -> Iterable[ListenAddress]:
    ports = raw.get("ports") or []
    port = next((each.get("port") for each in ports if each.get("name") == _PORT_NAME), None)
    if port is None:
        return
    for endpoint in raw.get("endpoints") or []:
        if (endpoint.get("conditions") or {}).get("ready") is not False:
            yield from (ListenAddress(ip, port) for ip in endpoint.get("addresses") or [])
