"""How long a watch lasts: a real connection to a server that tells little."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kube_nftlb.kube import client
from kube_nftlb.kube.client import Kube, WatchEvent
from kube_nftlb.kube.resources import SERVICES

BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}


class Server:
    """Sends bookmarks at these intervals in seconds, then nothing until its ``end``."""

    def __init__(self) -> None:
        self.intervals_s: list[float] = []
        self.end = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for interval_s in self.intervals_s:
            await asyncio.sleep(interval_s)
            await response.write(json.dumps(BOOKMARK).encode() + b"\n")
        await self.end.wait()
        return response


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def kube(server: Server, tmp_path: Path) -> AsyncIterator[Kube]:
    application = web.Application()
    application.router.add_get("/{path:.*}", server.answer)
    async with TestServer(application) as listening:
        path = tmp_path / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "current-context": "it",
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                    "clusters": [{"name": "it", "cluster": {"server": str(listening.make_url("/"))}}],
                    "users": [{"name": "it", "user": {}}],
                }
            )
        )
        async with await Kube.connect(path) as connected:
            yield connected
            server.end.set()


async def watched(kube: Kube) -> list[WatchEvent]:
    return [event async for event in kube.watch(SERVICES, "11")]


async def test_bookmarks_keep_a_watch_and_silence_ends_it_without_an_error(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_WATCH_SILENCE_S", 0.4)
    server.intervals_s = [0.2] * 5
    async with asyncio.timeout(10):
        events = await watched(kube)
    assert [(event.type, event.object["metadata"]["resourceVersion"]) for event in events] == [("BOOKMARK", "12")] * 5
