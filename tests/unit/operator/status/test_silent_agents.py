"""Nodes whose agents no longer report are named."""

from datetime import UTC, datetime
from typing import Any

from kube_nftlb.kube.resources import NFTLB_NODES
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.status.silent_agents import SilentAgents
from tests.builders import raw_nftlb_node
from tests.fakes.clock import FakeClock
from tests.fakes.events import RecordingEvents
from tests.fakes.kube import FakeKube


class Watching:
    """Two nodes, the second of which is silent."""

    def __init__(self) -> None:
        self.clock, self.kube, self.events = FakeClock(), FakeKube(), RecordingEvents()
        self.ingest = Ingest(Cache(clock=self.clock.now))
        self.marked: list[Affected] = []
        now = lambda: datetime(2026, 1, 1, tzinfo=UTC)  # noqa: E731 - one value
        self.agents = SilentAgents(self.kube, self.ingest, self.events, self.marked.append, now)
        for name in ("n1", "n2"):
            self.put(name, reported_at="2026-01-01T00:00:00Z")

    async def wait(self) -> None:
        """Wait until the second one is silent, in contact with the API server."""
        for number in range(20):
            self.put("n1", reported_at=f"2026-01-01T00:00:{number:02}Z")
            await self.agents.look()
            self.clock.time += 10

    def put(self, name: str, **more: Any) -> None:
        raw = raw_nftlb_node(name, watermark="10", version=self.kube.version + 1, **more)
        self.ingest.put(NFTLB_NODES, self.kube.put(NFTLB_NODES, raw))

    def ready(self, name: str) -> tuple[str, str]:
        (condition,) = (self.kube.find(NFTLB_NODES, name) or {})["status"]["conditions"]
        return condition["status"], condition["reason"]


async def test_a_silent_agent_is_named_once_and_its_return_too() -> None:
    watching = Watching()
    await watching.wait()
    await watching.agents.look()
    assert (watching.ready("n1"), watching.ready("n2")) == (("True", "AgentReady"), ("Unknown", "AgentSilent"))
    ((reason, message),) = watching.events.reported["NftlbNode n2", ""]
    assert reason == "AgentSilent"
    assert "has not reported since 2026-01-01T00:00:00Z" in message
    assert len(watching.kube.writes) == 1
    watching.put("n2", reported_at="2026-01-01T00:09:00Z")
    await watching.agents.look()
    assert watching.events.reported["NftlbNode n2", ""] == []
    assert watching.events.news == [("NftlbNode n2", "AgentReports", "its agent reports again")]


async def test_nobody_is_named_while_the_api_server_is_away_or_has_just_returned() -> None:
    watching = Watching()
    await watching.agents.look()
    watching.kube.away = True
    watching.clock.time += 3600
    await watching.agents.look()
    watching.kube.away = False
    await watching.agents.look()
    assert watching.kube.writes == []


async def test_a_report_that_comes_meanwhile_is_not_overwritten() -> None:
    watching = Watching()
    # The watch has not delivered it.
    watching.kube.put(NFTLB_NODES, raw_nftlb_node("n2", reported_at="2026-01-01T00:00:21Z", version=99))
    await watching.wait()
    assert watching.ready("n2") == ("True", "AgentReady")
    assert watching.kube.writes == []
