"""Send one request over one connection."""

import asyncio
import errno
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address

from lab.traffic.http import Answer, parse_answer, parse_line

_REQUEST = b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Target:
    """The server to connect to, and the timeout of each step."""

    host: str
    port: int
    timeout_s: float
    source: str = ""
    """The client's source address; empty to let the kernel choose."""

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6; ``host`` is an address, not a name."""
        return socket.AF_INET if ip_address(self.host).version == 4 else socket.AF_INET6


def connect(target: Target, source_port: int = 0) -> socket.socket:
    """Return a new TCP connection. With a source port it closes with a reset, which frees the port at once."""
    connection = socket.socket(target.family, socket.SOCK_STREAM)
    try:
        connection.settimeout(target.timeout_s)
        if source_port:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if source_port or target.source:
            connection.bind((target.source, source_port))
        connection.connect((target.host, target.port))
    except BaseException:
        connection.close()
        raise
    return connection


def ask_tcp(target: Target, source_port: int = 0) -> Answer:
    """Send a request over a new TCP connection. Raises OSError, or ValueError for a reply that is not a lab's."""
    with connect(target, source_port) as connection:
        return ask_over(connection)


def ask_over(connection: socket.socket) -> Answer:
    """Send a request over a TCP connection that is established. Raises what ``ask_tcp`` does."""
    connection.sendall(_REQUEST)
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    if not data:
        raise ConnectionResetError("closed without an answer")
    return parse_answer(data)


async def ask(target: Target) -> Answer:
    """Do the same as ``ask_tcp``, asynchronously; the caller sets the timeout."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(_REQUEST)
        data = await reader.read()
    finally:
        writer.close()
    if not data:
        raise ConnectionResetError("closed without an answer")
    return parse_answer(data)


def open_udp(target: Target, source_port: int = 0) -> socket.socket:
    """Return a connected UDP socket."""
    asker = socket.socket(target.family, socket.SOCK_DGRAM)
    asker.settimeout(target.timeout_s)
    if source_port:
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if source_port or target.source:
        asker.bind((target.source, source_port))
    asker.connect((target.host, target.port))
    return asker


def ask_udp(asker: socket.socket) -> Answer:
    """Send a datagram and return the reply. Raises OSError."""
    asker.send(b"who\n")
    return parse_line(asker.recv(65536))


def kind_of(error: Exception) -> str:
    """Classify a failure: refused, reset, timeout, garbled, unreachable, or its own name, such as EADDRNOTAVAIL."""
    kinds = (
        (ConnectionRefusedError, "refused"),
        (ConnectionError, "reset"),
        (TimeoutError, "timeout"),
        (ValueError, "garbled"),
    )
    for exception, kind in kinds:
        if isinstance(error, exception):
            return kind
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "unreachable"
    return errno.errorcode.get(number or 0, type(error).__name__)


def now() -> dict[str, int]:
    """Return both clocks in ns: CLOCK_REALTIME and CLOCK_MONOTONIC."""
    return {"realtime_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
