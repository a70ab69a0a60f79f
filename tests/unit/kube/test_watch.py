"""How long a watch lasts: a real connection to a server that tells little."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from kube_nftlb.kube import client
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES
from tests.fakes.api_server import ApiServer, ObjectPath, serving

BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}


class Server(ApiServer):
    """Sends bookmarks at these intervals in seconds, then nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.intervals_s: list[float] = []

    async def watch(self, request: web.Request, _: ObjectPath) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for interval_s in self.intervals_s:
            await asyncio.sleep(interval_s)
            await response.write(msgspec.json.encode(BOOKMARK) + b"\n")
        await asyncio.Event().wait()
        return response


async def test_bookmarks_keep_a_watch_and_silence_ends_it_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    monkeypatch.setattr(client, "_WATCH_SILENCE_S", 0.4)
    server.intervals_s = [0.2] * 5
    async with serving(server, tmp_path) as kubeconfig, await Kube.connect(kubeconfig) as kube, asyncio.timeout(10):
        events = [event async for event in kube.watch(SERVICES, "11")]
    assert [(event.type, event.object["metadata"]["resourceVersion"]) for event in events] == [("BOOKMARK", "12")] * 5
