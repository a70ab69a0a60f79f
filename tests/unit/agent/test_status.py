"""When a node's status is written: the API server is to see few writes, and none that matters late."""

import asyncio
from typing import Any

import pytest

from kube_nftlb.agent import status
from kube_nftlb.agent.reconcile import Progress
from kube_nftlb.agent.status import NodeReporter


class FakeKube:
    def __init__(self) -> None:
        self.written: list[str] = []

    async def get(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"uid": "uid"}}

    async def apply(self, _resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        if "status" in body:
            await asyncio.sleep(0.02)
            self.written.append(body["status"]["watermark"])
        return {"metadata": {"name": "node-1"}}


class FakeReconciler:
    def __init__(self) -> None:
        self.progress = Progress()
        self.served: dict[str, Any] = {}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "SETTLE_S", 0.005)
    monkeypatch.setattr(status, "INTERVAL_S", 0.01)


@pytest.mark.usefixtures("fast")
async def test_a_change_done_while_a_status_is_written_is_told_soon() -> None:
    kube, loop = FakeKube(), FakeReconciler()
    reporter = NodeReporter(kube, "node-1")  # type: ignore[arg-type]  # a fake
    task = asyncio.create_task(reporter.run(loop))  # type: ignore[arg-type]  # a fake
    for version in range(1, 30):
        loop.progress.changed_at = loop.progress.watermark = version
        reporter.changed()
        await asyncio.sleep(0.007)
    await asyncio.sleep(0.15)
    task.cancel()
    assert kube.written[-1] == "29"


@pytest.mark.usefixtures("fast")
async def test_a_watermark_that_moves_without_a_change_waits_for_the_heartbeat() -> None:
    kube, loop = FakeKube(), FakeReconciler()
    reporter = NodeReporter(kube, "node-1")  # type: ignore[arg-type]  # a fake
    task = asyncio.create_task(reporter.run(loop))  # type: ignore[arg-type]  # a fake
    for version in range(1, 10):
        loop.progress.watermark = version
        reporter.changed()
        await asyncio.sleep(0.06)
    task.cancel()
    assert kube.written == ["1"]
