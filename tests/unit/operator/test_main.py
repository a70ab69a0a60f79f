"""The whole operator, with kopf, before an API server in memory."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import msgspec
import pytest
from aiohttp import web
from kopf.testing import KopfRunner

from kube_nftlb import logs
from kube_nftlb.kube.resources import FARMS, LEASES, POLICIES, SERVICES, Resource
from kube_nftlb.operator import main
from kube_nftlb.operator.informers.kinds import BY_KOPF
from tests.builders import raw_service
from tests.fakes.api_server import ApiServer, ObjectPath, serving
from tests.ports import free_port


class DeletingApiServer(ApiServer):
    """Loses a Service after its first list was made, whoever made it."""

    def listed(self, resource: Resource) -> None:
        super().listed(resource)
        if resource is SERVICES and self.lists[SERVICES] == 1:
            self.kube.remove(SERVICES, "ghost", "default")


class SlowApiServer(ApiServer):
    """Lists no farms before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.lists_farms = asyncio.Event()

    async def list(self, request: web.Request, path: ObjectPath) -> web.Response:
        if path.resource is FARMS:
            await self.lists_farms.wait()
        return await super().list(request, path)


class FailingApiServer(ApiServer):
    """Ends the first watch of Services with an error, after which kopf gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.has_failed = False

    async def watch(self, request: web.Request, path: ObjectPath) -> web.StreamResponse:
        if path.resource is not SERVICES or self.has_failed:
            return await super().watch(request, path)
        self.has_failed = True
        status = {"kind": "Status", "code": 500, "message": "etcd is away"}
        return web.Response(body=msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")


class LateApiServer(ApiServer):
    """Tells of the custom resources a while after it has them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.late_until = 3

    async def answer(self, request: web.Request) -> web.StreamResponse:
        answer = await super().answer(request)
        if request.path != "/apis":
            return answer
        self.asked += 1
        assert isinstance(answer, web.Response)
        found = msgspec.json.decode(answer.text or "")
        if self.asked < self.late_until:
            found["groups"] = [each for each in found["groups"] if each["name"] != FARMS.group]
        return web.json_response(found)


class DisagreeingApiServer(ApiServer):
    """Is two: the one that kopf asks does not know of policies yet."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        answer = await super().answer(request)
        if request.path != f"/apis/{POLICIES.api_version}":
            return answer
        self.asked += 1
        assert isinstance(answer, web.Response)
        found = msgspec.json.decode(answer.text or "")
        if self.asked == 2:
            found["resources"] = [each for each in found["resources"] if each["name"] != POLICIES.plural]
        return web.json_response(found)


def environment(kubeconfig: Path) -> dict[str, str]:
    """Return the settings of an operator."""
    listens = {f"KUBE_NFTLB_{what}_ADDRESS": f"127.0.0.1:{free_port()}" for what in ("METRICS", "HEALTH")}
    return {**listens, "KUBECONFIG": str(kubeconfig)}


OWN_COMMAND = ("kube_nftlb.operator",)
COMMAND_OF_KOPF = ("kopf", "run", "--all-namespaces", "--module=kube_nftlb.operator")


@asynccontextmanager
async def operator(kubeconfig: Path, command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an operator, and end it as Kubernetes does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, env={**os.environ, **environment(kubeconfig)}
    )
    try:
        yield process
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def appears(server: ApiServer, farm: str) -> None:
    """Wait until the operator has made a farm."""
    async with asyncio.timeout(60):
        while server.kube.find(FARMS, farm, "default") is None:
            await asyncio.sleep(0.02)


def put_service(server: ApiServer, name: str) -> None:
    server.kube.put(SERVICES, raw_service(name, version=server.kube.version + 1))


async def test_a_service_deleted_between_the_first_two_lists_gets_no_farm(tmp_path: Path) -> None:
    server = DeletingApiServer()
    for name in ("ghost", "web"):
        put_service(server, name)
    async with (
        serving(server, tmp_path) as kubeconfig,
        operator(kubeconfig, COMMAND_OF_KOPF) as process,
        asyncio.timeout(60),
    ):
        while server.kube.find(FARMS, "web--http", "default") is None or server.lists[SERVICES] < 2:
            assert process.returncode is None
            await asyncio.sleep(0.02)
    assert {write.name for write in server.kube.writes if write.resource is FARMS} == {"web--http"}


async def test_it_waits_for_definitions_of_which_the_api_server_does_not_tell_yet(tmp_path: Path) -> None:
    server = LateApiServer()
    put_service(server, "web")
    async with serving(server, tmp_path) as kubeconfig, operator(kubeconfig, OWN_COMMAND):
        await appears(server, "web--http")
    assert server.asked > 3


async def test_it_ends_where_kopf_would_never_watch_a_kind(tmp_path: Path) -> None:
    server = DisagreeingApiServer()
    put_service(server, "web")
    async with serving(server, tmp_path) as kubeconfig:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", *OWN_COMMAND),
            env={**os.environ, **environment(kubeconfig)},
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            _, error = await process.communicate()
    assert process.returncode
    assert "kopf does not watch nftlbpolicies: an API server may not know of them yet" in error.decode()
    assert server.kube.writes == []


async def test_it_ends_and_gives_its_lease_back_while_it_waits_for_definitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_NFTLB_LEADER_ELECTION", "on")
    server = LateApiServer()
    server.late_until = sys.maxsize

    def holder() -> str | None:
        leases = [each for each in server.kube.writes if each.resource is LEASES]
        return leases[-1].body["spec"]["holderIdentity"] if leases else None

    async with serving(server, tmp_path) as kubeconfig, operator(kubeconfig, OWN_COMMAND), asyncio.timeout(60):
        while not holder() or not server.asked:
            await asyncio.sleep(0.02)
    assert holder() == ""


async def test_it_starts_before_the_api_server_has_made_its_own_service(tmp_path: Path) -> None:
    server = ApiServer()
    async with serving(server, tmp_path) as kubeconfig, operator(kubeconfig, OWN_COMMAND):
        async with asyncio.timeout(60):
            while not server.lists.get(SERVICES):
                await asyncio.sleep(0.02)
        put_service(server, "web")
        await appears(server, "web--http")


async def test_it_starts_again_when_kopf_gives_up(tmp_path: Path) -> None:
    server = FailingApiServer()
    put_service(server, "before")
    async with serving(server, tmp_path) as kubeconfig, operator(kubeconfig, OWN_COMMAND):
        await appears(server, "before--http")
        while not server.has_failed:
            await asyncio.sleep(0.02)
        put_service(server, "after")
        await appears(server, "after--http")


async def test_nothing_is_written_before_everything_is_listed_and_kopf_tells_its_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    server, port = SlowApiServer(), free_port()
    put_service(server, "web")
    async with serving(server, tmp_path) as kubeconfig, aiohttp.ClientSession() as session:
        for name, value in environment(kubeconfig).items():
            monkeypatch.setenv(name, value)
        probes = f"http://{os.environ['KUBE_NFTLB_HEALTH_ADDRESS']}/readyz"
        liveness = f"http://127.0.0.1:{port}/healthz"
        async with kopf_runner([*COMMAND_OF_KOPF[1:], f"--liveness={liveness}"]) as runner:
            while server.lists.get(SERVICES, 0) < 2:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            assert (await get(session, probes))[0] == 503
            assert server.kube.writes == []
            server.lists_farms.set()
            await appears(server, "web--http")
            assert (await get(session, probes))[0] == 200
            status, body = await get(session, liveness)
            assert (status, body["health"]["healthy"]) == (200, True)
        assert runner.exit_code == 0


@asynccontextmanager
async def kopf_runner(arguments: list[str]) -> AsyncIterator[KopfRunner]:
    """Run kopf in a thread of this process."""
    runner = KopfRunner(arguments, timeout=30)
    await asyncio.to_thread(runner.__enter__)
    try:
        yield runner
    finally:
        await asyncio.to_thread(runner.__exit__, None, None, None)


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    async with session.get(url) as answer:
        return answer.status, await answer.json()


def test_kopf_follows_what_people_write_and_stores_nothing_in_it() -> None:
    assert main.__doc__, "its handlers are registered"
    registry = kopf.get_default_registry()
    selectors = registry._watching.get_all_selectors()  # noqa: SLF001 kopf shows it nowhere else
    assert {(each.group, each.version, each.any_name) for each in selectors} == {
        (kind.group, kind.version, kind.plural) for kind in BY_KOPF
    }
    assert not registry._changing.get_all_handlers()  # noqa: SLF001
    assert not registry._spawning.get_all_handlers()  # noqa: SLF001
