"""When the addresses of Services are written, and what waits for whom."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import Gauge

from kube_nftlb import errors, metrics, names
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.kube.resources import ADDRESS_POOLS, EVENTS, NAMESPACES, NODES, SERVICES
from kube_nftlb.operator import gauges
from kube_nftlb.operator.addresses.allocate import Outcome, allocate
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.requests import Request
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.informers.address_informer import AddressInformer
from kube_nftlb.operator.sync import address_assigner
from kube_nftlb.operator.sync.address_assigner import AddressAssigner
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.pool_statuses import PoolStatuses
from kube_nftlb.operator.sync.reconciler import Reconciler
from tests.builders.metadata import raw_metadata
from tests.builders.nodes import raw_node
from tests.builders.pools import raw_balanced, raw_judged, raw_pool
from tests.builders.services import raw_service
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

Json = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Operator:
    def __init__(self, time: VirtualTime, kube: FakeKube | None = None) -> None:
        self.kube = kube or FakeKube()
        self.held: list[ServiceKey] = []
        self.decided: list[ServiceKey] = []
        self.leads = True
        self.book = Book()
        self.cache = Cache(addresses=self.book)
        self.ingest = Ingest(self.cache)
        assert self.ingest.pools is not None
        events = Events(self.kube, Source("operator"))
        self.assigner = AddressAssigner(
            self.kube,
            self.ingest,
            self.book,
            events,
            time.now,
            self.changed,
            self.decided.append,
            now=lambda: NOW,
            leads=lambda: self.leads,
        )
        self.statuses = PoolStatuses(self.kube, self.book, lambda: NOW)
        self.informer = AddressInformer(self.kube, self.ingest.pools, self.book, self.changed, lambda _: None)
        self.reconciler = Reconciler(self.ingest, FarmWriter(self.kube, self.ingest), events, time.now)
        self.affected: set[ServiceKey] = set()
        for name in ("default", "other"):
            self.kube.put(NAMESPACES, {"metadata": raw_metadata(name, namespace=None)})
        self.works = [
            self.informer.run_pools,
            self.informer.run_namespaces,
            events.run,
            self.statuses.write,
            self.assigner.retry,
            *[self.assigner.work] * 2,
        ]

    def changed(self, affected: Affected) -> None:
        self.affected |= affected.services
        self.held += self.assigner.mark(affected.services)

    async def follow(self, delay_s: float) -> None:
        """Watch Services, and see each change so much later."""
        async for event in self.kube.watch(SERVICES, "0"):
            await asyncio.sleep(delay_s)
            self.changed(self.ingest.put(SERVICES, event.object))

    def put(self, raw: Json) -> None:
        """Put in a Service, at a new version."""
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.kube.version + 1)}}
        self.changed(self.ingest.put(SERVICES, self.kube.put(SERVICES, raw)))

    def remove(self, name: str, namespace: str = "default") -> None:
        self.kube.remove(SERVICES, name, namespace)
        raw = {"metadata": {"namespace": namespace, "name": name, "resourceVersion": str(self.kube.version)}}
        self.changed(self.ingest.remove(SERVICES, raw))

    def has(self, name: str, namespace: str = "default") -> list[str]:
        raw = self.kube.find(SERVICES, name, namespace) or {}
        return [each["ip"] for each in raw["status"]["loadBalancer"]["ingress"]]

    def condition(self, name: str) -> Json:
        raw = self.kube.find(SERVICES, name, "default") or {}
        (found,) = raw["status"]["conditions"]
        return dict(found)

    def written(self) -> list[str]:
        return [write.name for write in self.kube.writes if write.resource is SERVICES]


@contextlib.asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work()) for work in operator.works]
    await operator.informer.until_listed()
    yield
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def operator(virtual_time: VirtualTime) -> AsyncIterator[Operator]:
    operator = Operator(virtual_time)
    operator.kube.put(ADDRESS_POOLS, raw_pool())
    async with running(operator):
        yield operator


async def test_two_that_write_at_once_end_with_distinct_addresses(virtual_time: VirtualTime) -> None:
    """As they never should: one leads."""
    kube = FakeKube()
    kube.put(ADDRESS_POOLS, raw_pool("pool", "198.18.0.0/16"))
    operators = [Operator(virtual_time, kube) for _ in range(2)]
    kube.delay_s = 0.05
    async with running(operators[0]), running(operators[1]):
        # Each sees the changes of the other late, and those of the users at another time.
        follow = [asyncio.create_task(each.follow(delay)) for each, delay in zip(operators, (0.01, 0.04), strict=True)]
        for number in range(100):
            kube.put(SERVICES, _unversioned(raw_balanced(f"s{number}", created=f"2026-01-01T00:{number % 60:02}:00Z")))
            await asyncio.sleep(0.02)
        await asyncio.sleep(60)
        for task in follow:
            task.cancel()
    found = [ip for number in range(100) for ip in operators[0].has(f"s{number}")]
    assert (len(found), len(set(found))) == (100, 100)


def _unversioned(raw: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": None}}


async def test_addresses_and_condition_are_written_together_and_once(operator: Operator) -> None:
    operator.put(raw_balanced())
    await asyncio.sleep(5)
    (write,) = [write for write in operator.kube.writes if write.resource is SERVICES]
    assert write.body["status"] == {
        "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]},
        "conditions": [
            {
                "type": names.ADDRESS_CONDITION,
                "status": "True",
                "reason": "Assigned",
                "message": "192.0.2.1 of the address pool pool",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
    }
    assert ServiceKey("default", "web") in operator.affected, "its farms are made anew at once"


@pytest.mark.parametrize("away", [False, True])
async def test_the_farms_of_a_new_service_are_made_once_with_its_address(operator: Operator, away: bool) -> None:
    operator.kube.away = away
    operator.put(raw_balanced("web"))
    operator.put(raw_balanced("other", "192.0.2.3"))
    operator.put(raw_balanced("type", type="ClusterIP"))
    web = ServiceKey("default", "web")
    assert (operator.held, operator.decided) == ([web], [])
    await asyncio.sleep(0.9)
    assert operator.decided == [web], "not later, though the API server is away"
    operator.kube.away = False
    await asyncio.sleep(5)
    operator.put(operator.kube.find(SERVICES, "web", "default") or {})
    assert (operator.held, operator.decided) == ([web], [web])


async def test_nobody_gets_the_address_of_a_service_that_cannot_be_read(operator: Operator) -> None:
    malformed = raw_balanced("malformed", "192.0.2.1", assigned=True)
    malformed["spec"] = {**malformed["spec"], "ports": [{"port": "http"}]}
    with pytest.raises(ValueError, match="validation error"):
        operator.put(malformed)
    operator.put(raw_balanced())
    await asyncio.sleep(1)
    assert operator.has("web") == ["192.0.2.2"]
    operator.remove("malformed")
    operator.put(raw_balanced("other"))
    await asyncio.sleep(1)
    assert operator.has("other") == ["192.0.2.1"]


async def test_a_write_that_fails_is_repeated_with_the_same_address(operator: Operator) -> None:
    operator.kube.away = True
    operator.put(raw_balanced("first"))
    await asyncio.sleep(0.5)
    operator.put(raw_balanced("second"))
    await asyncio.sleep(3)
    operator.kube.away = False
    await asyncio.sleep(3)
    assert (operator.has("first"), operator.has("second")) == (["192.0.2.1"], ["192.0.2.2"])


async def test_a_replica_that_may_not_lead_any_more_writes_no_address_before_it_knows(operator: Operator) -> None:
    operator.leads = False
    operator.put(raw_balanced("web"))
    await asyncio.sleep(60)
    assert operator.written() == []
    operator.leads = True
    await asyncio.sleep(1)
    assert operator.has("web") == ["192.0.2.1"]


async def test_a_service_that_waits_is_looked_at_when_an_address_is_freed(operator: Operator) -> None:
    for name in "abcde":
        operator.put(raw_balanced(name))
    await asyncio.sleep(1)
    assert [operator.has(name) for name in "de"] == [[], []]
    assert operator.condition("d")["reason"] == "PoolExhausted"
    assert [each.body["reason"] for each in operator.kube.writes if each.resource is EVENTS] == ["PoolExhausted"] * 2
    gauges.refresh(operator.ingest, operator.reconciler, operator.assigner.waiting, leads=True)
    assert value(metrics.SERVICES_WITHOUT_ADDRESS.labels("PoolExhausted")) == 2
    assert value(metrics.ADDRESSES.labels("pool", "ipv4", "free")) == 0
    written = len(operator.written())
    operator.remove("b")
    await asyncio.sleep(1)
    assert [operator.has(name) for name in "de"] == [["192.0.2.2"], []]
    assert len(operator.written()) == written + 1, "who waits still is not written again"


def value(gauge: Gauge) -> float:
    (family,) = gauge.collect()
    return family.samples[0].value


async def test_a_defect_with_one_service_stops_no_other(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_web(request: Request, book: Book) -> Outcome:
        if request.key.name == "web":
            raise RuntimeError("a defect")
        return allocate(request, book)

    monkeypatch.setattr(address_assigner, "allocate", fail_for_web)
    for name in ("web", "other"):
        operator.put(raw_balanced(name))
    await asyncio.sleep(5)
    assert (operator.has("web"), operator.has("other")) == ([], ["192.0.2.1"])
    assert operator.decided == [ServiceKey("default", name) for name in ("web", "other")], "both have farms"


async def test_the_pool_says_how_many_are_used(operator: Operator) -> None:
    operator.put(raw_balanced())
    await asyncio.sleep(3)
    status = (operator.kube.find(ADDRESS_POOLS, "pool") or {})["status"]
    assert (status["services"], status["ipv4"]) == (1, {"size": 3, "used": 1, "free": 2})
    conditions = [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
    assert conditions == [("Accepted", "True", "Valid"), ("AddressesFree", "True", "AddressesFree")]


@pytest.mark.parametrize("generation", [1, 2])
async def test_a_pool_whose_status_somebody_changed_gets_its_own_back(operator: Operator, generation: int) -> None:
    """Or that has another generation, and no difference."""
    await asyncio.sleep(3)
    known = operator.kube.find(ADDRESS_POOLS, "pool") or {}
    changed = raw_judged({**known, "metadata": {**known["metadata"], "generation": generation}}, status="False")
    del changed["metadata"]["resourceVersion"]
    operator.kube.put(ADDRESS_POOLS, changed)
    await asyncio.sleep(3)
    status = (operator.kube.find(ADDRESS_POOLS, "pool") or {})["status"]
    accepted = {each["type"]: each for each in status["conditions"]}["Accepted"]
    assert (accepted["status"], accepted["observedGeneration"]) == ("True", generation)


async def test_a_pool_is_refused_when_a_node_gets_an_address_of_it(operator: Operator) -> None:
    operator.put(raw_balanced("before"))
    await asyncio.sleep(1)
    operator.changed(operator.ingest.put(NODES, raw_node(addresses={"InternalIP": "192.0.2.3"})))
    await asyncio.sleep(3)
    status = (operator.kube.find(ADDRESS_POOLS, "pool") or {})["status"]
    (accepted,) = status["conditions"]
    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
    assert "192.0.2.3, an address of the node n1" in accepted["message"]
    operator.put(raw_balanced("after"))
    await asyncio.sleep(1)
    assert (operator.has("before"), operator.has("after")) == (["192.0.2.1"], [])


async def test_a_write_is_for_the_service_that_was_decided_on(operator: Operator) -> None:
    raw = raw_balanced()
    operator.kube.delay_s = 0.1
    operator.put(raw)
    await asyncio.sleep(0.05)
    other_class = {**raw, "spec": {**raw["spec"], "loadBalancerClass": "example.com/other"}}
    changed = operator.kube.put(SERVICES, _unversioned(other_class))
    await asyncio.sleep(0.5)
    assert operator.has("web") == [], "it is another load balancer's by now, which the operator learns late"
    operator.changed(operator.ingest.put(SERVICES, changed))
    await asyncio.sleep(5)
    assert (operator.has("web"), len(operator.written())) == ([], 1)


async def test_what_changes_during_a_write_is_decided_on_anew(operator: Operator) -> None:
    operator.kube.delay_s = 0.1
    operator.put(raw_balanced())
    await asyncio.sleep(0.05)
    changed = operator.kube.put(SERVICES, _unversioned(raw_balanced(loadBalancerIP="192.0.2.3")))
    await asyncio.sleep(0.02)
    operator.changed(operator.ingest.put(SERVICES, changed))
    await asyncio.sleep(2)
    assert operator.has("web") == ["192.0.2.3"]


async def test_the_condition_of_an_address_says_what_became_of_its_pool(operator: Operator) -> None:
    operator.put(raw_balanced())
    await asyncio.sleep(1)
    operator.kube.remove(ADDRESS_POOLS, "pool")
    await asyncio.sleep(1)
    assert operator.condition("web")["message"] == "192.0.2.1, which is in no accepted address pool"
    operator.kube.put(ADDRESS_POOLS, _unversioned(raw_pool("new")))
    await asyncio.sleep(1)
    assert operator.condition("web")["message"] == "192.0.2.1 of the address pool new"


async def test_an_address_of_another_is_no_external_ip_whatever_becomes_of_its_pool(operator: Operator) -> None:
    thief = ServiceKey("other", "thief")
    operator.put(raw_balanced())
    operator.put(raw_service("thief", namespace="other", externalIPs=["192.0.2.1", "192.0.2.2"]))
    await asyncio.sleep(1)
    operator.kube.remove(ADDRESS_POOLS, "pool")
    await asyncio.sleep(1)
    assert operator.cache.reserved.why("192.0.2.1", thief) == "another Service of type LoadBalancer has it"
    assert operator.cache.reserved.why("192.0.2.1", ServiceKey("default", "web")) is None
    assert operator.cache.reserved.why("192.0.2.2", thief) is None
    operator.affected.clear()
    operator.remove("web")
    assert thief in operator.affected
    assert operator.cache.reserved.why("192.0.2.1", thief) is None
    operator.affected.clear()
    operator.put(raw_balanced("late", "192.0.2.1", loadBalancerClass="example.com/other"))
    assert thief in operator.affected
    assert operator.cache.reserved.why("192.0.2.1", thief) is not None


async def test_namespaces_take_turns_however_many_wait(operator: Operator) -> None:
    operator.kube.delay_s = 0.1
    for number in range(500):
        operator.put(raw_balanced(f"greedy-{number}"))
    operator.kube.put(ADDRESS_POOLS, _unversioned(raw_pool("pool", "198.18.0.0/16")))
    await asyncio.sleep(0.5)
    operator.put(raw_balanced("modest", namespace="other"))
    await asyncio.sleep(1)
    assert operator.has("modest", "other")
    assert len(operator.written()) < 100


async def test_what_is_no_longer_ours_loses_our_part_of_the_status(operator: Operator) -> None:
    operator.put(raw_balanced())
    await asyncio.sleep(1)
    raw = operator.kube.find(SERVICES, "web", "default") or {}
    operator.put({**raw, "spec": {**raw["spec"], "loadBalancerClass": "example.com/other"}})
    await asyncio.sleep(1)
    assert operator.kube.writes[-1].body["status"] == {"conditions": []}
    operator.put(raw_balanced("next"))
    await asyncio.sleep(1)
    assert operator.has("next") == ["192.0.2.2"], "what another program may have taken over is not free"


async def test_a_service_of_another_load_balancer_is_not_written(operator: Operator) -> None:
    operator.put(raw_balanced("class", loadBalancerClass="example.com/other"))
    operator.put(raw_balanced("type", type="ClusterIP"))
    await asyncio.sleep(5)
    assert operator.written() == []


async def test_a_write_that_the_api_server_refuses_is_not_repeated_all_the_time(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def refuse(_: Any, body: Json, **__: Any) -> Json:
        tried.append(body["metadata"]["name"])
        raise errors.KubeError(403, "Forbidden", "forbidden")

    monkeypatch.setattr(operator.kube, "apply", refuse)
    operator.put(raw_balanced())
    await asyncio.sleep(30)
    assert tried.count("web") == 1


async def test_an_api_server_that_fails_is_not_flooded_with_the_addresses_of_all_services(operator: Operator) -> None:
    operator.kube.put(ADDRESS_POOLS, _unversioned(raw_pool("many", "198.18.0.0/16")))
    await asyncio.sleep(1)
    operator.kube.apply_errors.extend([errors.KubeError(500, "InternalError", "failed calling webhook")] * 100_000)
    for number in range(300):
        operator.put(raw_balanced(f"s{number}"))
    await asyncio.sleep(60)
    before = len(operator.kube.apply_errors)
    await asyncio.sleep(60)
    assert 300 * 3 < before - len(operator.kube.apply_errors) < 300 * 9
    operator.kube.apply_errors.clear()
    await asyncio.sleep(16)
    assert all(operator.has(f"s{number}") for number in range(300))
