"""How many statuses a steady change of endpoints costs, and how late they are, with nodes that report as agents do."""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pytest

from kube_nftlb.api.reports import report_interval_s
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, JsonObject, Resource
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.reconciler import Reconciler
from tests.builders import endpoint, raw_nftlb_node, raw_service_farm, raw_slice
from tests.fakes.events import RecordingEvents
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

_NODES = 2
_MOST = 6
"""Services have 1 to so many endpoints."""


class _Shown(NamedTuple):
    at: float
    ready: str
    programmed: bool


class _TimedKube(FakeKube):
    """Notes each status that a farm gets."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.delay_s = 0.005
        self.shown: dict[str, list[_Shown]] = defaultdict(list)
        self.untracked: Counter[str] = Counter()
        """How often the API server was made to forget who wrote which field of a farm."""
        self._clock = clock

    async def patch(self, resource: Resource, name: str, body: JsonObject, *where: Any, **more: Any) -> JsonObject:
        answer = await super().patch(resource, name, body, *where, **more)
        if "status" not in body:
            assert body["metadata"]["managedFields"] == [{}]
            self.untracked[name] += 1
            return answer
        conditions = {each["type"]: each["status"] for each in answer["status"]["conditions"]}
        programmed = conditions["EndpointsProgrammed"] == "True"
        shown = _Shown(self._clock(), answer["status"]["backendsReady"], programmed)
        self.shown[name.removesuffix("--http")].append(shown)
        return answer


class Cluster:
    """An operator whose nodes program each change at once, and report it at the interval of agents."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.kube = _TimedKube(clock)
        self._clock = clock
        self._ingest = Ingest(Cache(clock=clock))
        self._loop = Reconciler(self._ingest, FarmWriter(self.kube, self._ingest), RecordingEvents(), clock)
        self.changes: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._per_s = 0.0
        self.tasks = [asyncio.create_task(self._loop.statuses.work()) for _ in range(4)]
        self.tasks += [asyncio.create_task(self._report(f"n{number}", number / _NODES)) for number in range(_NODES)]

    async def run(self, services: int, per_s: float, seconds: int) -> None:
        """Add endpoints to Services one after another, and remove them again."""
        self._per_s = per_s
        for number in range(services):
            name = f"web-{number}"
            listens = [{"ip": f"10.96.0.{number + 1}", "ports": "80"}]
            version = self.kube.version + 1
            farm = raw_service_farm(f"{name}--http", service=name, version=version, addresses=listens)
            farm["metadata"]["managedFields"] = [{"manager": "kube-nftlb-operator"}]
            self._loop.statuses.mark(self._ingest.put(FARMS, self.kube.put(FARMS, farm)).farms)
            self._change(name, 1)
        await asyncio.sleep(60)
        for name in self.changes:
            del self.changes[name][:], self.kube.shown[name][:-1]
        for change in range(round(per_s * seconds)):
            name, step = f"web-{change % services}", change // services % (2 * _MOST - 2)
            self._change(name, _MOST - abs(_MOST - 2 - step))
            await asyncio.sleep(1 / per_s)
        self.written = sum(len(each) - 1 for each in self.kube.shown.values()) / sum(map(len, self.changes.values()))
        await asyncio.sleep(30)

    def _change(self, name: str, size: int) -> None:
        self.kube.version += 1
        endpoints = (endpoint(f"10.244.0.{number}", f"pod-{number}") for number in range(1, size + 1))
        raw = raw_slice(*endpoints, name=name, service=name, version=self.kube.version)
        self._loop.statuses.mark(self._ingest.put(ENDPOINT_SLICES, raw).farms)
        self.changes[name].append((self._clock(), f"{size}/{size}"))

    async def _report(self, name: str, phase: float) -> None:
        interval_s = report_interval_s(_NODES)
        await asyncio.sleep(phase * interval_s)
        while True:
            self.kube.version += 1
            version = self.kube.version
            node = raw_nftlb_node(name, watermark=str(version), slice_watermark=str(version), version=version)
            self._loop.statuses.mark(self._ingest.put(NFTLB_NODES, node).farms)
            await asyncio.sleep(report_interval_s(_NODES, self._per_s))

    def delays(self, *, programmed: bool) -> list[float]:
        """Return after how many seconds each change was shown, in order."""
        return sorted(
            delay
            for name, changes in self.changes.items()
            for delay in _delays(changes, self.kube.shown[name], programmed=programmed)
        )


def _delays(changes: Sequence[tuple[float, str]], shown: Sequence[_Shown], *, programmed: bool) -> Iterator[float]:
    """Yield how long each change was not shown, nor a later one: by a new status, or by one that is right again."""
    for number, (at, _) in enumerate(changes):
        later = changes[number:]
        expected = {ready for _, ready in later}
        enough = {each for each in shown if each.programmed or not programmed}
        written = (each.at for each in shown if each.at >= at and each.ready in expected and each in enough)
        undone = (
            then
            for then, ready in later
            if (last := [each for each in shown if each.at <= then][-1]) in enough and last.ready == ready
        )
        yield min(chain(written, undone)) - at


@pytest.fixture
async def cluster(virtual_time: VirtualTime) -> AsyncIterator[Cluster]:
    cluster = Cluster(virtual_time.now)
    yield cluster
    for task in cluster.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_ten_changes_a_second_of_50_services_cost_one_write_each_within_five_seconds(cluster: Cluster) -> None:
    await cluster.run(50, 10, 60)
    assert cluster.written <= 1.05
    assert cluster.delays(programmed=True)[-1] <= 5


async def test_who_wrote_which_field_is_forgotten_once_of_each_farm_that_changes_often(cluster: Cluster) -> None:
    await cluster.run(10, 1, 10)
    assert cluster.kube.untracked == {}, "a write for each farm would cost more than two statuses save"
    await cluster.run(10, 2, 60)
    assert cluster.kube.untracked == {f"web-{number}--http": 1 for number in range(10)}
    assert cluster.written <= 1.05


async def test_five_changes_a_second_of_200_services_are_shown_within_a_second(cluster: Cluster) -> None:
    await cluster.run(200, 5, 90)
    assert cluster.written <= 1.05
    delays = cluster.delays(programmed=False)
    assert delays[int(len(delays) * 0.99)] <= 1
    assert cluster.delays(programmed=True)[-1] <= 5


async def test_of_a_service_that_changes_each_second_among_fifty_one_status_stands_for_several_changes(
    cluster: Cluster,
) -> None:
    await cluster.run(50, 50, 20)
    assert cluster.written <= 0.5
    assert cluster.delays(programmed=False)[-1] <= 5
