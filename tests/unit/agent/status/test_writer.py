"""The times at which a node's status is written: the API server is to see few writes, and none that matters late."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kube_nftlb.agent.model import Programmed
from kube_nftlb.agent.status.writer import ENDPOINTS_EVERY_S, HEARTBEAT_S, INTERVAL_S, NodeReporter
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.api.node import NodeDraining
from kube_nftlb.kube.resources import NODES
from tests.fakes.kube import FakeKube

pytestmark = pytest.mark.usefixtures("virtual_time")


class FakeState:
    """The state of an agent without farms."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.programmed: dict[str, Programmed] = {}


class Reporting:
    """A reporter at work."""

    def __init__(self) -> None:
        self.kube, self.state = FakeKube(), FakeState()
        self.kube.delay_s = 0.5
        self.kube.put(NODES, {"metadata": {"name": "node-1"}})
        self.reporter = NodeReporter(self.kube, "node-1")
        self.task = asyncio.create_task(self.reporter.run(self.state))

    def written(self) -> list[str]:
        """The watermarks of all statuses."""
        return [write.body["status"]["watermark"] for write in self.kube.writes if "status" in write.body]


@pytest.fixture
async def node() -> AsyncIterator[Reporting]:
    node = Reporting()
    yield node
    node.task.cancel()


async def test_a_change_done_while_a_status_is_written_is_told_soon(node: Reporting) -> None:
    for version in range(1, 30):
        node.state.progress.changed_at = node.state.progress.watermark = version
        node.reporter.changed()
        await asyncio.sleep(0.7 * INTERVAL_S)
    await asyncio.sleep(2 * INTERVAL_S)
    assert node.written()[-1] == "29"


async def test_a_watermark_that_moves_without_a_change_waits_for_the_heartbeat(node: Reporting) -> None:
    for version in range(1, 10):
        node.state.progress.watermark = version
        node.reporter.changed()
        await asyncio.sleep(2 * INTERVAL_S)
    assert node.written() == ["1"]
    await asyncio.sleep(HEARTBEAT_S + INTERVAL_S)
    assert node.written() == ["1", "9"]


async def test_endpoints_that_go_on_changing_are_told_less_often_than_farms(node: Reporting) -> None:
    progress, begun = node.state.progress, asyncio.get_running_loop().time()
    while (passed := asyncio.get_running_loop().time() - begun) < 10 * ENDPOINTS_EVERY_S:
        progress.slices_changed_at = progress.slice_watermark = int(passed * 10) + 1
        progress.pending = int(passed * 10) % 2
        node.reporter.changed()
        await asyncio.sleep(0.1)
    assert 7 <= len(node.written()) <= 12
    progress.changed_at = progress.watermark = 7
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    assert node.written()[-1] == "7"


async def test_what_is_written_already_is_not_written_again(node: Reporting) -> None:
    await asyncio.sleep(2 * INTERVAL_S)
    node.state.progress.changed_at = 9
    node.state.progress.engine_error = "connection refused"
    for _ in range(30):
        node.reporter.changed()
        await asyncio.sleep(0.2)
    assert len(node.written()) == 1


async def test_one_change_of_endpoints_is_told_at_once_and_the_last_one_too(node: Reporting) -> None:
    await asyncio.sleep(2 * INTERVAL_S)
    node.reporter.changed()
    await asyncio.sleep(2 * ENDPOINTS_EVERY_S)
    before = len(node.written())
    for version in (1, 2):
        node.state.progress.slices_changed_at = node.state.progress.slice_watermark = version
        node.reporter.changed()
        await asyncio.sleep(INTERVAL_S)
    assert len(node.written()) == before + 1
    await asyncio.sleep(ENDPOINTS_EVERY_S)
    assert len(node.written()) == before + 2


async def test_the_first_count_of_connections_after_a_change_is_told_at_once_and_later_ones_if_they_differ(
    node: Reporting,
) -> None:
    progress = node.state.progress

    async def count(watermark: int, connections: int) -> int:
        before = len(node.written())
        progress.draining = NodeDraining(watermark=str(watermark), backends=1, connections=connections)
        node.reporter.changed()
        await asyncio.sleep(3 * INTERVAL_S)
        return len(node.written()) - before

    progress.changed_at = progress.watermark = 5
    await count(4, 0)
    # Another backend drains, with as many connections.
    assert await count(5, 0) == 1
    assert await count(6, 0) == 0
    assert await count(7, 3) == 1
