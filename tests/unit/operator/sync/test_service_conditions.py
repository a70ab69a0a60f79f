"""The times at which the condition of a Service is written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kube_nftlb import errors, names
from kube_nftlb.api.base import Condition
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.events import Events, Lasting, Source
from kube_nftlb.kube.resources import FARMS, SERVICES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.operator.sync.service_conditions import ServiceConditions
from tests.builders import raw_service, raw_service_farm
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

Json = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WEB = ServiceKey("default", "web")
PROXY = {names.LABEL_PROXY_NAME: "other"}


class Operator:
    def __init__(self, time: VirtualTime) -> None:
        self.kube = FakeKube()
        self.cache = Cache()
        self.ingest = Ingest(self.cache)
        self.conditions = ServiceConditions(self.kube, self.cache, time.now, lambda: NOW)
        self.put(raw_service(version=1))
        self.ingest.put(FARMS, raw_service_farm(version=2))

    def put(self, raw: Json) -> None:
        """Put in a Service, with the status that it has at the API server."""
        known = self.kube.find(SERVICES, "web", "default")
        raw = {**raw, "status": (known or {}).get("status", {})}
        self.ingest.put(SERVICES, self.kube.put(SERVICES, raw))

    def heard(self) -> None:
        """Have the watch deliver what was written."""
        raw = self.kube.find(SERVICES, "web", "default")
        assert raw is not None
        self.ingest.put(SERVICES, raw)

    def look(self, *problems: Lasting, programmed: bool = True) -> None:
        """Have the status of the farm be decided."""
        farm = self.cache.farms_of(WEB)[0]
        entry = Condition(type="Programmed", status=str(programmed), reason="AllNodes", last_transition_time="x")
        self.conditions.about_farm(farm, FarmStatus(conditions=(entry,)), problems)

    def written(self) -> list[tuple[str, str]]:
        found = [write.body["status"]["conditions"] for write in self.kube.writes]
        return [(each[0]["status"], each[0]["reason"]) if each else ("", "") for each in found]


@pytest.fixture
async def operator(virtual_time: VirtualTime) -> AsyncIterator[Operator]:
    operator = Operator(virtual_time)
    task = asyncio.create_task(operator.conditions.run())
    yield operator
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_it_is_written_once_for_a_change_that_all_nodes_have_soon(operator: Operator) -> None:
    operator.conditions.about_service(WEB, [])
    operator.look(programmed=False)
    await asyncio.sleep(1)
    operator.look()
    await asyncio.sleep(10)
    assert operator.written() == [("True", "AllNodes")]
    operator.heard()
    operator.look()
    await asyncio.sleep(10)
    assert operator.written() == [("True", "AllNodes")]


async def test_it_waits_until_all_farms_were_looked_at(operator: Operator) -> None:
    operator.conditions.about_service(WEB, [])
    await asyncio.sleep(60)
    assert operator.written() == []


async def test_a_service_that_changes_all_the_time_is_written_every_five_seconds(operator: Operator) -> None:
    found: list[list[Lasting]] = [[], [Lasting("AddressConflict", "x")], [Lasting("FarmFailed", "x")]]
    for number in range(60):
        operator.look(*found[number % 3])
        await asyncio.sleep(0.5)
        operator.heard()
    assert 2 <= len(operator.written()) <= 7


async def test_the_last_word_is_written(operator: Operator) -> None:
    operator.look()
    await asyncio.sleep(3)
    operator.heard()
    operator.look(Lasting("AddressConflict", "x"))
    await asyncio.sleep(30)
    assert operator.written() == [("True", "AllNodes"), ("False", "AddressConflict")]


async def test_it_is_removed_once_another_proxy_serves_the_service(operator: Operator) -> None:
    operator.look()
    await asyncio.sleep(3)
    operator.heard()
    raw = operator.kube.find(SERVICES, "web", "default")
    assert raw is not None
    operator.put(raw_service(version=int(raw["metadata"]["resourceVersion"]) + 1, labels=PROXY))
    operator.ingest.remove(FARMS, raw_service_farm(version=50))
    operator.conditions.about_service(WEB, [])
    await asyncio.sleep(10)
    assert operator.written() == [("True", "AllNodes"), ("", "")]


async def test_a_write_is_repeated_until_the_api_server_is_back(operator: Operator) -> None:
    operator.kube.away = True
    operator.look()
    await asyncio.sleep(20)
    operator.kube.away = False
    await asyncio.sleep(20)
    assert operator.written() == [("True", "AllNodes")]


async def test_it_is_removed_though_the_last_farm_goes_later_than_the_service_is_looked_at(operator: Operator) -> None:
    operator.look()
    await asyncio.sleep(3)
    operator.heard()
    raw = operator.kube.find(SERVICES, "web", "default")
    assert raw is not None
    operator.put(raw_service(version=int(raw["metadata"]["resourceVersion"]) + 1, labels=PROXY))
    operator.conditions.about_service(WEB, [])
    farm = operator.cache.farms_of(WEB)[0].key
    operator.conditions.forget_farm(farm)
    await asyncio.sleep(10)
    assert operator.written() == [("True", "AllNodes")], "the farm is there as yet"
    operator.ingest.remove(FARMS, raw_service_farm(version=50))
    operator.conditions.forget_farm(farm)
    await asyncio.sleep(10)
    assert operator.written() == [("True", "AllNodes"), ("", "")]


async def test_nothing_is_kept_of_services_that_are_gone(operator: Operator, virtual_time: VirtualTime) -> None:
    operator.look()
    await asyncio.sleep(3)
    reconciler = Reconciler(
        operator.ingest,
        FarmWriter(operator.kube, operator.ingest),
        Events(operator.kube, Source("operator")),
        virtual_time.now,
        conditions=operator.conditions,
    )
    workers = [asyncio.create_task(work()) for work in (reconciler.services.work, reconciler.statuses.work)]
    reconciler.mark(operator.ingest.remove(SERVICES, raw_service(version=900)))
    await asyncio.sleep(1)
    reconciler.mark(operator.ingest.remove(FARMS, raw_service_farm(version=901)))
    await asyncio.sleep(10)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    kept = vars(operator.conditions)
    assert not any(kept[each] for each in ("_problems", "_farms", "_service_of", "_written_at"))


async def test_an_api_server_that_fails_is_asked_no_more_often(operator: Operator) -> None:
    operator.kube.apply_errors.extend([errors.KubeError(500, "InternalError", "failed calling webhook")] * 10_000)
    for number in range(300):
        key = ServiceKey("default", f"s{number}")
        operator.ingest.put(SERVICES, raw_service(key.name, version=10 + number, ip=f"10.96.9.{number % 250}"))
        operator.conditions.about_service(key, [Lasting("FarmRefused", "no")])
    await asyncio.sleep(12)
    assert 0 < 10_000 - len(operator.kube.apply_errors) <= 10 * 20 + 1
