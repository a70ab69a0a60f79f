"""The times at which a node's status is written: the API server is to see few writes, and none that matters late."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.status.node_reporter import HEARTBEAT_S, PENDING_S, NodeReporter
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.api.node import NodeDraining
from kube_nftlb.kube.resources import NFTLB_NODES, NODES
from tests.fakes.kube import FakeKube

INTERVAL_S = 1.0

pytestmark = pytest.mark.usefixtures("virtual_time")


class FakeState:
    """The state of an agent without farms, which it knows."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.progress.other_lag.done_at = 0.0
        self.sent: dict[str, SentFarm] = {}


class Reporting:
    """A reporter at work."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.kube, self.state = FakeKube(), FakeState()
        self.kube.delay_s = 0.5
        self.kube.put(NODES, {"metadata": {"name": "node-1"}})
        self.reporter = NodeReporter(self.kube, "node-1", interval_s, lambda: 1.0)
        self.task = asyncio.create_task(self.reporter.run(self.state))

    def written(self) -> list[str]:
        """The watermarks of all reports, "" for one that does not change it."""
        return [write.body["status"].get("watermark", "") for write in self.kube.writes if "status" in write.body]


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


async def test_a_watermark_that_moves_after_a_failure_is_told_soon(node: Reporting) -> None:
    """The operator may have listed meanwhile, and wait for what was gone by then."""
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    node.state.progress.slice_watermark = 6
    node.state.progress.caught_up["slice_watermark"] = 7
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    assert node.kube.writes[-1].body["status"].get("sliceWatermark") == "6"
    node.state.progress.slice_watermark = 7
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    assert node.kube.writes[-1].body["status"].get("sliceWatermark") == "7"
    node.state.progress.slice_watermark = 8
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    assert node.kube.writes[-1].body["status"].get("sliceWatermark") == "7", "it waits for the heartbeat"


async def test_only_what_changed_is_sent(node: Reporting) -> None:
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    node.state.progress.slices_changed_at = node.state.progress.slice_watermark = 7
    node.reporter.changed()
    await asyncio.sleep(2 * INTERVAL_S)
    assert node.kube.writes[-1].body["status"].keys() == {"sliceWatermark", "reportedAt"}
    status = (node.kube.find(NFTLB_NODES, "node-1") or {})["status"]
    assert status["versions"]["agent"]


@pytest.mark.parametrize(
    ("nodes", "per_s", "reports"),
    [
        pytest.param(1, 2, (55, 60), id="each interval"),
        pytest.param(1, 10, (18, 26), id="each 3 seconds, as each stands for 30 changes"),
        pytest.param(4, 2, (27, 31), id="half as often in four times as many nodes"),
        pytest.param(100, 2, (5, 7), id="100 nodes"),
    ],
)
async def test_endpoints_that_go_on_changing_are_reported_at_intervals_that_fit_the_cluster(
    node: Reporting, nodes: int, per_s: int, reports: tuple[int, int]
) -> None:
    node.reporter.set_nodes(nodes)
    await asyncio.sleep(20)
    before = len(node.written())
    node.kube.delay_s = 0
    for version in range(1, 60 * per_s):
        node.state.progress.slices_changed_at = node.state.progress.slice_watermark = version
        node.state.progress.pending = version % 2
        node.reporter.changed()
        await asyncio.sleep(1 / per_s)
    assert reports[0] <= len(node.written()) - before <= reports[1]


async def test_after_a_rest_a_change_is_reported_at_once_and_many_nodes_spread_it(node: Reporting) -> None:
    for nodes, within_s in ((1, 0.1), (500, 1.1)):
        node.reporter.set_nodes(nodes)
        heartbeats = len(node.written())
        while len(node.written()) == heartbeats:
            await asyncio.sleep(1)
        await asyncio.sleep(30)
        before = len(node.written())
        node.kube.delay_s = 0
        node.state.progress.slices_changed_at = node.state.progress.slice_watermark = nodes
        node.reporter.changed()
        await asyncio.sleep(within_s / 2)
        assert len(node.written()) == before, "the highest of all chances"
        await asyncio.sleep(within_s / 2)
        assert len(node.written()) == before + 1


async def test_that_changes_are_pending_is_reported_once_it_lasts(node: Reporting) -> None:
    node.reporter.changed()
    await asyncio.sleep(10)
    before = len(node.written())
    node.state.progress.pending = 1
    node.reporter.changed()
    await asyncio.sleep(PENDING_S / 2)
    assert len(node.written()) == before
    await asyncio.sleep(PENDING_S)
    assert node.kube.writes[-1].body["status"].keys() == {"conditions", "reportedAt"}


async def test_an_interval_that_many_nodes_stretch_makes_no_agent_silent() -> None:
    node = Reporting(interval_s=10)
    node.reporter.set_nodes(400)
    node.reporter.changed()
    await asyncio.sleep(10)
    before = len(node.written())
    await asyncio.sleep(600)
    assert len(node.written()) - before >= 9
    node.task.cancel()


async def test_an_agent_reports_all_once_a_minute_though_nothing_changes(node: Reporting) -> None:
    node.reporter.changed()
    await asyncio.sleep(10)
    before = len(node.written())
    await asyncio.sleep(600)
    assert 9 <= len(node.written()) - before <= 10
    assert "conditions" in node.kube.writes[-1].body["status"], "the operator may have changed them"


async def test_what_is_written_already_is_not_written_again(node: Reporting) -> None:
    await asyncio.sleep(2 * INTERVAL_S)
    node.state.progress.changed_at = 9
    node.state.progress.engine_error = "connection refused"
    for _ in range(30):
        node.reporter.changed()
        await asyncio.sleep(0.2)
    assert len(node.written()) == 1


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


async def test_failures_are_retried_ever_more_slowly_and_what_failed_is_written_whole(node: Reporting) -> None:
    node.reporter.changed()
    await asyncio.sleep(5 * INTERVAL_S)
    tries = 0

    async def patch(*_: Any, **__: Any) -> NoReturn:
        nonlocal tries
        tries += 1
        raise errors.KubeError(429, "TooManyRequests", "later")

    working, node.kube.patch = node.kube.patch, patch  # type: ignore[method-assign]  # an API server that refuses
    before = len(node.kube.writes)
    node.state.progress.changed_at = node.state.progress.watermark = 7
    node.reporter.changed()
    await asyncio.sleep(61)
    assert 8 <= tries <= 15
    assert len(node.kube.writes) == before, "nothing else is asked for"
    node.kube.patch = working  # type: ignore[method-assign]
    await asyncio.sleep(10)
    (write,) = node.kube.writes[before:]
    assert (write.body["status"]["watermark"], len(write.body["status"]) > 5) == ("7", True)
