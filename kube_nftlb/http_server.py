"""A small HTTP server for probes and metrics: one answer per connection, whatever the method.

It listens on addresses that anyone in the cluster can reach, in a process with more important work. So a request must
arrive within seconds, and with too many connections to a port, its oldest is closed: who floods one does not keep the
kubelet from another.

Not aiohttp.web (3.14): it leaves silent connections open (200 of 200 after 6 s; here none) and has no limit of their
number, and it takes 1.8 MiB, 30 ms at the start and up to half as much CPU again per request.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from kube_nftlb import errors
from kube_nftlb.environment import ListenAddress

ALL_ADDRESSES = "::"
"""The host for all addresses of both families."""

_REQUEST_MAX = 16 * 1024


class Limits(NamedTuple):
    """Limits on what clients use."""

    seconds: float = 5
    """The time for a request and its answer."""
    connections: int = 64
    """Open connections to a server, or to all that share them."""


class Text(NamedTuple):
    """A body other than JSON, and its Content-Type."""

    content_type: str
    content: bytes


class Answer(NamedTuple):
    """The status, the body (JSON if it is a mapping), and further headers."""

    status: int
    body: Mapping[str, object] | Text
    headers: tuple[tuple[str, str], ...] = ()


_LIMITS = Limits()

Connections = dict[asyncio.StreamWriter, "HttpServer"]
"""Open connections, the oldest first."""


class HttpServer:
    """Serves ``answer(path)``, which must neither block nor raise."""

    def __init__(
        self, answer: Callable[[str], Answer], limits: Limits = _LIMITS, shared: Connections | None = None
    ) -> None:
        """``shared`` are the connections of several servers, to which the limit applies together."""
        self._answer = answer
        self._limits = limits
        self._connections: Connections = {} if shared is None else shared
        self._servers: list[asyncio.Server] = []

    async def listen(self, hosts: Iterable[str], port: int) -> None:
        """Listen on all hosts, or on none. Raises OSError."""
        with contextlib.ExitStack() as opened:
            sockets = [opened.enter_context(_listener(host, port)) for host in hosts]
            for listener in sockets:
                self._servers.append(await asyncio.start_server(self._serve, sock=listener, limit=_REQUEST_MAX))
            # From here on the servers close them.
            opened.pop_all()

    def close(self) -> None:
        """Stop listening, and drop open connections."""
        for listener in self._servers:
            listener.close()
        self._servers = []
        for writer, server in list(self._connections.items()):
            if server is self:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = self
        if len(self._connections) > self._limits.connections:
            next(iter(self._connections)).transport.abort()
        try:
            # The client is gone or too slow: there is nobody to send an error to.
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(self._limits.seconds):
                    writer.write(await self._response(reader))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._connections.pop(writer, None)

    async def _response(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _encode(Answer(431, {"error": f"request exceeds {_REQUEST_MAX} bytes"}))
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _encode(Answer(400, {"error": "not an HTTP/1 request"}))
        method, target, _ = words
        try:
            path = urlsplit(target).path
        except ValueError:
            return _encode(Answer(400, {"error": "request target is not a URL"}))
        return _encode(self._answer(path), with_body=method != "HEAD")


async def serve(answer: Callable[[str], Answer], address: ListenAddress, what: str = "health") -> HttpServer:
    """Serve at an address from the settings; ``what`` names it in errors. Raises UsageError if listening fails."""
    server = HttpServer(answer)
    try:
        await server.listen([address.host], address.port)
    except OSError as error:
        raise errors.UsageError(f"cannot listen on {what} address {address.host}:{address.port}: {error}") from error
    return server


def _encode(answer: Answer, *, with_body: bool = True) -> bytes:
    if isinstance(answer.body, Text):
        content_type, body = answer.body
    else:
        content_type, body = "application/json", json.dumps(answer.body).encode() + b"\n"
    headers = (
        ("Content-Type", content_type),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *answer.headers,
    )
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *(f"{k}: {v}" for k, v in headers)]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body if with_body else b"")


def _listener(host: str, port: int) -> socket.socket:
    if host == ALL_ADDRESSES and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    if host == ALL_ADDRESSES:
        # A kernel without IPv6.
        host = "0.0.0.0"  # noqa: S104 (all addresses were requested)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
