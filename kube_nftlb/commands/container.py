"""What containers and nodes run beside the programs: the health check, a request to nftlb, and the echo server.

``kube-nftlb healthy`` is for container engines without probes of their own; ``kube-nftlb echo`` answers the connections
of ``kube-nftlb status --service`` with the name of its pod.
"""

import asyncio
import contextlib
import http.client
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from kube_nftlb import errors
from kube_nftlb.environment import ListenAddress
from kube_nftlb.nftlb import liveness
from kube_nftlb.settings import AgentSettings, NftlbSettings, OperatorSettings

_FIRST_PROCESS: Final = Path("/proc/1/cmdline")
_HEALTH_TIMEOUT_S: Final = 5
_EVERYWHERE: Final = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104 - addresses listened on, and where to reach them
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ECHO_TIMEOUT_S: Final = 5.0
_QUESTION_MAX: Final = 64


def check_health(environ: Mapping[str, str], program: str | None = None) -> None:
    """Check operator, agent or nftlb-daemon; by default, the first process of the container.

    Raises UsageError if it is none of them, and KubeNftlbError if it is not healthy.
    """
    program = program or program_of(_FIRST_PROCESS.read_bytes())
    if program == "nftlb-daemon":
        settings = NftlbSettings.from_environment(environ)
        liveness.ask(settings.port, settings.key_file)
    elif program == "operator":
        _ask(OperatorSettings.from_environment(environ).health_address, "/livez")
    elif program == "agent":
        # Its health address may still be kube-proxy's.
        agent = AgentSettings.from_environment(environ)
        _ask(agent.probe_address or agent.metrics_address, "/alive")
    else:
        raise errors.UsageError("give the program to check: operator, agent or nftlb-daemon")


def program_of(command_line: bytes) -> str | None:
    """Return which of our programs a command line from /proc runs, or None."""
    words = command_line.decode(errors="replace").split("\0")
    if words[0].rpartition("/")[2] == "nftlb":
        return "nftlb-daemon"
    return next((word for word in words if word in ("operator", "agent", "nftlb-daemon")), None)


def _ask(address: ListenAddress, path: str) -> None:
    host, port = address
    connection = http.client.HTTPConnection(_EVERYWHERE.get(host, host), port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise errors.UnhealthyError(f"{host}:{port} does not respond: {errors.why(error)}") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise errors.UnhealthyError(f"{host}:{port} responds with {answer.status}: {body}")


async def request(settings: NftlbSettings, method: str, path: str, data: str) -> str:
    """Return nftlb's response. ``data`` is the body, or ``@`` and the name of a file. Raises UsageError, NftlbError."""
    if method.upper() not in _METHODS:
        raise errors.UsageError(f"method {method!r} must be one of {', '.join(_METHODS)}")
    body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()  # noqa: ASYNC240  # nothing else runs
    # Packages that the other commands here do without.
    from kube_nftlb.nftlb.client import NftlbClient
    from kube_nftlb.nftlb.requests import Request

    client = NftlbClient(settings.url, settings.key_file)
    try:
        return await client.send(Request(method.upper(), path, body))
    finally:
        await client.close()


async def serve_echo(port: int, name: str) -> None:
    """Answer TCP connections and UDP datagrams on a port of all addresses, until SIGTERM. Raises OSError."""
    answer = name.encode()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)

    async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError), contextlib.closing(writer):
            async with asyncio.timeout(_ECHO_TIMEOUT_S):
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
