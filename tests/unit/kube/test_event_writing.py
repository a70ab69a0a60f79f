"""The order in which Events are written, and those that cannot be written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
from structlog.testing import capture_logs

from kube_nftlb import errors
from kube_nftlb.kube import events as events_module
from kube_nftlb.kube.event_limits import Limiter
from kube_nftlb.kube.events import Events, Lasting, Source, Subject
from kube_nftlb.kube.resources import FARMS, NODES
from kube_nftlb.operator.model.rejections import Rejection
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

pytestmark = pytest.mark.usefixtures("virtual_time")

CONFLICT = Lasting("AddressConflict", "another has it")


def farm(name: str, namespace: str = "crowd") -> Subject:
    return Subject(FARMS, namespace, name, f"{namespace}-{name}")


@contextlib.asynccontextmanager
async def written_by(events: Events) -> AsyncIterator[None]:
    """Run the writer, and wait until it has nothing left to do."""
    task = asyncio.create_task(events.run())
    await asyncio.sleep(1)
    yield
    await asyncio.sleep(1)
    task.cancel()


def about(kube: FakeKube) -> list[str]:
    """The names of the objects of the Events, in the order of the writes."""
    return [write.body["involvedObject"]["name"] for write in kube.writes]


async def test_a_namespace_does_not_wait_for_the_thousands_of_another() -> None:
    kube = FakeKube()
    events = Events(kube, Source("operator"))
    for number in range(1500):
        events.report(farm(f"late-{number}"), [CONFLICT])
    events.report(farm("web", "default"), [CONFLICT])
    events.report(Subject(NODES, "", "node-1", "uid"), [CONFLICT])
    async with written_by(events):
        pass
    assert len(kube.writes) == 1502
    assert {"web", "node-1"} <= set(about(kube)[:8])


async def test_the_events_of_an_object_keep_their_order_in_a_crowd() -> None:
    kube = FakeKube()
    events = Events(kube, Source("operator"))
    for number in range(100):
        events.report(farm(str(number)), [CONFLICT])
    for number in range(100):
        events.report_resolved(farm(str(number)), "Programmed", "all have it")
    async with written_by(events):
        pass
    for number in range(100):
        mine = [write.body for write in kube.writes if write.body["involvedObject"]["name"] == str(number)]
        told = [(body["type"], body["reason"]) for body in mine]
        assert told == [("Warning", "AddressConflict"), ("Normal", "Programmed")]


async def test_a_finding_is_told_later_if_too_many_wait_and_costs_no_other_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_module, "_WAITING_MAX", 10)
    kube = FakeKube()
    events = Events(kube, Source("operator"))

    def report() -> None:
        for number in range(15):
            events.report(farm(str(number)), [CONFLICT])
        events.report(farm("web", "default"), [CONFLICT])

    report()
    async with written_by(events):
        assert len(kube.writes) == 11
        assert "web" in about(kube)
        report()
    assert sorted(about(kube)) == sorted([*map(str, range(15)), "web"]), "each is told once"


async def test_a_finding_over_the_burst_of_its_object_is_told_later_if_it_lasts(
    monkeypatch: pytest.MonkeyPatch, virtual_time: VirtualTime
) -> None:
    monkeypatch.setattr(events_module, "Limiter", partial(Limiter, virtual_time.now))
    kube = FakeKube()
    events = Events(kube, Source("operator"))
    findings = [Rejection("InvalidAnnotation", str(number)) for number in range(26)]
    events.report(farm("web"), findings)
    async with written_by(events):
        assert len(kube.writes) == 25
        events.report(farm("web"), findings)
        await asyncio.sleep(301)
        assert len(kube.writes) == 25
        for _ in range(2):
            events.report(farm("web"), findings)
    assert [write.body["message"] for write in kube.writes] == [each.message for each in findings]


async def test_a_finding_whose_event_has_to_wait_for_its_turn_is_logged_once_for_as_long_as_it_lasts() -> None:
    events = Events(FakeKube(), Source("operator"))
    findings = [Rejection("InvalidAnnotation", str(number)) for number in range(30)]

    def logged() -> list[str]:
        with capture_logs() as lines:
            events.report(farm("web"), findings)
        return [line["message"] for line in lines if line["event"] == "problem"]

    assert logged() == [each.message for each in findings], "those over the burst too"
    assert logged() == []
    findings.append(Rejection("InvalidAnnotation", "new"))
    gone = findings.pop(29)
    assert logged() == ["new"]
    findings.append(gone)
    assert logged() == [gone.message], "it is back"


async def test_an_event_waits_for_an_api_server_that_is_away_though_nobody_reports_it_again() -> None:
    kube = FakeKube()
    events = Events(kube, Source("operator"))
    kube.away = True
    events.report(farm("web"), [CONFLICT])
    async with written_by(events):
        assert kube.writes == []
        kube.away = False
        await asyncio.sleep(1)
    assert about(kube) == ["web"]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_event_that_the_api_server_does_not_take_for_now_is_sent_again(status: int) -> None:
    kube = FakeKube()
    kube.create_errors.append(errors.KubeError(status, "Overloaded", "later"))
    events = Events(kube, Source("operator"))
    events.report(farm("web"), [CONFLICT])
    events.report(farm("other"), [CONFLICT])
    async with written_by(events):
        await asyncio.sleep(2)
    assert about(kube) == ["web", "other"]


async def test_an_event_whose_answer_is_lost_is_written_once() -> None:
    kube = FakeKube()
    kube.answers_lost = 1
    events = Events(kube, Source("operator"))
    events.report(farm("web"), [CONFLICT])
    async with written_by(events):
        await asyncio.sleep(2)
    assert len({write.name for write in kube.writes}) == 1


@pytest.mark.parametrize("status", [403, 422, 500])
async def test_a_finding_whose_event_the_api_server_refuses_holds_no_other_and_is_told_later(status: int) -> None:
    kube = FakeKube()
    kube.create_errors.extend([errors.KubeError(status, "Refused", "no")] * (3 if status == 500 else 1))
    events = Events(kube, Source("operator"))
    events.report(farm("web"), [CONFLICT])
    events.report(farm("other"), [CONFLICT])
    async with written_by(events):
        await asyncio.sleep(3)
        assert about(kube) == ["other"]
        events.report(farm("web"), [CONFLICT])
    assert about(kube) == ["other", "web"]


async def test_thousands_of_lasting_findings_are_told_once() -> None:
    kube = FakeKube()
    events = Events(kube, Source("operator"))
    for _ in range(3):
        for number in range(3000):
            events.report(farm(str(number)), [CONFLICT])
            service = Subject(FARMS, "crowd", "web", f"service-{number}")
            events.report(service, [Rejection("AddressConflict", "a farm")], about=str(number))
    async with written_by(events):
        pass
    assert len(kube.writes) == 6000
