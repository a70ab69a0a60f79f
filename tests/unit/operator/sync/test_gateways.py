"""What becomes of the objects of Gateway API at the API server: farms, addresses and statuses."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_nftlb import errors, names
from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.api.gateway.selectors import AdmittedNamespaces
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    EVENTS,
    FARMS,
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    NFTLB_NODES,
    PODS,
    REFERENCE_GRANTS,
    SERVICES,
    TCP_ROUTES,
    UDP_ROUTES,
    Resource,
)
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.addresses import gateways as addresses_of_gateways
from kube_nftlb.operator.addresses.gateways import allocate
from kube_nftlb.operator.addresses.requests import GatewayKey
from kube_nftlb.operator.cache.gateway_store import Ref
from kube_nftlb.operator.informers.gateway_informer import DISCOVER_EVERY_S
from kube_nftlb.operator.model import gated_pods
from kube_nftlb.operator.model.pods import slim
from tests.builders import raw_gated_pod, raw_nftlb_node, raw_pod, raw_route_farm, raw_service
from tests.builders.pools import raw_balanced
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime
from tests.unit.operator.gateway.objects import plan
from tests.unit.operator.sync.gateway_operator import (
    GatewayKube,
    Operator,
    addresses,
    api_server,
    change,
    conditions,
    farms,
    meta,
    pool,
    raw_gateway,
    raw_route,
    running,
    served,
)

Json = dict[str, Any]


@pytest.fixture
def kube() -> GatewayKube:
    return api_server()


@pytest.fixture
async def time() -> VirtualTime:
    return VirtualTime(asyncio.get_running_loop())


async def test_a_route_becomes_a_farm_at_the_address_of_its_gateway(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        (name,) = farms(kube)
        assert name == "web--edge--tcp"
        assert farms(kube)[name]["addresses"] == [{"type": "LoadBalancer", "ip": "192.0.2.0", "ports": "80"}]
        assert farms(kube)[name]["backendsFrom"][0]["service"] == "web"
        await asyncio.sleep(2)
        assert addresses(kube) == ["192.0.2.0"]
        assert conditions(kube, GATEWAY_CLASSES, "nftlb")["Accepted"] == ("True", "Accepted")
        assert conditions(kube, GATEWAYS, "edge")["Accepted"] == ("True", "Accepted")
        assert conditions(kube, TCP_ROUTES, "web")["ResolvedRefs"] == ("True", "ResolvedRefs")
        kube.remove(TCP_ROUTES, "web", "default")
        await asyncio.sleep(0.1)
        assert not farms(kube)


async def test_a_route_that_loses_its_grant_refuses_its_clients_at_once(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    grant = {
        "metadata": meta("routes", namespace="backends"),
        "spec": {
            "from": [{"group": names.GATEWAY_API, "kind": "TCPRoute", "namespace": "default"}],
            "to": [{"group": "", "kind": "Service"}],
        },
    }
    async with running(operator):
        operator.put(kube, SERVICES, raw_service("web", namespace="backends", ports=[{"name": "http", "port": 80}]))
        kube.put(GATEWAYS, raw_gateway())
        kube.put(TCP_ROUTES, raw_route(namespace="backends"))
        kube.put(REFERENCE_GRANTS, grant)
        await asyncio.sleep(0.1)
        (reference,) = farms(kube)["web--edge--tcp"]["backendsFrom"]
        assert (reference["namespace"], reference["service"]) == ("backends", "web")
        kube.remove(REFERENCE_GRANTS, "routes", "backends")
        await asyncio.sleep(0.1)
        (reference,) = farms(kube)["web--edge--tcp"]["backendsFrom"]
        assert (reference["service"], reference["refuse"]) == ("", True)
        await asyncio.sleep(1)
        assert conditions(kube, TCP_ROUTES, "web")["ResolvedRefs"] == ("False", "RefNotPermitted")
        told = [write.body for write in kube.writes if write.resource is EVENTS]
        assert [each["reason"] for each in told if each["involvedObject"]["kind"] == "TCPRoute"][
            -1
        ] == "RefsNotResolved"


async def test_a_gateway_keeps_its_address_over_a_restart_and_changes_of_pools(
    kube: GatewayKube, time: VirtualTime
) -> None:
    first = Operator(time, kube)
    async with running(first):
        kube.put(GATEWAYS, raw_gateway("early"))
        await asyncio.sleep(0.2)
        kube.put(GATEWAYS, raw_gateway())
        await asyncio.sleep(1)
        assert (addresses(kube, "early"), addresses(kube)) == (["192.0.2.0"], ["192.0.2.1"])
        kube.remove(GATEWAYS, "early", "default")
        await asyncio.sleep(1)
    second = Operator(time, kube)
    async with running(second):
        assert addresses(kube) == ["192.0.2.1"]
        kube.put(ADDRESS_POOLS, pool("198.51.100.0/30"))
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.1"]
        kube.put(GATEWAYS, raw_gateway("late"))
        await asyncio.sleep(1)
        assert addresses(kube, "late") == ["198.51.100.0"]


async def test_a_gateway_gets_the_addresses_that_it_names_unless_another_has_them(
    kube: GatewayKube, time: VirtualTime
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        operator.put(kube, SERVICES, raw_balanced("service", annotations={"addresses": "192.0.2.3"}))
        await asyncio.sleep(0.5)
        wanted = [{"value": "192.0.2.2"}, {"value": "192.0.2.3"}]
        kube.put(GATEWAYS, raw_gateway(addresses=wanted))
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.2"]
        assert conditions(kube, GATEWAYS, "edge")["Programmed"] == ("False", "AddressNotUsable")
        (told,) = [write.body for write in kube.writes if write.resource is EVENTS]
        assert told["message"] == "spec.addresses: another Service has 192.0.2.3"
        kube.remove(SERVICES, "service", "default")
        raw = {"metadata": {"namespace": "default", "name": "service", "resourceVersion": str(kube.version)}}
        operator.changed(operator.ingest.remove(SERVICES, raw))
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.2", "192.0.2.3"]


async def test_both_families_are_one_annotation(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        operator.put(kube, SERVICES, raw_service("web", ports=[{"name": "dns", "port": 53, "protocol": "UDP"}]))
        kube.put(GATEWAYS, raw_gateway(annotations={names.ANNOTATION_GATEWAY_FAMILIES: "ipv4,ipv6"}))
        kube.put(UDP_ROUTES, raw_route(port=53))
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.0", "2001:db8::"]
        specs = [raw["spec"] for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]
        assert {each["family"] for each in specs} == {"ipv4", "ipv6"}


async def test_conditions_and_parents_of_others_stay(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    foreign = {"type": "example.com/Seen", "status": "True", "reason": "Seen", "message": ""}
    others = {"controllerName": "example.com/other", "parentRef": {"name": "theirs"}, "conditions": []}
    async with running(operator):
        kube.put(GATEWAYS, {**raw_gateway(), "status": {"conditions": [foreign]}})
        kube.put(TCP_ROUTES, {**raw_route(), "status": {"parents": [others]}})
        await asyncio.sleep(1)
        gateway, route = kube.find(GATEWAYS, "edge", "default"), kube.find(TCP_ROUTES, "web", "default")
        assert gateway is not None
        assert route is not None
        assert foreign in gateway["status"]["conditions"]
        assert len(gateway["status"]["conditions"]) == 3
        assert [each["controllerName"] for each in route["status"]["parents"]] == [
            "example.com/other",
            "kube-nftlb.io/gateway",
        ]
        written = len(kube.writes)
        await asyncio.sleep(30)
        assert len(kube.writes) == written, "a status is written only if it changes"


async def test_definitions_that_are_installed_later_are_noticed(kube: GatewayKube, time: VirtualTime) -> None:
    kinds, kube.kinds, kube.defined = kube.kinds, set(), set()
    operator = Operator(time, kube)
    async with running(operator):
        kube.put(GATEWAYS, raw_gateway())
        await asyncio.sleep(DISCOVER_EVERY_S)
        assert addresses(kube) == []
        kube.kinds = kube.defined = kinds
        await asyncio.sleep(60)
        assert addresses(kube) == ["192.0.2.0"]


async def test_a_farm_that_no_route_wants_is_deleted(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    operator.put(kube, FARMS, raw_route_farm("forged"))
    async with running(operator):
        assert not farms(kube)


@pytest.mark.parametrize("routed", [True, False])
async def test_an_orphaned_farm_is_deleted_unless_a_route_wants_it(
    kube: GatewayKube, time: VirtualTime, *, routed: bool
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        ((key, made),) = [(key, raw) for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]
        if not routed:
            kube.remove(TCP_ROUTES, "web", "default")
            await asyncio.sleep(0.5)
            assert not farms(kube)
        orphaned = {**made, "metadata": {**made["metadata"], "ownerReferences": []}}
        operator.put(kube, FARMS, orphaned)
        await asyncio.sleep(0.5)
        left = kube.find(FARMS, key[2], "default")
        assert [each["kind"] for each in left["metadata"]["ownerReferences"]] == ["TCPRoute"] if left else not routed


@pytest.mark.parametrize("terminating", [False, True])
async def test_finalizers_do_not_keep_the_farm_of_a_route(
    kube: GatewayKube, time: VirtualTime, *, terminating: bool
) -> None:
    operator = Operator(time, kube)
    farm = raw_route_farm("kept")
    farm["metadata"]["finalizers"] = ["example.com/kept"]
    if terminating:
        farm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    operator.put(kube, FARMS, farm)
    async with running(operator):
        written = [each for each in kube.writes if each.resource is FARMS]
        assert [each.verb for each in written] == (["patch"] if terminating else ["patch", "delete"])
        assert written[0].body["metadata"]["finalizers"] is None


async def test_a_farm_that_becomes_one_of_a_route_loses_its_finalizers(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        ((key, made),) = [(key, raw) for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]
        theirs = {"finalizers": ["example.com/kept"], "labels": {}, "ownerReferences": []}
        operator.put(kube, FARMS, {**made, "metadata": {**made["metadata"], **theirs}})
        await asyncio.sleep(0.5)
        taken = kube.find(FARMS, key[2], "default")
        assert taken is not None
        assert "finalizers" not in taken["metadata"]
        assert taken["metadata"]["ownerReferences"]


async def test_edits_of_a_farm_are_undone(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        ((key, made),) = [(key, raw) for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]
        edited = {**made, "spec": {**made["spec"], "backendsFrom": [{"namespace": "kube-system", "service": "dns"}]}}
        operator.put(kube, FARMS, edited)
        await asyncio.sleep(0.5)
        assert farms(kube)["web--edge--tcp"]["backendsFrom"][0]["service"] == "web"
        unlabelled = {**made, "metadata": {**made["metadata"], "labels": {}}}
        operator.put(kube, FARMS, unlabelled)
        await asyncio.sleep(2)
        restored = kube.find(FARMS, key[2], "default")
        assert restored is not None
        assert restored["metadata"]["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY_OPERATOR
        kube.remove(FARMS, key[2], "default")
        raw = {"metadata": {"namespace": "default", "name": key[2], "resourceVersion": str(kube.version)}}
        operator.changed(operator.ingest.remove(FARMS, raw))
        await asyncio.sleep(0.5)
        assert "web--edge--tcp" in farms(kube)


async def test_a_backend_that_drains_by_its_annotation_drains_for_routes_too(
    kube: GatewayKube, time: VirtualTime
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        pod = raw_pod("web-1", annotations={"state": "drain"})
        pod["metadata"]["labels"] = {"app": "web"}
        seen = slim(pod)
        assert seen is not None
        operator.put(kube, PODS, seen)
        await asyncio.sleep(0.5)
        (reference,) = farms(kube)["web--edge--tcp"]["backendsFrom"]
        assert [(each["pod"], each["state"]) for each in reference["overrides"]] == [("web-1", "drain")]
        await asyncio.sleep(2)
        (state,), (wanted,) = operator.store.farms.values(), plan(operator.store.objects).farms.values()
        assert wanted is not None
        assert state.digest == wanted.digest, "nodes that have the farm have what was decided"


def wait(operator: Operator, **fields: Any) -> None:
    """Have a Pod wait for its readiness gate, and the farms know that are to list it."""
    kept = gated_pods.slim(raw_gated_pod(**fields))
    assert kept is not None
    operator.ingest.put_gated_pod(kept)
    operator.gateways.services_changed([ServiceKey("default", "web")])


def listed(kube: FakeKube) -> list[str]:
    (reference,) = farms(kube)["web--edge--tcp"]["backendsFrom"]
    ips: list[str] = reference.get("gatedIPs", [])
    return ips


async def test_the_farms_of_routes_list_pods_that_wait_for_their_gate(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        assert listed(kube) == []
        wait(operator)
        await asyncio.sleep(0.5)
        assert listed(kube) == ["10.244.0.1"]
        await asyncio.sleep(2)
        (state,), (wanted,) = operator.store.farms.values(), plan(operator.store.objects).farms.values()
        assert wanted is not None
        assert state.digest == wanted.digest, "nodes that have the farm have what was decided"
        wait(operator, containers="False", version=6)
        await asyncio.sleep(0.5)
        assert listed(kube) == []
        kube.remove(TCP_ROUTES, "web", "default")
        await asyncio.sleep(0.1)
        assert not farms(kube)


async def test_a_new_leader_keeps_pods_listed_whose_gate_is_open(kube: GatewayKube, time: VirtualTime) -> None:
    first = Operator(time, kube)
    async with running(first):
        await served(first, kube)
        wait(first)
        await asyncio.sleep(0.5)
    second = Operator(time, kube)
    for raw in [raw for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]:
        second.ingest.put(FARMS, raw)
    wait(second, gate=True, version=6)
    second.put(kube, SERVICES, raw_service("web", ports=[{"name": "http", "port": 80}], selector={"app": "web"}))
    written = len(kube.writes)
    async with running(second):
        assert listed(kube) == ["10.244.0.1"], "no node knows from the EndpointSlices that it is ready"
        assert FARMS not in [write.resource for write in kube.writes[written:]]


async def test_routes_of_a_namespace_get_no_more_farms_than_it_may_have(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube, NamespaceLimits(farms=2))
    async with running(operator):
        listeners = [{"name": f"tcp-{number}", "port": number, "protocol": "TCP"} for number in range(1, 5)]
        kube.put(GATEWAYS, raw_gateway(listeners=listeners))
        kube.put(TCP_ROUTES, raw_route())
        await asyncio.sleep(3)
        assert len(farms(kube)) == 2
        gateway = kube.find(GATEWAYS, "edge", "default") or {}
        (programmed,) = [each for each in gateway["status"]["conditions"] if each["type"] == "Programmed"]
        assert "need more farms than the 2 that the administrator allows" in programmed["message"]
        kube.remove(TCP_ROUTES, "web", "default")
        await asyncio.sleep(3)
        assert not farms(kube)
        assert not operator.store.farms, "nothing is remembered of farms that were never made"


async def test_a_farm_whose_writes_keep_failing_is_told_on_its_gateway(
    kube: GatewayKube, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, operator = kube.apply, Operator(time, kube)

    async def fail(resource: Resource, body: Json, **options: Any) -> Json:
        if resource is FARMS:
            raise errors.KubeError(500, "InternalError", "failed calling webhook")
        return await real(resource, body, **options)

    def told() -> str:
        gateway = kube.find(GATEWAYS, "edge", "default") or {}
        return next(str(each["message"]) for each in gateway["status"]["conditions"] if each["type"] == "Programmed")

    monkeypatch.setattr(kube, "apply", fail)
    async with running(operator):
        await served(operator, kube)
        await asyncio.sleep(60)
        assert "cannot be written, and is tried again: 500 InternalError: failed calling webhook" in told()
        assert operator.reconciler.routes.backoff.lasting() == 1
        monkeypatch.setattr(kube, "apply", real)
        await asyncio.sleep(30)
        assert len(farms(kube)) == 1
        assert "cannot be written" not in told()
        assert operator.reconciler.routes.backoff.lasting() == 0


async def test_an_answer_that_comes_after_the_news_of_a_deletion_brings_nothing_back(
    kube: GatewayKube, time: VirtualTime
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        late = kube.find(GATEWAYS, "edge", "default")
        assert late is not None
        kube.remove(GATEWAYS, "edge", "default")
        await asyncio.sleep(0.01)
        operator.store.put_answer(GATEWAYS, late)
        operator.gateways.wake()
        await asyncio.sleep(1)
        assert not farms(kube)
        kube.put(GATEWAYS, raw_gateway("next"))
        await asyncio.sleep(1)
        assert addresses(kube, "next") == ["192.0.2.0"], "its address is free again"


async def test_a_gateway_that_waits_gets_an_address_once_one_is_free(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        static = [{"value": f"192.0.2.{number}"} for number in range(4)]
        kube.put(GATEWAYS, raw_gateway("all", addresses=static))
        await asyncio.sleep(1)
        kube.put(GATEWAYS, raw_gateway("waits", annotations={names.ANNOTATION_GATEWAY_FAMILIES: "ipv4"}))
        await asyncio.sleep(1)
        assert conditions(kube, GATEWAYS, "waits")["Programmed"] == ("False", "AddressNotAssigned")
        kube.remove(GATEWAYS, "all", "default")
        await asyncio.sleep(1)
        assert addresses(kube, "waits") == ["192.0.2.0"]


async def test_gateways_that_wait_leave_others_most_of_the_time(
    kube: GatewayKube, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, decided, longest, loop = Operator(time, kube), 0, 0, asyncio.get_running_loop()
    without_pause = 0

    def pause() -> None:
        nonlocal without_pause
        without_pause = 0

    def counting(*of: Any) -> Any:
        nonlocal decided, longest, without_pause
        decided, without_pause = decided + 1, without_pause + 1
        longest = max(longest, without_pause)
        if without_pause == 1:
            loop.call_soon(pause)
        return allocate(*of)

    async with running(operator):
        kube.put(GATEWAYS, raw_gateway("all", addresses=[{"value": f"192.0.2.{number}"} for number in range(4)]))
        await asyncio.sleep(1)
        for number in range(200):
            kube.put(GATEWAYS, raw_gateway(f"edge-{number}"))
        await asyncio.sleep(1)
        monkeypatch.setattr(addresses_of_gateways, "allocate", counting)
        for _ in range(30):
            operator.book.freed = True
            await asyncio.sleep(0.1)
    assert 200 <= decided <= 200 * 12, "every 0.3 s at most"
    assert longest <= 64


async def test_others_have_their_turn_while_many_routes_are_judged(
    kube: GatewayKube, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, loop = Operator(time, kube), asyncio.get_running_loop()
    admits, judged, longest, without_pause = AdmittedNamespaces.admits, 0, 0, 0

    def pause() -> None:
        nonlocal without_pause
        without_pause = 0

    def counting(*of: Any) -> bool:
        nonlocal judged, longest, without_pause
        judged, without_pause = judged + 1, without_pause + 1
        longest = max(longest, without_pause)
        if without_pause == 1:
            loop.call_soon(pause)
        return admits(*of)

    def listeners(name: str) -> list[Json]:
        return [{"name": f"{name}-{port}", "port": port, "protocol": "TCP"} for port in range(1, 33)]

    monkeypatch.setattr("kube_nftlb.operator.sync.gateways._STEPS_S", 0, raising=False)
    async with running(operator):
        kube.put(GATEWAYS, raw_gateway(listeners=listeners("a")))
        for number in range(100):
            raw = raw_route(f"route-{number}")
            raw["spec"]["parentRefs"] = [{"name": "edge", "port": port} for port in range(1, 33)]
            kube.put(TCP_ROUTES, raw)
        await asyncio.sleep(1)
        monkeypatch.setattr(AdmittedNamespaces, "admits", counting)
        change(kube, listeners=listeners("b"))
        await asyncio.sleep(1)
    assert judged >= 100 * 32
    assert longest <= 2 * 32, "one route, or two"


async def test_of_gateways_that_come_at_once_the_oldest_get_the_addresses(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        kube.put(GATEWAYS, raw_gateway("all", addresses=[{"value": f"192.0.2.{number}"} for number in range(4)]))
        await asyncio.sleep(1)
        for number in range(8):
            raw = raw_gateway(f"edge-{number}", annotations={names.ANNOTATION_GATEWAY_FAMILIES: "ipv4"})
            raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{9 - number}Z"
            kube.put(GATEWAYS, raw)
        kube.remove(GATEWAYS, "all", "default")
        await asyncio.sleep(1)
        assert [number for number in range(8) if addresses(kube, f"edge-{number}")] == [4, 5, 6, 7]


async def test_what_was_decided_before_a_restart_of_the_decisions_goes_if_nobody_wants_it(
    kube: GatewayKube, time: VirtualTime
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        kube.remove(GATEWAYS, "edge", "default")
        operator.store.versions = frozenset(["v1.7.0"])
        operator.gateways.wake()
        await asyncio.sleep(1)
        assert not farms(kube)
        kube.put(GATEWAYS, raw_gateway("next"))
        await asyncio.sleep(1)
        assert addresses(kube, "next") == ["192.0.2.0"]


async def test_a_status_that_the_api_server_does_not_keep_is_not_written_again_and_again(
    kube: GatewayKube, time: VirtualTime
) -> None:
    kube.pruned = "supportedFeatures"
    operator = Operator(time, kube)
    async with running(operator):
        await asyncio.sleep(30)
        assert conditions(kube, GATEWAY_CLASSES, "nftlb")["Accepted"] == ("True", "Accepted")
        assert len([write for write in kube.writes if write.resource is GATEWAY_CLASSES]) == 1
        # Made anew, with the same name.
        known = kube.find(GATEWAY_CLASSES, "nftlb") or {}
        kube.remove(GATEWAY_CLASSES, "nftlb")
        await asyncio.sleep(2)
        metadata = {**known["metadata"], "uid": "another", "resourceVersion": ""}
        kube.put(GATEWAY_CLASSES, {**known, "metadata": metadata, "status": {}})
        await asyncio.sleep(30)
        assert conditions(kube, GATEWAY_CLASSES, "nftlb")["Accepted"] == ("True", "Accepted")
        assert len([write for write in kube.writes if write.resource is GATEWAY_CLASSES]) == 2


async def test_a_kind_is_gone_once_its_definition_says_so(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        await served(operator, kube)
        kube.kinds = set()
        kube.definition_errors["tcproutes"] = errors.KubeError(403, "Forbidden", "no right to read it")
        await asyncio.sleep(5 * DISCOVER_EVERY_S)
        assert farms(kube), "an API server that starts may not know all kinds yet, nor all rights"
        kube.definition_errors.clear()
        kube.defined = set()
        await asyncio.sleep(2 * DISCOVER_EVERY_S)
        assert not farms(kube)


async def test_nothing_is_deleted_by_an_operator_that_starts_with_an_api_server(
    kube: GatewayKube, time: VirtualTime
) -> None:
    first = Operator(time, kube)
    async with running(first):
        await served(first, kube)
    kinds, kube.kinds = kube.kinds, set()
    second = Operator(time, kube)
    for resource in (SERVICES, FARMS):
        for raw in [each for key, each in vars(kube)["_objects"].items() if key[0] == resource]:
            second.ingest.put(resource, raw)
    works = (second.informer.run, second.ip_informer.run, second.decide)
    tasks = [asyncio.create_task(work()) for work in works]
    others = [asyncio.create_task(work()) for work in (*second.readers[:2], second.reconciler.routes.work)]
    await asyncio.sleep(10)
    assert not second.gateways.claimed.is_set()
    kube.kinds = kinds
    await asyncio.sleep(10)
    assert second.gateways.claimed.is_set()
    assert farms(kube)
    assert not [write for write in kube.writes if write.verb == "delete"]
    for task in (*tasks, *others):
        task.cancel()


async def test_a_kind_that_is_defined_but_not_offered_is_named_after_half_a_minute(
    kube: GatewayKube, time: VirtualTime
) -> None:
    kube.kinds.remove("tcproutes")
    operator = Operator(time, kube)
    with capture_logs() as logs:
        tasks = [asyncio.create_task(work()) for work in (operator.informer.run, operator.decide)]
        await asyncio.sleep(29)
        assert not operator.informer.listed.is_set()
        assert not [each for each in logs if each["log_level"] == "warning"]
        await asyncio.sleep(40)
        assert [each["kinds"] for each in logs if each["log_level"] == "warning"] == [["TCPRoute"]] * 2
    for task in tasks:
        task.cancel()


async def test_a_watch_that_ends_ends_the_reader(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    reader = asyncio.create_task(operator.informer.run())
    await operator.informer.listed.wait()
    kube.watch_errors.append(errors.RestoredError("etcd was restored to an older state"))
    kube.put(GATEWAYS, raw_gateway())
    with pytest.raises(errors.RestoredError):
        await asyncio.wait_for(reader, 60)


def recall(operator: Operator, kube: FakeKube) -> None:
    """Have the cache of an operator know what the API server has."""
    for resource in (SERVICES, NFTLB_NODES, FARMS):
        for raw in [each for key, each in vars(kube)["_objects"].items() if key[0] == resource]:
            operator.ingest.put(resource, raw)


@pytest.mark.parametrize("failed", [False, True])
async def test_a_restart_writes_no_status_of_a_gateway(kube: GatewayKube, time: VirtualTime, *, failed: bool) -> None:
    first = Operator(time, kube)
    async with running(first):
        await served(first, kube)
        await asyncio.sleep(1)
        ((_, _, name),) = [key for key in vars(kube)["_objects"] if key[0] == FARMS]
        failure = {"namespace": "default", "name": name, "generation": 0, "reason": "Refused", "message": "no"}
        node = raw_nftlb_node(watermark="1000", slice_watermark="1000", failed=[failure] if failed else [])
        first.put(kube, NFTLB_NODES, node)
        await asyncio.sleep(3)
        reached = conditions(kube, GATEWAYS, "edge")["Programmed"]
        assert reached == (("False", "Pending") if failed else ("True", "Programmed"))
    written = len(kube.writes)
    second = Operator(time, kube)
    recall(second, kube)
    async with running(second):
        await asyncio.sleep(3)
    assert [each.name for each in kube.writes[written:] if each.resource == GATEWAYS] == []


def balanced(kube: FakeKube, name: str) -> list[str]:
    status = (kube.find(SERVICES, name, "default") or {}).get("status") or {}
    return [each["ip"] for each in status.get("loadBalancer", {}).get("ingress", ())]


def old(raw: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}}


@pytest.fixture
def other_class(kube: GatewayKube) -> str:
    spec = {"controllerName": "example.com/other"}
    kube.put(GATEWAY_CLASSES, {"metadata": meta("other", namespace=None), "spec": spec})
    return "other"


async def test_a_gateway_that_goes_and_comes_back_takes_no_address_of_another(
    kube: GatewayKube, time: VirtualTime, other_class: str
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        kube.put(GATEWAYS, old(raw_gateway()))
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.0"]
        change(kube, gatewayClassName=other_class)
        await asyncio.sleep(1)
        assert addresses(kube) == []
        assert conditions(kube, GATEWAYS, "edge")["Programmed"] == ("False", "Pending")
        operator.put(kube, SERVICES, raw_balanced("victim"))
        await asyncio.sleep(1)
        assert balanced(kube, "victim") == ["192.0.2.0"]
        # As if its status had not been emptied, or somebody had written it.
        gateway = kube.find(GATEWAYS, "edge", "default")
        assert gateway is not None
        status = {"addresses": [{"type": "IPAddress", "value": "192.0.2.0"}]}
        del gateway["metadata"]["resourceVersion"]
        kube.put(GATEWAYS, {**gateway, "status": {**gateway["status"], **status}})
        change(kube, gatewayClassName="nftlb")
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.1"]
        assert operator.book.has(ServiceKey("default", "victim")) == (ip_of("192.0.2.0"),)
        assert operator.book.at(ip_of("192.0.2.0"), ServiceKey("default", "victim")) == []


async def test_a_status_that_another_controller_has_written_stays(
    kube: GatewayKube, time: VirtualTime, other_class: str
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        for name in ("edge", "moved"):
            kube.put(GATEWAYS, raw_gateway(name))
        await asyncio.sleep(1)
        theirs = {"type": "Programmed", "status": "True", "reason": "Programmed", "observedGeneration": 2}
        for name, address in (("edge", "192.0.2.0"), ("moved", "203.0.113.1")):
            raw = kube.find(GATEWAYS, name, "default")
            assert raw is not None
            status = {"addresses": [{"value": address}], "conditions": [theirs] if name == "edge" else []}
            del raw["metadata"]["resourceVersion"]
            metadata = {**raw["metadata"], "generation": 2}
            spec = {**raw["spec"], "gatewayClassName": other_class}
            kube.put(GATEWAYS, {"metadata": metadata, "spec": spec, "status": status})
        await asyncio.sleep(1)
        assert (addresses(kube), addresses(kube, "moved")) == (["192.0.2.0"], ["203.0.113.1"])
        assert not operator.book.has(GatewayKey("default", "edge"))


async def test_a_restart_gives_nobody_what_another_has_by_now(kube: GatewayKube, time: VirtualTime) -> None:
    kube.put(GATEWAYS, old({**raw_gateway(), "status": {"addresses": [{"value": "192.0.2.0"}]}}))
    operator = Operator(time, kube)
    operator.put(kube, SERVICES, raw_balanced("victim", "192.0.2.0"))
    async with running(operator):
        assert addresses(kube) == ["192.0.2.1"]
        assert balanced(kube, "victim") == ["192.0.2.0"]


async def test_of_two_gateways_with_an_address_that_which_serves_keeps_it(kube: GatewayKube, time: VirtualTime) -> None:
    first = Operator(time, kube)
    async with running(first):
        await served(first, kube)
        await asyncio.sleep(1)
    kube.put(GATEWAYS, old({**raw_gateway("evil"), "status": {"addresses": [{"value": "192.0.2.0"}]}}))
    second = Operator(time, kube)
    for raw in [each for key, each in vars(kube)["_objects"].items() if key[0] == FARMS]:
        second.ingest.put(FARMS, raw)
    async with running(second):
        assert (addresses(kube), addresses(kube, "evil")) == (["192.0.2.0"], ["192.0.2.1"])
    third = Operator(time, kube)
    for raw in [each for key, each in vars(kube)["_objects"].items() if key[0] == FARMS]:
        third.ingest.put(FARMS, raw)
    third.put(kube, SERVICES, raw_balanced("taker", "192.0.2.0"))
    async with running(third):
        assert addresses(kube) == ["192.0.2.2"], "a farm is no reason to take an address of a Service"


async def test_services_get_no_address_before_gateways_have_claimed_theirs(
    kube: GatewayKube, time: VirtualTime
) -> None:
    first = Operator(time, kube)
    async with running(first):
        kube.put(GATEWAYS, raw_gateway())
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.0"]
    second = Operator(time, kube)
    tasks = [asyncio.create_task(work()) for work in (*second.readers[:2], second.assigner.work, second.decide)]
    await second.pools.until_listed()
    second.put(kube, SERVICES, raw_balanced("late"))
    await asyncio.sleep(5)
    assert balanced(kube, "late") == []
    assert not second.assigner.mark([ServiceKey("default", "late")]), "its farms need not wait"
    tasks += [asyncio.create_task(work()) for work in (second.informer.run, second.ip_informer.run)]
    await asyncio.sleep(5)
    assert balanced(kube, "late") == ["192.0.2.1"]
    assert addresses(kube) == ["192.0.2.0"]
    for task in tasks:
        task.cancel()


async def test_a_new_leader_knows_what_the_last_one_gave_just_before(kube: GatewayKube, time: VirtualTime) -> None:
    kube.put(GATEWAYS, raw_gateway())
    operator = Operator(time, kube)
    reader = asyncio.create_task(operator.informer.run())
    await operator.informer.listed.wait()
    raw = kube.find(GATEWAYS, "edge", "default")
    assert raw is not None
    # No watch delivers it.
    kube.version += 1
    metadata = {**raw["metadata"], "resourceVersion": str(kube.version)}
    key = (GATEWAYS, "default", "edge")
    vars(kube)["_objects"][key] = {**raw, "metadata": metadata, "status": {"addresses": [{"value": "192.0.2.3"}]}}
    kube.list_errors.append(errors.KubeUnreachableError("away"))
    await operator.informer.catch_up()
    assert operator.store.written[Ref(*key)].status["addresses"] == [{"value": "192.0.2.3"}]
    reader.cancel()


async def test_a_new_leader_knows_what_has_come_and_gone_just_before(kube: GatewayKube, time: VirtualTime) -> None:
    kube.kinds.remove("udproutes")
    kube.defined.remove("udproutes")
    grant = {"metadata": meta("routes"), "spec": {"from": [], "to": []}}
    for resource, raw in ((TCP_ROUTES, raw_route()), (TCP_ROUTES, raw_route("old")), (REFERENCE_GRANTS, grant)):
        kube.put(resource, raw)
    operator = Operator(time, kube)
    reader = asyncio.create_task(operator.informer.run())
    await operator.informer.listed.wait()
    # No watch delivers any of it.
    for resource, name in ((TCP_ROUTES, "old"), (REFERENCE_GRANTS, "routes")):
        kube.remove(resource, name, "default", missed=True)
    kube.version += 1
    made = raw_route("new")
    made["metadata"]["resourceVersion"] = str(kube.version)
    vars(kube)["_objects"][TCP_ROUTES, "default", "new"] = made
    # A watch may be ahead of the list.
    ahead = raw_route("ahead")
    ahead["metadata"]["resourceVersion"] = str(kube.version + 1)
    operator.store.put(TCP_ROUTES, ahead)
    await operator.informer.catch_up()
    routes, grants = operator.store.objects.routes, operator.store.objects.grants
    assert ({each.name for each in routes}, grants) == ({"web", "new", "ahead"}, {})
    reader.cancel()


@pytest.mark.parametrize(
    ("annotations", "asked", "said"),
    [
        ({names.ANNOTATION_GATEWAY_FAMILIES: "ipv4;ipv6"}, [], {"Accepted": "True", "Programmed": "False"}),
        ({}, [{"type": "Hostname", "value": "a.example"}], {"Accepted": "False", "Programmed": "False"}),
        ({}, [{"value": "203.0.113.1"}], {"Accepted": "True", "Programmed": "False"}),
    ],
)
async def test_a_mistake_takes_neither_the_address_nor_the_farms(
    kube: GatewayKube, time: VirtualTime, annotations: Json, asked: list[Json], said: Json
) -> None:
    first = Operator(time, kube)
    async with running(first):
        await served(first, kube)
        await asyncio.sleep(1)
        made = farms(kube)
        change(kube, annotations=annotations, addresses=asked)
        await asyncio.sleep(1)
        kube.put(GATEWAYS, raw_gateway("other"))
        await asyncio.sleep(1)
        assert (addresses(kube), addresses(kube, "other")) == (["192.0.2.0"], ["192.0.2.1"])
        assert farms(kube) == made
        assert {kind: status for kind, (status, _) in conditions(kube, GATEWAYS, "edge").items()} == said
    second = Operator(time, kube)
    for resource in (SERVICES, FARMS):
        for raw in [each for key, each in vars(kube)["_objects"].items() if key[0] == resource]:
            second.ingest.put(resource, raw)
    async with running(second):
        assert addresses(kube) == ["192.0.2.0"]
        assert farms(kube) == made
        change(kube)
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.0"]
        assert farms(kube) == made


async def test_of_a_gateway_whose_class_goes_all_of_ours_goes(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    theirs = {"type": "example.com/Other", "status": "True"}
    async with running(operator):
        of_class = kube.find(GATEWAY_CLASSES, "nftlb") or {}
        kube.put(GATEWAYS, {**raw_gateway(), "status": {"conditions": [theirs]}})
        kube.put(GATEWAYS, raw_gateway("waits", addresses=[{"value": "203.0.113.1"}]))
        await asyncio.sleep(1)
        kube.remove(GATEWAY_CLASSES, "nftlb")
        await asyncio.sleep(1)
        pending = ("False", "Pending")
        for name in ("edge", "waits"):
            gateway = kube.find(GATEWAYS, name, "default") or {}
            ours = [each for each in gateway["status"]["conditions"] if each != theirs]
            assert {each["type"]: (each["status"], each["reason"]) for each in ours} == {
                "Accepted": pending,
                "Programmed": pending,
            }
            assert {each["message"] for each in ours} == {
                "its class is not one of kube-nftlb any more, which has taken its addresses back"
            }
            assert (addresses(kube, name), gateway["status"]["listeners"]) == ([], [])
        assert theirs in (kube.find(GATEWAYS, "edge", "default") or {})["status"]["conditions"]
        kube.put(GATEWAY_CLASSES, {**of_class, "metadata": meta("nftlb", namespace=None)})
        await asyncio.sleep(1)
        assert conditions(kube, GATEWAYS, "waits")["Accepted"] == ("True", "Accepted")
        assert addresses(kube) == ["192.0.2.0"]
        kube.remove(GATEWAY_CLASSES, "nftlb")
        await asyncio.sleep(1)
        gateway = kube.find(GATEWAYS, "edge", "default") or {}
        # Another controller may have a static address of this value.
        del gateway["metadata"]["resourceVersion"]
        kube.put(GATEWAYS, {**gateway, "status": {"addresses": [{"value": "192.0.2.0"}]}})
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.0"]


def raw_set(gateway: str = "edge", **metadata: Any) -> Json:
    listeners = [{"name": "more", "port": 81, "protocol": "TCP"}]
    return {"metadata": meta("more", **metadata), "spec": {"parentRef": {"name": gateway}, "listeners": listeners}}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("of_another", [False, True])
async def test_a_listener_set_whose_gateway_is_gone_says_so_once(
    kube: GatewayKube, time: VirtualTime, *, moved: bool, of_another: bool
) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        kube.put(GATEWAYS, raw_gateway(allowedListeners={"namespaces": {"from": "Same"}}))
        kube.put(LISTENER_SETS, raw_set())
        await asyncio.sleep(1)
        known = kube.find(LISTENER_SETS, "more", "default") or {}
        assert conditions(kube, LISTENER_SETS, "more")["Programmed"] == ("True", "Programmed")
        theirs = {"type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": 2}
        given = {"conditions": [theirs]} if of_another else known["status"]
        raw = raw_set("other" if moved else "edge")
        raw["metadata"]["generation"] = 2 if moved or of_another else 1
        kube.put(LISTENER_SETS, {**raw, "status": given})
        if not moved:
            kube.remove(GATEWAYS, "edge", "default")
        written = len(kube.writes)
        await asyncio.sleep(1)
        writes = [each for each in kube.writes[written:] if each.resource == LISTENER_SETS]
        if of_another:
            assert not writes
            return
        assert len(writes) == 1
        refused = ("False", "ParentNotAccepted")
        assert conditions(kube, LISTENER_SETS, "more") == {"Accepted": refused, "Programmed": refused}
        assert (kube.find(LISTENER_SETS, "more", "default") or {})["status"]["listeners"] == []
        raw = kube.find(LISTENER_SETS, "more", "default") or {}
        del raw["metadata"]["resourceVersion"]
        kube.put(LISTENER_SETS, {**raw, "status": {"conditions": [{**theirs, "observedGeneration": 1}]}})
        await asyncio.sleep(1)
        assert conditions(kube, LISTENER_SETS, "more") == {"Accepted": ("True", "Accepted")}


async def test_a_status_counts_no_more_once_there_are_decisions(kube: GatewayKube, time: VirtualTime) -> None:
    operator = Operator(time, kube)
    async with running(operator):
        # Until definitions have been looked at once more.
        await asyncio.sleep(1)
        operator.store.versions = frozenset(["v1.7.0"])
        kube.put(GATEWAYS, {**raw_gateway(), "status": {"addresses": [{"value": "192.0.2.3"}]}})
        await asyncio.sleep(1)
        assert addresses(kube) == ["192.0.2.0"]


async def test_a_gateway_that_goes_while_a_new_leader_lists_is_gone(
    kube: GatewayKube, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube.put(GATEWAYS, raw_gateway())
    operator = Operator(time, kube)
    reader = asyncio.create_task(operator.informer.run())
    await operator.informer.listed.wait()
    answer = kube.list

    async def list_slowly(resource: Resource, **kwargs: Any) -> Listing:
        listing = await answer(resource, **kwargs)
        if resource == GATEWAYS:
            kube.remove(GATEWAYS, "edge", "default")
            await asyncio.sleep(1)
        return listing

    monkeypatch.setattr(kube, "list", list_slowly)
    await operator.informer.catch_up()
    assert operator.store.uid(Ref(GATEWAYS, "default", "edge")) is None
    reader.cancel()
