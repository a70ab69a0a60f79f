"""``kube-nftlb echo``: a server for ``kube-nftlb check --service``, which answers with the name of its pod."""

import asyncio
import contextlib
import signal
import socket
from typing import Final, cast

_TIMEOUT_S: Final = 5.0
_QUESTION_MAX: Final = 64


async def serve(port: int, name: str) -> None:
    """Answer TCP connections and UDP datagrams on a port of all addresses, until SIGTERM. Raises OSError."""
    answer = name.encode()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)

    async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError), contextlib.closing(writer):
            async with asyncio.timeout(_TIMEOUT_S):
                await reader.read(_QUESTION_MAX)
                writer.write(answer)
                await writer.drain()

    async with await asyncio.start_server(tcp, sock=_bound(port, socket.SOCK_STREAM)):
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(answer), sock=_bound(port, socket.SOCK_DGRAM)
        )
        with contextlib.closing(transport):
            await ended.wait()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of the standard library are not of the class that it documents.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, _data: bytes, peer: tuple[str, int]) -> None:
        self._transport.sendto(self._answer, peer)


def _bound(port: int, kind: socket.SocketKind) -> socket.socket:
    """Return a socket bound to a port of both families, or of IPv4 where the kernel has no IPv6."""
    dual = socket.has_dualstack_ipv6()
    opened = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, kind)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dual:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    opened.bind(("", port))
    return opened
