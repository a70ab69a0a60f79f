"""The condition of the readiness gate that the operator sets, and its Events meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kube_nftlb import errors, names
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.kube.resources import EVENTS, FARMS, NODES, PODS, SERVICES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.model.gated_pods import slim
from kube_nftlb.operator.readiness.controller import ReadinessGateController
from kube_nftlb.operator.readiness.informer import GatedPodInformer
from tests.builders import raw_gated_pod, raw_node, raw_route_farm, raw_service, raw_service_farm, service
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

Json = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TELL_AFTER_S = 30
SELECTOR = {"app": "web"}


class Operator:
    """A keeper with a cache and an API server."""

    def __init__(self, time: VirtualTime) -> None:
        self.kube = FakeKube()
        self.ingest = Ingest(Cache())
        self.events = Events(self.kube, Source("operator"))
        self.reconciled: list[ServiceKey] = []
        self.keeper = ReadinessGateController(
            self.kube,
            self.ingest,
            self.events,
            time.now,
            self.reconciled.append,
            TELL_AFTER_S,
            lambda: NOW,
        )
        self.ingest.put(NODES, raw_node("n1"))

    def pod(self, **fields: Any) -> None:
        raw = self.kube.put(PODS, raw_gated_pod(**fields))
        kept = slim(raw)
        assert kept is not None
        self.ingest.put_gated_pod(kept)
        self.keeper.wake()

    def select(self) -> None:
        """Have a Service with a farm select Pods of the app ``web``, which no node has."""
        self.ingest.put(SERVICES, raw_service(selector=SELECTOR))
        self.ingest.put(FARMS, raw_service_farm(**build(service(selector=SELECTOR)).farms[0].spec))
        self.keeper.wake()

    def conditions(self) -> list[Json]:
        return [
            condition
            for write in self.kube.writes
            if write.resource == PODS
            for condition in write.body["status"]["conditions"]
        ]

    def told(self) -> list[tuple[str, str]]:
        return [(write.body["reason"], write.body["message"]) for write in self.kube.writes if write.resource == EVENTS]


@pytest.fixture
async def operator(virtual_time: VirtualTime) -> AsyncIterator[Operator]:
    operator = Operator(virtual_time)
    keeper = operator.keeper
    works = (keeper.look, keeper.check, keeper.withdraw, keeper.write, operator.events.run)
    tasks = [asyncio.create_task(work()) for work in works]
    yield operator
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_condition_is_set_once_and_only_that(operator: Operator) -> None:
    operator.pod()
    await asyncio.sleep(2)
    operator.keeper.wake()
    await asyncio.sleep(1)
    (write,) = operator.kube.writes
    assert write.body["metadata"] == {"namespace": "default", "name": "a", "uid": "uid-a"}
    assert write.body["status"] == {
        "conditions": [
            {
                "type": names.READINESS_GATE,
                "status": "True",
                "reason": "NotServed",
                "message": "no Service with farms selects the pod",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ]
    }


async def test_a_condition_that_meets_a_conflict_is_written_later_though_nothing_else_happens(
    operator: Operator,
) -> None:
    operator.kube.apply_errors.append(errors.ConflictError(409, "Conflict", "the object has been modified"))
    operator.pod()
    await asyncio.sleep(4)
    assert [condition["status"] for condition in operator.conditions()] == ["True"]


async def test_a_pod_gets_no_condition_that_was_decided_for_another_one_of_its_name(operator: Operator) -> None:
    operator.kube.apply_errors.append(errors.KubeError(422, "Invalid", "no"))
    operator.pod()
    await asyncio.sleep(3)
    operator.select()
    await asyncio.sleep(1)
    operator.pod(uid="another", version=9)
    await asyncio.sleep(100)
    assert operator.conditions() == [], "no node has the new one"


async def test_a_pod_that_takes_the_place_of_one_that_waits_waits_from_then_on(operator: Operator) -> None:
    operator.pod()
    await asyncio.sleep(0.9)
    operator.pod(uid="another", version=9)
    await asyncio.sleep(0.6)
    assert operator.conditions() == [], "its Service may be seen after it"
    await asyncio.sleep(1)
    (write,) = operator.kube.writes
    assert write.body["metadata"]["uid"] == "another"


async def test_a_pod_waits_for_the_service_that_is_seen_after_it(operator: Operator) -> None:
    operator.pod()
    await asyncio.sleep(0.5)
    operator.select()
    await asyncio.sleep(5)
    assert operator.conditions() == []
    assert set(operator.reconciled) == {ServiceKey("default", "web")}


async def test_a_farm_is_written_that_lists_the_pod(operator: Operator) -> None:
    operator.select()
    operator.pod()
    await asyncio.sleep(1)
    assert set(operator.reconciled) == {ServiceKey("default", "web")}
    assert operator.conditions() == []


async def test_a_farm_is_written_that_lists_a_pod_no_longer_there(operator: Operator) -> None:
    operator.pod()
    await asyncio.sleep(1)
    operator.ingest.put(SERVICES, raw_service(selector=SELECTOR))
    spec = build(service(selector=SELECTOR), gated_ips={"ipv4": ["10.244.0.9"]}).farms[0].spec
    operator.ingest.put(FARMS, raw_service_farm(**spec))
    operator.keeper.wake()
    await asyncio.sleep(1)
    assert set(operator.reconciled) == {ServiceKey("default", "web")}


async def test_the_farm_of_a_route_is_written_that_lists_the_pod(operator: Operator) -> None:
    operator.ingest.put(SERVICES, raw_service(selector=SELECTOR))
    spec = build(service(selector=SELECTOR), gated_ips={"ipv4": ["10.244.0.1"]}).farms[0].spec
    operator.ingest.put(FARMS, raw_service_farm(**spec))
    operator.ingest.put(FARMS, raw_route_farm(addresses=[{"ip": "192.0.2.1", "ports": "80"}]))
    operator.pod()
    await asyncio.sleep(1)
    assert set(operator.reconciled) == {ServiceKey("default", "web")}
    assert operator.conditions() == []


@pytest.mark.parametrize("namespace", ["default", "edge"])
async def test_the_farm_of_a_route_is_written_that_lists_a_pod_no_longer_there(
    operator: Operator, namespace: str
) -> None:
    operator.ingest.put(SERVICES, raw_service(selector=SELECTOR))
    group = {"namespace": "default", "service": "web", "port": "http", "gatedIPs": ["10.244.0.9"]}
    operator.ingest.put(FARMS, raw_route_farm(namespace=namespace, backendsFrom=[group]))
    operator.keeper.wake()
    await asyncio.sleep(1)
    assert operator.reconciled == [ServiceKey("default", "web")]
    operator.ingest.put(FARMS, raw_route_farm(namespace=namespace, version=11))
    await asyncio.sleep(60)
    assert operator.reconciled == [ServiceKey("default", "web")]


async def test_a_namespace_of_thousands_does_not_delay_another(operator: Operator) -> None:
    for number in range(2000):
        operator.pod(
            name=f"p{number:04}", namespace="crowd", ip=f"10.0.{number // 250}.{number % 250}", version=10 + number
        )
    operator.pod(namespace="quiet", version=5000)
    await asyncio.sleep(10)
    served = [write.body["metadata"]["namespace"] for write in operator.kube.writes]
    assert served.index("quiet") < 4
    assert len(served) == 2001


async def test_a_service_whose_farms_cannot_be_written_is_not_reconciled_with_each_report(operator: Operator) -> None:
    operator.select()
    operator.pod()
    for _ in range(250):
        operator.keeper.wake()
        await asyncio.sleep(0.1)
    assert len(operator.reconciled) == 3


async def test_an_event_tells_once_what_a_pod_waits_for(operator: Operator) -> None:
    operator.select()
    operator.pod()
    await asyncio.sleep(TELL_AFTER_S - 1)
    assert operator.told() == []
    for _ in range(5):
        await asyncio.sleep(TELL_AFTER_S)
        operator.keeper.wake()
    assert operator.told() == [("ReadinessGatePending", "the farm web--http does not have it yet")]


async def test_a_pod_that_does_not_wait_any_more_is_let_alone(operator: Operator) -> None:
    operator.pod()
    operator.kube.away = True
    await asyncio.sleep(5)
    operator.pod(containers="False", version=50)
    operator.kube.away = False
    await asyncio.sleep(5)
    assert operator.conditions() == []


async def test_a_write_is_repeated_until_the_api_server_is_back(operator: Operator) -> None:
    operator.pod()
    operator.kube.away = True
    await asyncio.sleep(5)
    operator.kube.away = False
    await asyncio.sleep(5)
    assert [condition["status"] for condition in operator.conditions()] == ["True"]


async def test_the_informer_keeps_gated_pods_alone() -> None:
    kube, cache = FakeKube(), Cache()
    woken = asyncio.Event()
    informer = GatedPodInformer(kube, Ingest(cache), woken.set)
    kube.put(PODS, raw_gated_pod("a", version=1))
    kube.put(PODS, {**raw_gated_pod("b", version=2), "spec": {}})
    task = asyncio.create_task(informer.run())
    await informer.listed.wait()
    await kube.delivered()
    assert [key.name for key, _ in cache.gates.pods.items()] == ["a"]
    woken.clear()
    kube.put(PODS, raw_gated_pod("c", version=10))
    kube.remove(PODS, "a", "default")
    await kube.delivered()
    assert [key.name for key, _ in cache.gates.pods.items()] == ["c"]
    assert woken.is_set()
    task.cancel()
