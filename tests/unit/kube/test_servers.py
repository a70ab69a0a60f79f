"""Several addresses of the API server: requests go to one that answers."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from kube_nftlb import errors
from kube_nftlb.environment import ListenAddress
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NODES
from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.operator import kopf_settings
from kube_nftlb.settings import OperatorSettings

REQUEST = cast("aiohttp.ClientRequest", SimpleNamespace(url=URL("https://api.example.com:6443/")))


class Server:
    """An API server that knows one Node, whose name is its own."""

    def __init__(self, name: str, asked: list[str]) -> None:
        async def answer(_: web.Request) -> web.Response:
            asked.append(name)
            return web.json_response({"metadata": {"name": name}})

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        # Bound as long as the server lives, so that nobody else gets the port while it is stopped.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.address = ListenAddress("127.0.0.1", self._port.getsockname()[1])
        self._application = application
        self._server: TestServer | None = None

    async def start(self) -> None:
        self._server = TestServer(self._application, port=self.address.port)
        await self._server.start_server()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def close(self) -> None:
        await self.stop()
        self._port.close()


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
async def servers(asked: list[str]) -> AsyncIterator[list[Server]]:
    async with contextlib.AsyncExitStack() as stack:
        found = [Server(name, asked) for name in ("first", "second", "third")]
        for server in found:
            stack.push_async_callback(server.close)
            await server.start()
        yield found


@pytest.fixture
def kubeconfig(servers: list[Server], tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    cluster = {"server": f"http://127.0.0.1:{servers[0].address.port}"}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "a", "cluster": cluster}],
                "users": [{"name": "a", "user": {}}],
                "contexts": [context],
                "current-context": "a",
            }
        )
    )
    return path


def kubernetes(*addresses: ListenAddress, service: str = "kubernetes", namespace: str = "default") -> dict[str, object]:
    labels = {"kubernetes.io/service-name": service}
    endpoints = [{"addresses": [address.host], "conditions": {"ready": True}} for address in addresses]
    return {
        "metadata": {"name": service, "namespace": namespace, "labels": labels},
        "ports": [{"name": "https", "port": addresses[0].port}],
        "endpoints": endpoints,
    }


async def test_a_request_goes_to_the_next_server_when_one_is_gone(
    servers: list[Server], kubeconfig: Path, asked: list[str]
) -> None:
    further = ApiServers([servers[1].address, servers[2].address])
    async with await Kube.connect(kubeconfig, servers=further) as kube:
        await kube.get(NODES, "a")
        await servers[0].stop()
        await servers[1].stop()
        await kube.get(NODES, "a")
        await servers[0].start()
        await kube.get(NODES, "a")
        assert asked == ["first", "third", "third"], "it stays with the one that answered"
        await servers[2].stop()
        await kube.get(NODES, "a")
    assert asked[3:] == ["first"]


async def test_where_no_server_answers_the_request_fails_and_the_next_one_tries_all_again(
    servers: list[Server], kubeconfig: Path, asked: list[str]
) -> None:
    async with await Kube.connect(kubeconfig, servers=ApiServers([servers[1].address])) as kube:
        await servers[0].stop()
        await servers[1].stop()
        with pytest.raises(errors.KubeUnreachableError):
            await kube.get(NODES, "a")
        await servers[1].start()
        await kube.get(NODES, "a")
    assert asked == ["second"]


async def test_the_endpoints_of_the_service_kubernetes_are_servers_too(
    servers: list[Server], kubeconfig: Path, asked: list[str]
) -> None:
    async with await Kube.connect(kubeconfig) as kube:
        kube.servers.learn(kubernetes(servers[2].address, service="other"))
        kube.servers.learn(kubernetes(servers[2].address, namespace="evil"))
        await servers[0].stop()
        with pytest.raises(errors.KubeUnreachableError):
            await kube.get(NODES, "a")
        kube.servers.learn(kubernetes(servers[1].address))
        await kube.get(NODES, "a")
        assert asked == ["second"]
        kube.servers.forget(kubernetes(servers[1].address))
        with pytest.raises(errors.KubeUnreachableError):
            await kube.get(NODES, "a")


async def test_a_server_that_answers_nothing_is_not_asked_again(servers: list[Server], kubeconfig: Path) -> None:
    with _silent() as silent:
        further = ApiServers([servers[1].address])
        further._current = silent  # noqa: SLF001 - as if it had answered before
        further._further = (silent, *further._further)  # noqa: SLF001
        async with await Kube.connect(kubeconfig, servers=further) as kube:
            with pytest.raises(errors.KubeUnreachableError):
                await kube.request("GET", "/", timeout_s=0.2)
            await kube.get(NODES, "a")


@contextlib.contextmanager
def _silent() -> Iterator[ListenAddress]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield ListenAddress("127.0.0.1", listener.getsockname()[1])


async def test_kopf_goes_to_the_next_server_too(
    servers: list[Server], kubeconfig: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await servers[0].stop()
    context = await kopf_settings.login(ApiServers([servers[1].address]))
    async with context.aiohttp_session as session, session.get(f"{context.server}/api") as answer:
        assert answer.status == 200
    assert asked == ["second"]


async def test_the_peers_of_connections_are_known() -> None:
    servers = ApiServers()
    peers = [("192.0.2.7", 6443), ("192.0.2.7", 6443), ("fe80::1%eth0", 6443, 0, 2), None]

    async def handler(_: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
        peer = peers.pop(0)
        transport = SimpleNamespace(get_extra_info={"peername": peer}.get)
        connection = SimpleNamespace(transport=transport) if peer is not None else None
        return cast("aiohttp.ClientResponse", SimpleNamespace(connection=connection, headers={}))

    while peers:
        await servers(REQUEST, handler)
    assert servers.peers == ("fe80::1", "192.0.2.7")


@pytest.mark.parametrize(
    ("said", "year"), [("Sun, 06 Nov 2044 08:49:37 GMT", 2044), ("yesterday", None), ("", None), (None, None)]
)
async def test_the_date_is_that_of_the_server_whatever_the_clock_here_says(said: str | None, year: int | None) -> None:
    servers = ApiServers()

    async def handler(_: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
        headers = {} if said is None else {"Date": said}
        return cast("aiohttp.ClientResponse", SimpleNamespace(connection=None, headers=headers))

    await servers(REQUEST, handler)
    assert servers.now.year == (year or datetime.now(UTC).year)


def test_addresses_are_listed_once() -> None:
    one, two = ListenAddress("192.0.2.1", 6443), ListenAddress("192.0.2.2", 6443)
    servers = ApiServers([one, two])
    servers.learn(kubernetes(two, ListenAddress("2001:db8::3", 6443)))
    assert servers.addresses(one) == [one, two, ListenAddress("2001:db8::3", 6443)]


def test_addresses_are_read_from_the_environment() -> None:
    def read(text: str) -> tuple[ListenAddress, ...]:
        return OperatorSettings.from_environment({"KUBE_NFTLB_API_SERVERS": text}).api_servers

    assert read("192.0.2.1:6443, [2001:db8::3]:443") == (
        ListenAddress("192.0.2.1", 6443),
        ListenAddress("2001:db8::3", 443),
    )
    assert read("") == ()
    with pytest.raises(errors.UsageError, match="KUBE_NFTLB_API_SERVERS='a,b': must be comma-separated host:port"):
        read("a,b")
