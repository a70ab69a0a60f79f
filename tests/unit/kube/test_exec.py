"""Commands in containers, against a server that speaks as the API server does."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from kube_nftlb import errors
from kube_nftlb.kube import exec as remote

SUCCESS: dict[str, object] = {"status": "Success"}
FAILED: dict[str, object] = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
REFUSED: dict[str, object] = {"status": "Failure", "message": "container agent is not running"}


class Pods:
    """Answers requests for ``exec``; ``asked`` is the last one, ``told`` what it ends with."""

    def __init__(self) -> None:
        self.asked: web.Request | None = None
        self.told: dict[str, object] = SUCCESS

    async def exec(self, request: web.Request) -> web.WebSocketResponse:
        self.asked = request
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel, data in (
            (1, b""),
            (2, b"waiting\n"),
            (1, b"Serv"),
            (1, b"ed\n"),
            (3, json.dumps(self.told).encode()),
        ):
            await socket.send_bytes(bytes((channel,)) + data)
        await socket.close()
        return socket


@pytest.fixture
async def pods() -> AsyncIterator[tuple[Pods, Configuration]]:
    pods, app = Pods(), web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/exec", pods.exec)
    async with TestServer(app) as server:
        configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
        configuration.api_key["BearerToken"] = "Bearer secret"
        yield pods, configuration


async def run(configuration: Configuration) -> tuple[int, bytes, bytes]:
    written: dict[bool, bytes] = {False: b"", True: b""}

    def keep(data: bytes, to_error: bool) -> None:
        written[to_error] += data

    status = await remote.run(configuration, ("system", "agent-1"), "agent", ["trace", "a b"], keep)
    return status, written[False], written[True]


async def test_a_command_is_run_in_a_container(pods: tuple[Pods, Configuration]) -> None:
    asked, configuration = pods
    assert await run(configuration) == (0, b"Served\n", b"waiting\n")
    assert asked.asked is not None
    assert asked.asked.match_info == {"namespace": "system", "name": "agent-1"}
    assert asked.asked.query.getall("command") == ["trace", "a b"]
    # Its standard input ends with the connection, by which the command knows that nobody listens any more.
    assert (asked.asked.query["container"], asked.asked.query["stdin"]) == ("agent", "true")
    assert asked.asked.headers["Authorization"] == "Bearer secret"


async def test_its_exit_status_is_returned(pods: tuple[Pods, Configuration]) -> None:
    pods[0].told = FAILED
    assert (await run(pods[1]))[0] == 3


async def test_one_that_is_not_run_is_an_error(pods: tuple[Pods, Configuration]) -> None:
    pods[0].told = REFUSED
    with pytest.raises(errors.KubeUnreachableError, match="container agent is not running"):
        await run(pods[1])


async def test_a_pod_that_is_not_there_is_an_error() -> None:
    async with TestServer(web.Application()) as server:
        with pytest.raises(errors.KubeUnreachableError, match="in the pod system/agent-1"):
            await run(Configuration(host=str(server.make_url("")).rstrip("/")))
