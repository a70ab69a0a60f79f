"""The HTTP server, over real connections on the loopback address."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest

from kube_nftlb import errors, http_server
from kube_nftlb.environment import ListenAddress
from kube_nftlb.http_server import Answer, Connections, HttpServer, Limits, serve
from tests.ports import free_port


def respond(path: str) -> Answer:
    return Answer(200 if path == "/healthz" else 404, {"path": path}, (("X-More", "1"),))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server, port = HttpServer(respond), free_port()
    await server.listen(["127.0.0.1"], port)
    yield port
    server.close()


async def ask(port: int, request: bytes, host: str = "127.0.0.1") -> tuple[str, dict[str, str], bytes]:
    """Return status line, headers and body, after the server closed the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


async def test_a_request_is_answered_in_json(port: int) -> None:
    first, headers, body = await ask(port, b"GET /healthz?verbose HTTP/1.1\r\nHost: x\r\n\r\n")
    assert first == "HTTP/1.1 200 OK"
    assert json.loads(body) == {"path": "/healthz"}
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Length"] == str(len(body))
    assert (headers["Connection"], headers["X-More"]) == ("close", "1")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /other HTTP/1.1", "404"),
        (b"GET /healthz HTTP/1.0", "200"),
        (b"OPTIONS /healthz HTTP/1.0", "200"),
        (b"GET http://node:10256/healthz HTTP/1.1", "200"),
        (b"GET //[ HTTP/1.1", "400"),
        (b"GET /healthz", "400"),
        (b"\x16\x03\x01", "400"),
    ],
)
async def test_the_status_of_a_request(port: int, request_line: bytes, status: str) -> None:
    first, _, _ = await ask(port, request_line + b"\r\n\r\n")
    assert first.split()[1] == status


async def test_a_head_request_gets_no_body(port: int) -> None:
    first, headers, body = await ask(port, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert (first, body) == ("HTTP/1.1 200 OK", b"")
    assert int(headers["Content-Length"]) > 0


async def test_a_request_without_end_is_refused(port: int) -> None:
    first, _, _ = await ask(port, b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 17000)
    assert first.split()[1] == "431"


async def test_a_client_that_says_nothing_is_dropped() -> None:
    server, port = HttpServer(respond, Limits(seconds=0.05)), free_port()
    await server.listen(["127.0.0.1"], port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    server.close()


async def test_of_too_many_connections_the_oldest_goes() -> None:
    few = Limits(seconds=60, connections=3)
    shared: Connections = {}
    servers, port, other = [HttpServer(respond, few, shared) for _ in range(2)], free_port(), free_port()
    for server, at in zip(servers, (port, other), strict=True):
        await server.listen(["127.0.0.1"], at)
    idle = [await asyncio.open_connection("127.0.0.1", at) for at in (port, port, other, other)]
    assert await asyncio.wait_for(idle[0][0].read(), 10) == b""
    first, _, _ = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert first == "HTTP/1.1 200 OK"
    assert await asyncio.wait_for(idle[1][0].read(), 10) == b""
    assert not idle[3][0].at_eof()
    for server in servers:
        server.close()
    for _, writer in idle:
        writer.close()


async def test_who_floods_one_port_does_not_keep_the_kubelet_from_another() -> None:
    few = Limits(seconds=60, connections=3)
    metrics, probes, port, other = HttpServer(respond, few), HttpServer(respond, few), free_port(), free_port()
    await metrics.listen(["127.0.0.1"], port)
    await probes.listen(["127.0.0.1"], other)
    reader, writer = await asyncio.open_connection("127.0.0.1", other)
    flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
    assert await asyncio.wait_for(flood[0][0].read(), 10) == b""
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200 OK")
    for _, each in [*flood, (reader, writer)]:
        each.close()
    for server in (metrics, probes):
        server.close()


async def test_all_addresses_are_those_of_both_families() -> None:
    server, port = HttpServer(respond), free_port()
    await server.listen([http_server.ALL_ADDRESSES], port)
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        first, _, _ = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n", host)
        assert first == "HTTP/1.1 200 OK"
    server.close()


async def test_a_closed_server_lets_go_of_its_port() -> None:
    server, port = HttpServer(respond), free_port()
    await server.listen(["127.0.0.1"], port)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_server_listens_on_all_of_its_addresses_or_on_none() -> None:
    server, port = HttpServer(respond), free_port()
    with socket.create_server(("127.0.0.2", port)):
        with pytest.raises(OSError, match="in use"):
            await server.listen(["127.0.0.1", "127.0.0.2"], port)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_an_address_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(errors.UsageError, match=f"cannot listen on health address 127.0.0.1:{port}: .*in use"):
            await serve(respond, ListenAddress("127.0.0.1", port))
