"""All parts of the operator, before an API server in memory."""

import asyncio
from typing import Any

import pytest

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import (
    ENDPOINT_SLICES,
    FARMS,
    GATEWAYS,
    NFTLB_NODES,
    NODES,
    PODS,
    SERVICES,
    TCP_ROUTES,
    Resource,
)
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.addresses.allocate import allocate
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model.pods import slim
from kube_nftlb.operator.parts import Parts
from kube_nftlb.settings import OperatorSettings
from tests.builders import endpoint, raw_gated_pod, raw_pod, raw_service, raw_service_farm, raw_slice
from tests.builders.nodes import raw_nftlb_node, raw_node
from tests.builders.pools import raw_balanced, raw_pool
from tests.fakes.kube import FakeKube
from tests.unit.operator.sync.gateway_operator import api_server, farms, raw_gateway, raw_route


@pytest.mark.usefixtures("virtual_time")
async def test_a_new_leader_gives_no_overrides_that_do_not_fit_beside_those_in_force() -> None:
    kube = FakeKube()
    # Two farms, and so 100 overrides.
    parts = Parts(kube, OperatorSettings(limits=NamespaceLimits(farms=2)))
    for number in range(60):
        pod = slim(raw_pod(f"p{number:02}", annotations={"weight": "3"}))
        assert pod is not None
        parts.ingest.put(PODS, {**pod, "labels": {"app": "all", **({"most": "yes"} if number < 45 else {})}})
    parts.ingest.put(SERVICES, raw_service("old", created="2026-01-01T00:00:00Z", selector={"app": "all"}))
    parts.ingest.put(SERVICES, raw_service("new", created="2026-02-02T00:00:00Z", selector={"most": "yes"}))
    overrides = [{"pod": f"p{number:02}", "weight": 3} for number in range(60)]
    group = {"service": "old", "port": "http", "overrides": overrides}
    parts.ingest.put(FARMS, raw_service_farm("old--http", service="old", backendsFrom=[group]))
    parts.activate()
    # It has no farm yet, so it comes first.
    worker = asyncio.create_task(parts.reconciler.services.work())
    await asyncio.sleep(1)
    worker.cancel()
    made = [(write.name, len(write.body["spec"]["backendsFrom"][0]["overrides"])) for write in kube.writes]
    assert made == [("new--http", 0), ("old--http", 60)]


@pytest.mark.usefixtures("virtual_time")
async def test_a_pool_that_has_the_address_of_a_node_is_refused_before_anybody_gets_an_address_of_it() -> None:
    """Also in a replica that wrote nothing until now, and whichever it knew first."""
    kube = FakeKube()
    parts = Parts(kube, OperatorSettings(addresses=True))
    pools, book = parts.ingest.pools, parts.cache.addresses
    assert pools is not None
    assert book is not None
    book.put_namespaces({"default": {}})
    parts.mark(pools.replace([raw_pool("office")]))
    parts.mark(parts.ingest.put(SERVICES, kube.put(SERVICES, raw_balanced("web"))))
    assert book.problems == {}
    parts.mark(parts.ingest.put(NODES, raw_node("n1", addresses={"InternalIP": "192.0.2.1"})))
    parts.activate()
    writers = [asyncio.create_task(write()) for write in parts.writers()]
    await asyncio.sleep(5)
    for task in writers:
        task.cancel()
    assert book.has(ServiceKey("default", "web")) == ()
    (condition,) = next(write.body["status"]["conditions"] for write in kube.writes if write.resource is SERVICES)
    assert (condition["status"], condition["reason"]) == ("False", "NoPool")


@pytest.mark.usefixtures("virtual_time")
async def test_a_new_leader_has_no_farm_wait_for_a_node_that_went_long_ago() -> None:
    kube = FakeKube()
    parts = Parts(kube, OperatorSettings())
    for name in ("n1", "n2"):
        for resource, raw in ((NODES, raw_node(name)), (NFTLB_NODES, raw_nftlb_node(name, watermark="9"))):
            parts.mark(parts.ingest.put(resource, raw))
    for resource in (NODES, NFTLB_NODES):
        gone = {"metadata": {"name": "n2", "resourceVersion": "20"}}
        parts.mark(parts.ingest.remove(resource, gone))
    report = raw_nftlb_node("n1", watermark="99", slice_watermark="99")
    report["metadata"]["resourceVersion"] = "21"
    parts.mark(parts.ingest.put(NFTLB_NODES, report))
    farm = raw_service_farm("web--http", version=30)
    parts.mark(parts.ingest.put(FARMS, kube.put(FARMS, farm)))
    await asyncio.sleep(600)
    parts.activate()
    worker = asyncio.create_task(parts.reconciler.statuses.work())
    await asyncio.sleep(5)
    worker.cancel()
    written = [write.body["status"]["nodes"] for write in kube.writes if "nodes" in write.body["status"]]
    assert written == ["1/1"]


def test_a_service_made_anew_does_not_inherit_the_address_of_one_whose_end_nobody_saw() -> None:
    cache = Cache(addresses=Book())
    ingest, book = Ingest(cache), cache.addresses
    assert ingest.pools is not None
    assert book is not None
    book.put_namespaces({"default": {}})
    ingest.pools.replace([raw_pool("dmz", serviceSelector={"matchLabels": {"zone": "dmz"}})])
    key = ServiceKey("default", "web")
    for uid, zone, message in [("old", "dmz", "192.0.2.1 of"), ("new", "lan", "no accepted address pool")]:
        raw = raw_balanced("web")
        raw["metadata"] |= {"uid": uid, "labels": {"zone": zone}, "resourceVersion": {"old": "5", "new": "9"}[uid]}
        ingest.put(SERVICES, raw)
        request = book.request(key)
        assert request is not None
        outcome = allocate(request, book)
        book.assign(key, outcome.addresses)
        assert outcome.message.startswith(message)


@pytest.mark.parametrize("own", [pytest.param(["web-"], id="with farms"), pytest.param([], id="without farms")])
@pytest.mark.usefixtures("virtual_time")
async def test_a_pod_waits_until_all_nodes_have_the_farms_of_routes_to_its_service(
    own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kube = api_server()
    real = kube.apply

    async def apply(resource: Resource, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        # As the API server does it with each change of a spec.
        generation = {"generation": kube.version} if resource is FARMS else {}
        return await real(resource, {**body, "metadata": {**body["metadata"], **generation}}, **options)

    monkeypatch.setattr(kube, "apply", apply)
    # Without room for two farms, the Service has none: it has two ports.
    limits = NamespaceLimits(farms=4 if own else 1)
    parts = Parts(kube, OperatorSettings(addresses=True, gateway=True, readiness_gate=True, limits=limits))
    tasks = [asyncio.create_task(read()) for read in parts.readers()]
    await asyncio.sleep(5)
    parts.activate()
    tasks += [asyncio.create_task(write()) for write in parts.writers()]
    kube.put(NODES, raw_node("n1", version=kube.version + 1))
    kube.put(GATEWAYS, raw_gateway())
    kube.put(TCP_ROUTES, raw_route())
    slices = raw_slice(endpoint("10.244.0.1", "a", ready=False), version=kube.version + 1)
    kube.put(ENDPOINT_SLICES, slices)
    ports = [{"name": "http", "port": 80}, *([] if own else [{"name": "https", "port": 443}])]
    service = raw_service(ports=ports, selector={"app": "web"}, version=kube.version + 1)
    parts.mark(parts.ingest.put(SERVICES, kube.put(SERVICES, service)))
    await asyncio.sleep(5)

    def listed() -> set[tuple[str, tuple[str, ...]]]:
        return {(name, tuple(spec["backendsFrom"][0].get("gatedIPs", ()))) for name, spec in farms(kube).items()}

    def report() -> None:
        raw = raw_nftlb_node("n1", watermark=str(kube.version), slice_watermark=str(kube.version))
        kube.put(NFTLB_NODES, {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(kube.version + 1)}})

    def is_ready() -> bool:
        return any(write.resource is PODS for write in kube.writes)

    names = [*own, "web--edge--tcp"]
    assert listed() == {(name, ()) for name in names}
    kube.put(PODS, raw_gated_pod(version=kube.version + 1))
    report()
    await asyncio.sleep(5)
    assert listed() == {(name, ("10.244.0.1",)) for name in names}
    assert not is_ready()
    report()
    await asyncio.sleep(5)
    assert is_ready()
    kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1", "a"), version=kube.version + 1))
    report()
    await asyncio.sleep(15)
    assert listed() == {(name, ()) for name in names}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
