"""The test server in each pod: it replies with its name and the client's address."""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from ipaddress import IPv6Address
from urllib.parse import parse_qs, urlsplit

from lab.kubelet.requests import Request, RequestParser, response_head

_BACKLOG = 4096
_CHUNKS_PER_S = 20
_LARGEST_DATAGRAM = 65535
_ECHO = b"echo "
_ANCILLARY_BYTES = socket.CMSG_SPACE(20)  # struct in6_pktinfo


class PodServer:
    """All listeners of one pod."""

    def __init__(self, pod_name: str) -> None:
        self.pod_name = pod_name
        self.connections: set[asyncio.Transport] = set()
        self._servers: list[asyncio.Server] = []
        self._datagram_sockets: list[socket.socket] = []

    async def serve(self, listener: socket.socket) -> None:
        """Serve on a listening socket."""
        loop = asyncio.get_running_loop()
        if listener.type == socket.SOCK_STREAM:
            server = await loop.create_server(lambda: _Connection(self), sock=listener, backlog=_BACKLOG)
            self._servers.append(server)
        else:
            loop.add_reader(listener, self._answer_datagrams, listener)
            self._datagram_sockets.append(listener)

    def close(self) -> None:
        """Close all connections and listeners at once, as when a container exits."""
        for server in self._servers:
            server.close()
        for listener in self._datagram_sockets:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for transport in list(self.connections):
            transport.abort()

    def answer_to(self, peer: str) -> bytes:
        """Return the line that names the pod and the client."""
        return f"{self.pod_name} {peer_text(peer)}\n".encode()

    def _answer_datagrams(self, listener: socket.socket) -> None:
        with suppress(OSError):  # nothing left to read, or the client is unreachable
            for _ in range(64):
                data, ancillary, _, sender = listener.recvmsg(_LARGEST_DATAGRAM, _ANCILLARY_BYTES)
                answer = data if data.startswith(_ECHO) else self.answer_to(sender[0])
                listener.sendmsg([answer], ancillary, 0, sender)


class _Connection(asyncio.Protocol):
    """HTTP/1.1, one request at a time; a line that is not HTTP is answered too."""

    def __init__(self, server: PodServer) -> None:
        self._server = server
        self._parser = RequestParser()
        self._busy: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (narrows the type)
        self._transport = transport
        self._server.connections.add(transport)
        self._answer = self._server.answer_to(transport.get_extra_info("peername")[0])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio names it)
        self._server.connections.discard(self._transport)
        if self._busy is not None:
            self._busy.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._busy is None:
            self._next()

    def _next(self) -> None:
        while not self._transport.is_closing() and (request := self._parser.next()) is not None:
            if request.is_plain_line:
                self._transport.write(self._answer)
            elif (slow := self._slow(request)) is not None:
                self._busy = asyncio.get_running_loop().create_task(slow)
                self._busy.add_done_callback(self._slow_is_done)
                return
            else:
                body = f"{request.body_length}\n".encode() if request.method == "POST" else self._answer
                self._transport.write(response_head(len(body), request.close) + body)
                self._close_if(request)

    def _slow(self, request: Request) -> Coroutine[None, None, None] | None:
        url = urlsplit(request.target)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        try:
            if url.path == "/bytes":
                count, rate = int(query["count"]), float(query["rate"])
                return self._stream(request, count, rate) if rate > 0 else None
            if url.path == "/wait":
                return self._wait(request, float(query["seconds"]))
        except (KeyError, ValueError):
            pass
        return None

    def _slow_is_done(self, task: asyncio.Task[None]) -> None:
        self._busy = None
        if not task.cancelled():
            self._next()

    async def _wait(self, request: Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._transport.write(response_head(len(self._answer), request.close) + self._answer)
        self._close_if(request)

    async def _stream(self, request: Request, count: int, rate: float) -> None:
        header = {"X-Pod": self._server.pod_name}
        self._transport.write(response_head(count, request.close, header))
        loop = asyncio.get_running_loop()
        begin, sent = loop.time(), 0
        chunk = max(1, int(rate / _CHUNKS_PER_S))
        while sent < count:
            size = min(chunk, count - sent)
            self._transport.write(b"x" * size)
            sent += size
            await self._may_write.wait()
            await asyncio.sleep(begin + sent / rate - loop.time())
        self._close_if(request)

    def _close_if(self, request: Request) -> None:
        if request.close:
            self._transport.close()


def peer_text(peer: str) -> str:
    """Return an address in its usual notation; IPv4-mapped ones as IPv4."""
    mapped = IPv6Address(peer.partition("%")[0]).ipv4_mapped
    return str(mapped) if mapped else peer.partition("%")[0]
