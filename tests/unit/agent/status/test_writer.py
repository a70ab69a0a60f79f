"""When a node's status is written: the API server is to see few writes, and none that matters late."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_nftlb.agent.status import writer
from kube_nftlb.agent.status.writer import NodeReporter
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.kube.resources import NODES
from tests.fakes.kube import FakeKube


class FakeReconciler:
    def __init__(self) -> None:
        self.progress = Progress()
        self.programmed: dict[str, Any] = {}


class Reporting:
    """A reporter at work."""

    def __init__(self) -> None:
        self.kube, self.loop = FakeKube(), FakeReconciler()
        self.kube.delay_s = 0.02
        self.kube.put(NODES, {"metadata": {"name": "node-1"}})
        self.reporter = NodeReporter(self.kube, "node-1")
        self.task = asyncio.create_task(self.reporter.run(self.loop))  # type: ignore[arg-type]  # a fake

    def written(self) -> list[str]:
        """The watermarks of all statuses."""
        return [write.body["status"]["watermark"] for write in self.kube.writes if "status" in write.body]


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reporting]:
    monkeypatch.setattr(writer, "SETTLE_S", 0.005)
    monkeypatch.setattr(writer, "INTERVAL_S", 0.01)
    node = Reporting()
    yield node
    node.task.cancel()


async def test_a_change_done_while_a_status_is_written_is_told_soon(node: Reporting) -> None:
    for version in range(1, 30):
        node.loop.progress.changed_at = node.loop.progress.watermark = version
        node.reporter.changed()
        await asyncio.sleep(0.007)
    await asyncio.sleep(0.15)
    assert node.written()[-1] == "29"


async def test_a_watermark_that_moves_without_a_change_waits_for_the_heartbeat(node: Reporting) -> None:
    for version in range(1, 10):
        node.loop.progress.watermark = version
        node.reporter.changed()
        await asyncio.sleep(0.06)
    assert node.written() == ["1"]
