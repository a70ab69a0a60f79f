"""The writes of a farm's status, and the order of work while much is looked at."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, NODES, PODS, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.model.pods import slim
from kube_nftlb.operator.sync.diff import Apply, Delete
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.operator.sync.status_pacing import StatusTiming
from tests.builders import (
    endpoint,
    raw_farm,
    raw_nftlb_node,
    raw_node,
    raw_pod,
    raw_service,
    raw_service_farm,
    raw_slice,
    service,
)
from tests.fakes.events import RecordingEvents
from tests.fakes.virtual_time import VirtualTime

Json = dict[str, Any]


TIMING = StatusTiming(patience_s=0.3, late_s=4, quiet_s=1)


class _FarmWriter(FarmWriter):
    """Writes into the cache, as the API server's answer would."""

    def __init__(self, ingest: Ingest) -> None:
        self.ingest, self.written, self.writes = ingest, list[Json](), list[str]()
        self.bodies = list[Json]()
        self.fields = list[set[str]]()
        self.outcome = Outcome.DONE
        self.status_outcomes = list[Outcome]()
        """The outcomes of the next writes of statuses, which write nothing."""
        self.refuses = ""
        self.raw: Callable[..., Json] = raw_farm

    async def apply(self, apply: Apply) -> tuple[Outcome, Affected, str]:
        self.writes.append(f"apply {apply.key.name}")
        self.bodies.append(apply.body)
        if self.refuses and apply.key.name.startswith(self.refuses):
            raise FarmRefusedError("no")
        return self.outcome, Affected(), ""

    async def delete(self, delete: Delete) -> tuple[Outcome, Affected, str]:
        self.writes.append(f"delete {delete.farm.key.name}")
        return Outcome.DONE, Affected(), ""

    async def write_status(
        self, farm: FarmRecord, status: FarmStatus, fields: Collection[str]
    ) -> tuple[Outcome, Affected]:
        if self.status_outcomes:
            return self.status_outcomes.pop(0), Affected()
        self.fields.append(set(fields))
        self.written.append(status.model_dump(mode="json", by_alias=True, exclude_none=True))
        raw = self.raw(version=100 + len(self.written), generation=farm.generation, status=self.written[-1])
        return Outcome.DONE, self.ingest.put(FARMS, raw)


class Operator:
    def __init__(self, clock: Callable[[], float], limits: NamespaceLimits = NamespaceLimits()) -> None:  # noqa: B008
        cache = Cache(clock=clock, limits=limits)
        self.ingest = Ingest(cache)
        self.farm_writer = _FarmWriter(self.ingest)
        self.events = RecordingEvents()
        self.loop = Reconciler(self.ingest, self.farm_writer, self.events, clock, timing=TIMING)

    def take(self, resource: Any, raw: Json) -> None:
        self.loop.mark(self.ingest.put(resource, raw))

    async def settle(self, seconds: int) -> None:
        """Let time pass, as the operator does."""
        for _ in range(seconds):
            await asyncio.sleep(1)
            self.loop.mark(self.ingest.nodes.flush())
        await asyncio.sleep(0.1)

    def programmed(self) -> list[str]:
        return [status["nodes"] for status in self.farm_writer.written]

    def backends(self) -> list[str]:
        return [status["backendsReady"] for status in self.farm_writer.written]


@pytest.fixture
async def operator(virtual_time: VirtualTime) -> AsyncIterator[Operator]:
    operator = Operator(virtual_time.now)
    worker = asyncio.create_task(operator.loop.statuses.work())
    for name in ("n1", "n2"):
        operator.take(NFTLB_NODES, raw_nftlb_node(name, watermark="5"))
    operator.take(FARMS, raw_farm(version=10))
    yield operator
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


async def test_it_is_written_once_when_all_nodes_have_the_farm(operator: Operator) -> None:
    await asyncio.sleep(0.1)
    operator.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="10", version=2))
    await asyncio.sleep(0.1)
    assert operator.programmed() == []
    operator.take(NFTLB_NODES, raw_nftlb_node("n2", watermark="10", version=2))
    await asyncio.sleep(0.1)
    assert operator.programmed() == ["2/2"]


async def test_it_does_not_wait_for_ever_for_a_node_that_is_silent(operator: Operator) -> None:
    operator.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="10", version=2))
    await asyncio.sleep(0.4)
    assert operator.programmed() == ["1/2"]
    operator.take(NFTLB_NODES, raw_nftlb_node("n2", watermark="10", version=2))
    await asyncio.sleep(0.1)
    assert operator.programmed() == ["1/2", "2/2"]


async def test_a_failure_is_told_at_once(operator: Operator) -> None:
    failed = {"namespace": "default", "name": "web--http", "generation": 1, "reason": "Refused", "message": "no"}
    operator.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="10", failed=[failed], version=2))
    await asyncio.sleep(0.1)
    assert operator.programmed() == ["0/2"]


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.CONFLICT, Outcome.OBSOLETE])
async def test_a_status_that_is_not_written_is_tried_again_while_its_farm_is_there(
    operator: Operator, outcome: Outcome
) -> None:
    operator.farm_writer.status_outcomes.append(outcome)
    for name in ("n1", "n2"):
        operator.take(NFTLB_NODES, raw_nftlb_node(name, watermark="10", version=2))
    await asyncio.sleep(62)
    assert operator.programmed() == ["2/2"]


async def test_a_node_that_flaps_has_no_status_written_and_one_that_stays_away_one(operator: Operator) -> None:
    for name in ("n1", "n2"):
        operator.take(NFTLB_NODES, raw_nftlb_node(name, watermark="10", version=2))
    await operator.settle(1)
    assert operator.programmed() == ["2/2"]
    for version in range(3, 63, 2):
        operator.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="10", ready="False", version=version))
        await operator.settle(1)
        operator.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="10", version=version + 1))
        await operator.settle(1)
    assert operator.programmed() == ["2/2"]
    operator.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="10", ready="False", version=70))
    await operator.settle(6)
    assert operator.programmed() == ["2/2", "1/2"]


async def test_each_generation_is_waited_for_anew(operator: Operator) -> None:
    await asyncio.sleep(0.4)
    assert operator.programmed() == ["0/2"]
    operator.take(FARMS, raw_farm(version=200, generation=2, scheduler="weight"))
    await asyncio.sleep(0.1)
    for name in ("n1", "n2"):
        operator.take(NFTLB_NODES, raw_nftlb_node(name, watermark="200", version=3))
    await asyncio.sleep(0.1)
    assert operator.programmed() == ["0/2", "2/2"]


@pytest.fixture
async def referring(operator: Operator) -> AsyncIterator[Operator]:
    """An operator with a farm of a Service, which both nodes have, and whose status is written."""
    operator.ingest.remove(FARMS, raw_farm(version=11))
    operator.farm_writer.raw = partial(raw_service_farm, **build(service()).farms[0].spec)
    operator.ingest.put(SERVICES, raw_service())
    worker = asyncio.create_task(operator.loop.services.work())
    for name in ("n1", "n2"):
        operator.take(NFTLB_NODES, raw_nftlb_node(name, watermark="50", slice_watermark="50", version=20))
    operator.take(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1", "a"), version=40))
    operator.take(FARMS, operator.farm_writer.raw(version=50))
    await asyncio.sleep(0.1)
    assert operator.backends() == ["1/1"]
    yield operator
    worker.cancel()


def ready(*pods: str, version: int) -> Json:
    endpoints = (endpoint(f"10.244.0.{number}", pod, ready=pod in pods) for number, pod in enumerate("abcdef", 1))
    return raw_slice(*endpoints, version=version)


async def test_a_service_hears_of_a_node_that_is_late_and_of_its_return(referring: Operator) -> None:
    def told() -> list[str]:
        return [reason for reason, _ in referring.events.reported["Service web", "web--http"]]

    referring.take(ENDPOINT_SLICES, ready("a", "b", version=60))
    referring.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="50", slice_watermark="60", version=60))
    await asyncio.sleep(29)
    assert told() == []
    await asyncio.sleep(2)
    assert told() == ["NotProgrammed"]
    assert "on n2 for more than 30 s" in referring.events.reported["Service web", "web--http"][0][1]
    referring.take(NFTLB_NODES, raw_nftlb_node("n2", watermark="50", slice_watermark="60", version=60))
    await asyncio.sleep(1)
    assert told() == []
    message = "its changes are programmed on all ready nodes again"
    assert referring.events.news == [
        ("NftlbFarm web--http", "Programmed", message),
        ("Service web", "Programmed", f"farm web--http: {message}"),
    ]


@pytest.mark.parametrize("silent", ["Unknown", "False"])
async def test_services_hear_of_no_node_that_is_switched_off_until_it_is_back(referring: Operator, silent: str) -> None:
    def told() -> list[str]:
        return [reason for reason, _ in referring.events.reported["Service web", "web--http"]]

    referring.take(NODES, raw_node("n2"))
    referring.take(ENDPOINT_SLICES, ready("a", "b", version=60))
    referring.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="50", slice_watermark="60", version=60))
    await asyncio.sleep(20)
    # Its agent no longer reports anything.
    referring.take(NODES, raw_node("n2", ready=silent, version=61))
    await asyncio.sleep(100)
    assert told() == []
    referring.take(NODES, raw_node("n2", ready="True", version=62))
    await asyncio.sleep(29)
    assert (told(), referring.events.news) == ([], []), "it has its time anew"
    await asyncio.sleep(2)
    assert told() == ["NotProgrammed"]
    referring.take(NODES, raw_node("n2", ready=silent, version=63))
    await asyncio.sleep(1)
    assert told() == []
    assert [reason for _, reason, _ in referring.events.news] == ["Programmed", "Programmed"]


async def test_a_service_hears_of_no_node_whose_nftlb_is_away(referring: Operator) -> None:
    referring.take(NFTLB_NODES, raw_nftlb_node("n2", watermark="50", slice_watermark="50", ready="False", version=59))
    referring.take(ENDPOINT_SLICES, ready("a", "b", version=60))
    referring.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="50", slice_watermark="60", version=60))
    await asyncio.sleep(60)
    assert referring.events.reported["Service web", "web--http"] == []


async def test_farms_that_may_become_late_delay_no_status_of_their_namespace(operator: Operator) -> None:
    for number in range(1000):
        operator.take(FARMS, raw_farm(f"web-{number}", version=20 + number))
    await asyncio.sleep(15)
    assert operator.loop.statuses.queue.waiting("default") == 0
    assert len(operator.loop.statuses.queue) == 0


async def test_a_service_hears_that_another_engine_serves_it(referring: Operator) -> None:
    assert referring.events.news == [], "not when it is served for the first time"
    referring.take(SERVICES, raw_service(annotations={"engine": "nftables"}, version=2))
    await asyncio.sleep(0.1)
    message = "the engine nftables serves it instead of nftlb; open connections go on"
    assert referring.events.news == [
        ("NftlbFarm web--http", "EngineChanged", message),
        ("Service web", "EngineChanged", f"farm web--http: {message}"),
    ]


async def test_a_status_tells_each_step_of_a_rollout_and_lists_backends_at_its_end(referring: Operator) -> None:
    for version, pods in enumerate(("ab", "abc", "abcd"), 51):
        referring.take(ENDPOINT_SLICES, ready(*pods, version=version))
        for name in ("n1", "n2"):
            node = raw_nftlb_node(name, watermark="50", slice_watermark=str(version), version=version)
            referring.take(NFTLB_NODES, node)
        await asyncio.sleep(0.5)
    assert referring.backends() == ["1/1", "2/6", "3/6", "4/6"]
    assert [len(status["backends"]) for status in referring.farm_writer.written] == [1, 6, 0, 0]
    await asyncio.sleep(1)
    assert referring.backends() == ["1/1", "2/6", "3/6", "4/6", "4/6"]
    assert [each["name"] for each in referring.farm_writer.written[-1]["backends"]] == list("abcdef")
    assert referring.farm_writer.fields[-1] == {"backends", "omitted_backends"}, "the rest is as it was"
    assert referring.farm_writer.writes == [], "the farm itself does not change"


async def test_a_number_never_stands_beside_the_condition_of_another(referring: Operator) -> None:
    referring.take(ENDPOINT_SLICES, ready("a", "b", version=60))
    referring.take(NFTLB_NODES, raw_nftlb_node("n1", watermark="50", slice_watermark="60", version=60))
    await asyncio.sleep(0.2)
    assert referring.backends() == ["1/1"]
    await asyncio.sleep(0.2)
    assert referring.backends() == ["1/1", "2/6"]
    assert referring.farm_writer.written[-1]["reason"].startswith("EndpointsPending: 1 of 2 nodes have it")
    assert referring.farm_writer.written[-1]["nodes"] == "1/2"
    assert len(referring.ingest.cache.progress.endpoints) == 1
    referring.take(NFTLB_NODES, raw_nftlb_node("n2", watermark="50", slice_watermark="60", version=60))
    await asyncio.sleep(0.1)
    assert [status["reason"] for status in referring.farm_writer.written[2:]] == [""]
    assert referring.farm_writer.fields[-1] == {"nodes", "conditions", "reason"}
    assert len(referring.ingest.cache.progress.endpoints) == 0


async def test_endpoints_that_are_soon_as_before_are_not_written(referring: Operator) -> None:
    before = raw_slice(endpoint("10.244.0.1", "a"), version=62)
    referring.take(ENDPOINT_SLICES, ready("a", "b", version=61))
    await asyncio.sleep(0.1)
    referring.take(ENDPOINT_SLICES, before)
    for name in ("n1", "n2"):
        referring.take(NFTLB_NODES, raw_nftlb_node(name, watermark="50", slice_watermark="62", version=62))
    await asyncio.sleep(10)
    assert set(referring.backends()) == {"1/1"}


async def test_problems_of_endpoints_are_reported_on_the_farm_and_its_service(referring: Operator) -> None:
    referring.take(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1", "a"), endpoint("bogus"), version=60))
    await asyncio.sleep(0.1)
    message = "EndpointSlice web-1: 'bogus' is not a usable ipv4 address"
    assert referring.events.reported["NftlbFarm web--http", ""] == [("InvalidEndpoint", message)]
    assert referring.events.reported["Service web", "web--http"] == [
        ("InvalidEndpoint", f"farm web--http: {message}"),
    ]
    referring.take(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1", "a"), version=61))
    await asyncio.sleep(0.1)
    assert referring.events.reported["NftlbFarm web--http", ""] == []
    assert referring.events.reported["Service web", "web--http"] == []


async def test_annotations_of_pods_that_do_not_fit_are_ignored_and_told_and_older_services_come_first(
    virtual_time: VirtualTime,
) -> None:
    # Two farms, and so 100 overrides.
    operator = Operator(virtual_time.now, NamespaceLimits(farms=2))
    worker = asyncio.create_task(operator.loop.services.work())
    for number in range(60):
        kept = slim(raw_pod(f"p{number:02}", annotations={"weight": "3"}))
        assert kept is not None
        operator.take(PODS, {**kept, "labels": {"app": "all", **({"half": "yes"} if number < 45 else {})}})

    def overrides() -> dict[str, int]:
        newest = {body["metadata"]["name"]: body for body in operator.farm_writer.bodies}
        return {name: len(body["spec"]["backendsFrom"][0]["overrides"]) for name, body in newest.items()}

    def told(name: str) -> list[str]:
        return [reason for reason, _ in operator.events.reported.get((f"Service {name}", ""), [])]

    async def make(name: str, created: str, **selector: str) -> None:
        operator.take(SERVICES, raw_service(name, created=created, selector=selector))
        await asyncio.sleep(1)

    await make("new", "2026-02-02T00:00:00Z", half="yes")
    assert (overrides(), told("new")) == ({"new--http": 45}, [])
    await make("old", "2026-01-01T00:00:00Z", app="all")
    assert overrides() == {"new--http": 0, "old--http": 60}
    assert (told("new"), told("old")) == (["TooManyOverrides"], [])
    operator.loop.mark(operator.ingest.forget(SERVICES, ServiceKey("default", "old"), 9))
    await asyncio.sleep(1)
    assert (overrides()["new--http"], told("new")) == (45, [])
    worker.cancel()


async def test_annotations_of_pods_are_written_into_the_farm(referring: Operator) -> None:
    kept = slim(raw_pod("a", annotations={"weight": "3"}))
    assert kept is not None
    referring.take(PODS, kept)
    await asyncio.sleep(0.1)
    (body,) = referring.farm_writer.bodies
    (reference,) = body["spec"]["backendsFrom"]
    assert (reference["service"], reference["overrides"]) == ("web", [{"pod": "a", "weight": 3}])
    referring.take(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.2", "b"), version=60))
    await asyncio.sleep(0.1)
    assert len(referring.farm_writer.writes) == 1, "as it was before"


async def test_others_have_their_turn_between_services_that_need_no_write(operator: Operator) -> None:
    for number in range(100):
        operator.loop.services.queue.add(ServiceKey("default", f"gone-{number}"))
    worker = asyncio.create_task(operator.loop.services.work())
    turns = 0
    while len(operator.loop.services.queue):
        await asyncio.sleep(0)
        turns += 1
    worker.cancel()
    assert turns >= 100


async def test_a_crowd_of_large_services_does_not_keep_all_workers() -> None:
    class Stored(_FarmWriter):
        async def apply(self, apply: Apply) -> tuple[Outcome, Affected, str]:
            await asyncio.sleep(0.001)
            self.writes.append(f"apply {apply.key.name}")
            metadata = {**apply.body["metadata"], "resourceVersion": str(1000 + len(self.writes))}
            metadata |= {"uid": apply.key.name, "generation": 1}
            return Outcome.DONE, self.ingest.put(FARMS, {**apply.body, "metadata": metadata}), ""

    # Not in virtual time: there are threads.
    cache = Ingest(Cache())
    writer = Stored(cache)
    loop = Reconciler(cache, writer, RecordingEvents(), asyncio.get_running_loop().time, timing=TIMING)
    ports = [{"name": f"p{port}", "port": port} for port in range(1, 601)]
    for number in range(4):
        loop.mark(cache.put(SERVICES, raw_service(f"large-{number}", namespace="crowd", ports=ports)))
    workers = [asyncio.create_task(loop.services.work()) for _ in range(2)]
    while len(writer.writes) < 10:
        await asyncio.sleep(0.001)
    loop.mark(cache.put(SERVICES, raw_service("small", ports=[{"name": "http", "port": 81}])))
    before = len(writer.writes)
    async with asyncio.timeout(100):
        while len(writer.writes) < 2401:
            await asyncio.sleep(0.001)
    for worker in workers:
        worker.cancel()
    assert writer.writes.index("apply small--http") - before <= 5 * 128, "some turns, and not whole Services"
    assert len(set(writer.writes)) == len(writer.writes) == 2401


async def test_what_the_api_server_refuses_counts_and_comes_last() -> None:
    # Not in virtual time: there are threads.
    cache = Ingest(Cache())
    writer = _FarmWriter(cache)
    writer.refuses = "large"
    loop = Reconciler(cache, writer, RecordingEvents(), asyncio.get_running_loop().time, timing=TIMING)
    ports = [{"name": f"p{port}", "port": port} for port in range(1, 201)]
    loop.mark(cache.put(SERVICES, raw_service("large", ports=ports)))
    worker = asyncio.create_task(loop.services.work())
    while not writer.writes:
        await asyncio.sleep(0.001)
    loop.mark(cache.put(SERVICES, raw_service("small", ports=[{"name": "http", "port": 81}])))
    async with asyncio.timeout(60):
        while len(set(writer.writes)) < 201:
            await asyncio.sleep(0.001)
    worker.cancel()
    assert writer.writes.index("apply small--http") in (128, 256), "after a turn of the other"
    assert len(writer.writes) < 128 + 1 + 128 + 1, "a turn for each, and no third one at once"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.DONE, ["apply web--renamed", "delete web--http"]),
        (Outcome.RETRY, ["apply web--renamed"]),
    ],
)
async def test_a_farm_goes_when_the_one_that_takes_its_place_is_there(
    operator: Operator, outcome: Outcome, expected: list[str]
) -> None:
    operator.farm_writer.outcome = outcome
    operator.ingest.put(FARMS, raw_service_farm(version=11))
    operator.take(SERVICES, raw_service(ports=[{"name": "renamed", "port": 80}]))
    worker = asyncio.create_task(operator.loop.services.work())
    await asyncio.sleep(0.05)
    worker.cancel()
    assert operator.farm_writer.writes[: len(expected)] == expected
    assert ("delete web--http" in operator.farm_writer.writes) == (outcome is Outcome.DONE)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ("web--http", ["apply web--http", "delete web--old"]),
        ("", ["apply web--http", "delete web--http--external", "delete web--old"]),
    ],
)
async def test_a_farm_stays_where_the_one_that_takes_its_addresses_is_refused(
    operator: Operator, refused: str, expected: list[str]
) -> None:
    operator.farm_writer.refuses = refused
    operator.ingest.remove(FARMS, raw_farm(version=11))
    outer = raw_service_farm("web--http--external", version=11)
    outer["metadata"]["labels"][names.LABEL_TRAFFIC] = "external"
    for there in (outer, raw_service_farm("web--old", port="old", version=12)):
        operator.ingest.put(FARMS, there)
    operator.take(SERVICES, raw_service(ports=[{"name": "http", "port": 80}]))
    worker = asyncio.create_task(operator.loop.services.work())
    await asyncio.sleep(0.05)
    worker.cancel()
    assert sorted(operator.farm_writer.writes) == expected


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.DONE, ["apply web--http--external", "apply web--http"]),
        (Outcome.RETRY, ["apply web--http--external"]),
    ],
)
async def test_a_farm_keeps_its_addresses_until_the_one_that_gets_them_is_there(
    operator: Operator, outcome: Outcome, expected: list[str]
) -> None:
    operator.farm_writer.outcome = outcome
    operator.ingest.put(FARMS, raw_service_farm(version=11))
    ports = [{"name": "http", "port": 80, "nodePort": 30080}]
    operator.take(SERVICES, raw_service(ports=ports, type="NodePort", externalTrafficPolicy="Local"))
    worker = asyncio.create_task(operator.loop.services.work())
    await asyncio.sleep(0.05)
    worker.cancel()
    assert operator.farm_writer.writes[: len(expected)] == expected
    assert ("apply web--http" in operator.farm_writer.writes) == (outcome is Outcome.DONE)


async def test_farms_come_back_with_their_custom_resource_definition(operator: Operator) -> None:
    operator.farm_writer.outcome = Outcome.OBSOLETE
    operator.take(SERVICES, raw_service("other"))
    worker = asyncio.create_task(operator.loop.services.work())
    await asyncio.sleep(200)
    assert len(operator.farm_writer.writes) > 1
    operator.farm_writer.outcome = Outcome.DONE
    await asyncio.sleep(100)
    tried = len(operator.farm_writer.writes)
    await asyncio.sleep(100)
    worker.cancel()
    assert len(operator.farm_writer.writes) == tried


async def test_a_farm_says_which_external_ips_its_service_does_not_get(operator: Operator) -> None:
    operator.farm_writer.raw = raw_service_farm
    operator.ingest.put(FARMS, raw_service_farm(version=11))
    operator.take(NFTLB_NODES, raw_nftlb_node(watermark="500"))
    node = {"metadata": {"name": "n1", "resourceVersion": "3"}, "status": {"addresses": [{"address": "203.0.113.9"}]}}
    operator.take(SERVICES, raw_service(externalIPs=["203.0.113.9"]))
    worker = [
        asyncio.create_task(operator.loop.services.work()),
        asyncio.create_task(operator.loop.statuses.work()),
    ]

    def accepted() -> tuple[str, str]:
        (found,) = (each for each in operator.farm_writer.written[-1]["conditions"] if each["type"] == "Accepted")
        return found["reason"], found["message"]

    await asyncio.sleep(5)
    assert accepted()[0] == "Valid"
    operator.take(NODES, node)
    await asyncio.sleep(5)
    refused = "spec.externalIPs: '203.0.113.9' is not served: it is an address of the node n1"
    assert accepted() == ("ExternalIPRefused", refused)
    assert ("ExternalIPRefused", refused) in operator.events.reported["Service web", ""]
    operator.loop.mark(operator.ingest.remove(NODES, {"metadata": {"name": "n1", "resourceVersion": "9"}}))
    await asyncio.sleep(5)
    assert accepted()[0] == "Valid"
    for task in worker:
        task.cancel()


async def test_a_service_that_cannot_be_read_keeps_its_farms_until_it_is_gone(operator: Operator) -> None:
    operator.ingest.remove(FARMS, raw_farm(version=11))
    operator.farm_writer.raw = raw_service_farm
    operator.take(FARMS, raw_service_farm(version=50))
    malformed = {**raw_service(version=60), "spec": {"ports": [{"port": "http"}]}}
    with pytest.raises(ValueError, match="validation error"):
        operator.take(SERVICES, malformed)
    operator.loop.services.queue.add(ServiceKey("default", "web"))
    worker = asyncio.create_task(operator.loop.services.work())
    await asyncio.sleep(1)
    assert operator.farm_writer.writes == []
    operator.loop.mark(operator.ingest.remove(SERVICES, raw_service(version=70)))
    await asyncio.sleep(1)
    worker.cancel()
    assert operator.farm_writer.writes == ["delete web--http"]
