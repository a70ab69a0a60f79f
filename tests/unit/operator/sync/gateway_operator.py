"""What of the operator serves Gateways, at an API server in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from kube_nftlb import errors, names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    FARMS,
    GATEWAY_CLASSES,
    GATEWAYS,
    NAMESPACES,
    SERVICES,
    TCP_ROUTES,
    Resource,
)
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.gateway_store import KINDS, GatewayStore
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.ip_addresses import IPAddresses
from kube_nftlb.operator.gateway.objects import Options
from kube_nftlb.operator.informers.address_informer import AddressInformer
from kube_nftlb.operator.informers.gateway_informer import GatewayInformer
from kube_nftlb.operator.informers.ip_address_informer import IPAddressInformer
from kube_nftlb.operator.sync.address_assigner import AddressAssigner
from kube_nftlb.operator.sync.cluster_ips import ClusterIPs
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.gateway_statuses import GatewayStatuses
from kube_nftlb.operator.sync.gateways import Gateways
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.operator.sync.status_budget import StatusBudget
from tests.builders import raw_service
from tests.builders.metadata import raw_metadata
from tests.builders.pools import raw_pool
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

Json = dict[str, Any]

CLUSTER_IPS_MAX = 4
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


_OF_ADDRESSES = {"items": {"properties": {"routability": {"type": "string"}}}}
ROUTABILITY = {
    "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"addresses": _OF_ADDRESSES}}}}},
}


class GatewayKube(FakeKube):
    """An API server that has the kinds of Gateway API, or some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = {each.plural for each in KINDS}
        self.defined = set(self.kinds)
        """Those that have a CustomResourceDefinition; ``kinds`` are those that discovery knows."""
        self.definition_errors: dict[str, errors.KubeError] = {}
        self.pruned = ""
        """A field of statuses that the definitions lack."""
        self.routability = False
        """The definition of Gateways has the routability of addresses."""

    async def request(self, method: str, path: str, **_: Any) -> Json:
        if not self.kinds:
            raise errors.NotFoundError(404, "NotFound", path)
        return {"resources": [{"name": each} for each in self.kinds]}

    def put(self, resource: Resource, raw: Json) -> Json:
        status = {key: value for key, value in raw.get("status", {}).items() if key != self.pruned}
        return super().put(resource, {**raw, "status": status} if "status" in raw else raw)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        if resource.plural == "customresourcedefinitions":
            plural = name.partition(".")[0]
            if plural in self.definition_errors:
                raise self.definition_errors[plural]
            if plural not in self.defined:
                raise errors.NotFoundError(404, "NotFound", name)
            annotations = {f"{names.GATEWAY_API}/bundle-version": "v1.6.3"}
            version = {"name": "v1", "served": True, **(ROUTABILITY if self.routability else {})}
            return {"metadata": {"annotations": annotations}, "spec": {"versions": [version]}}
        return await super().get(resource, name, namespace)


class Operator:
    def __init__(self, time: VirtualTime, kube: Kube, limits: NamespaceLimits = NamespaceLimits()) -> None:  # noqa: B008
        self.book = Book()
        self.cache = Cache(addresses=self.book, limits=limits)
        self.ingest = Ingest(self.cache)
        assert self.ingest.pools is not None
        events = Events(kube, Source("operator"))
        self.reconciler = Reconciler(self.ingest, FarmWriter(kube, self.ingest), events, time.now)
        self.store = GatewayStore(self.cache.services, self.book.namespaces, Options())
        statuses = GatewayStatuses(kube, self.store, events, StatusBudget(500), time.now, lambda: NOW)
        self.ip_addresses = IPAddresses()
        self.cluster_ips = ClusterIPs(kube, self.cache, self.ip_addresses, time.now, CLUSTER_IPS_MAX)
        self.ip_informer = IPAddressInformer(kube, self.ip_addresses, self.cluster_ips.seen)
        self.cluster_ips.unavailable = lambda: self.ip_informer.problem
        self.gateways = Gateways(
            self.store, self.cache, self.book, self.reconciler.routes, statuses, self.cluster_ips, self.changed
        )
        self.reconciler.statuses.observers.append(self.gateways)
        self.informer = GatewayInformer(kube, self.store, self.gateways.wake, statuses.seen)
        self.pools = AddressInformer(kube, self.ingest.pools, self.book, self.changed, self.gateways.namespace_changed)
        self.assigner = AddressAssigner(
            kube,
            self.ingest,
            self.book,
            events,
            time.now,
            self.changed,
            lambda _: None,
            self.gateways.addresses_freed,
            lambda: NOW,
            self.gateways.claimed,
        )
        self.readers = [
            self.pools.run_pools,
            self.pools.run_namespaces,
            self.informer.run,
            self.ip_informer.run,
        ]
        self.writers = [
            events.run,
            self.decide,
            self.cluster_ips.work,
            statuses.work,
            self.reconciler.routes.work,
            self.reconciler.statuses.work,
            self.assigner.retry,
            self.assigner.work,
        ]

    async def decide(self) -> None:
        """Do what ``gateway_parts`` does."""
        await self.informer.until_listed()
        await self.ip_informer.listed.wait()
        await self.informer.catch_up()
        await self.ip_informer.catch_up(self.cache.farm_index.has_cluster_ips)
        await self.gateways.run()

    def changed(self, affected: Affected) -> None:
        self.reconciler.mark(affected)
        self.gateways.services_changed(affected.services)
        self.assigner.mark(affected.services)

    def put(self, kube: FakeKube, resource: Resource, raw: Json) -> None:
        """Put in an object that is not of Gateway API, at a new version."""
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(kube.version + 1)}}
        self.changed(self.ingest.put(resource, kube.put(resource, raw)))


@contextlib.asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work()) for work in operator.readers]
    await operator.pools.until_listed()
    await asyncio.wait_for(operator.informer.listed.wait(), 60)
    tasks += [asyncio.create_task(work()) for work in operator.writers]
    await asyncio.sleep(2)
    yield
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def api_server() -> GatewayKube:
    """One with namespaces, a pool and a class."""
    kube = GatewayKube()
    for name in ("default", "backends"):
        kube.put(NAMESPACES, {"metadata": raw_metadata(name, namespace=None)})
    kube.put(ADDRESS_POOLS, pool("192.0.2.0/30", "2001:db8::/126"))
    spec = {"controllerName": "kube-nftlb.io/gateway"}
    kube.put(GATEWAY_CLASSES, {"metadata": meta("nftlb", namespace=None), "spec": spec})
    return kube


def meta(name: str, **fields: Any) -> Json:
    return {key: value for key, value in raw_metadata(name, generation=1, **fields).items() if key != "resourceVersion"}


def pool(*ranges: str) -> Json:
    raw = raw_pool("pool", *ranges)
    del raw["metadata"]["resourceVersion"]
    return raw


def raw_gateway(name: str = "edge", *, annotations: Json | None = None, **spec: Any) -> Json:
    listeners = [{"name": "tcp", "port": 80, "protocol": "TCP"}, {"name": "udp", "port": 53, "protocol": "UDP"}]
    metadata = {**meta(name), "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"gatewayClassName": "nftlb", "listeners": listeners, **spec}}


def raw_route(name: str = "web", gateway: str = "edge", **backend: Any) -> Json:
    reference = {"name": "web", "port": 80, **backend}
    spec = {"parentRefs": [{"name": gateway}], "rules": [{"backendRefs": [reference]}]}
    return {"metadata": meta(name), "spec": spec}


def change(kube: FakeKube, name: str = "edge", *, annotations: Json | None = None, **spec: Any) -> None:
    """Edit a Gateway."""
    raw = kube.find(GATEWAYS, name, "default")
    assert raw is not None
    metadata = {**raw["metadata"], "generation": raw["metadata"]["generation"] + 1, "annotations": annotations or {}}
    del metadata["resourceVersion"]
    kube.put(GATEWAYS, {**raw, "metadata": metadata, "spec": {**raw["spec"], **spec}})


async def served(operator: Operator, kube: FakeKube) -> None:
    """Make a Service, a Gateway and a route to it."""
    ports = [{"name": "http", "port": 80}]
    operator.put(kube, SERVICES, raw_service("web", ports=ports, selector={"app": "web"}))
    kube.put(GATEWAYS, raw_gateway())
    kube.put(TCP_ROUTES, raw_route())
    await asyncio.sleep(0.1)


def farms(kube: FakeKube) -> dict[str, Json]:
    found = {key[2]: raw for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS}
    return {name.rpartition("-")[0]: raw["spec"] for name, raw in found.items()}


def conditions(kube: FakeKube, resource: Resource, name: str) -> dict[str, tuple[str, str]]:
    raw = kube.find(resource, name, None if resource is GATEWAY_CLASSES else "default") or {}
    status = raw.get("status") or {}
    listed = status["parents"][0]["conditions"] if "parents" in status else status["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in listed}


def addresses(kube: FakeKube, name: str = "edge") -> list[str]:
    status = (kube.find(GATEWAYS, name, "default") or {}).get("status") or {}
    return [each["value"] for each in status.get("addresses", ())]
