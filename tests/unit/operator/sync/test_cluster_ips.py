"""What becomes of Gateways with cluster IPs at the API server: IPAddresses, farms and statuses."""

import asyncio
from typing import Any

import pytest

from kube_nftlb import errors, names
from kube_nftlb.kube.resources import (
    FARMS,
    GATEWAY_CLASSES,
    GATEWAYS,
    IP_ADDRESSES,
    SERVICE_CIDRS,
    SERVICES,
    TCP_ROUTES,
)
from tests.builders import raw_service
from tests.builders.metadata import raw_metadata
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime
from tests.unit.operator.sync.gateway_operator import (
    CLUSTER_IPS_MAX,
    GatewayKube,
    Json,
    Operator,
    addresses,
    api_server,
    change,
    conditions,
    raw_gateway,
    raw_route,
    running,
)

INSIDE = [{"type": "IPAddress", "routability": "Cluster"}]
RANGE = "10.96.0.0/28"


@pytest.fixture
def kube() -> GatewayKube:
    kube = api_server()
    kube.routability = True
    return kube


@pytest.fixture
async def time() -> VirtualTime:
    return VirtualTime(asyncio.get_running_loop())


def started(time: VirtualTime, kube: FakeKube, *cidrs: str) -> Operator:
    operator = Operator(time, kube)
    put_cidr(operator, kube, "kubernetes", *cidrs or (RANGE,))
    return operator


def put_cidr(operator: Operator, kube: FakeKube, name: str, *cidrs: str, **fields: Any) -> None:
    metadata = {**raw_metadata(name, namespace=None), **fields.pop("metadata", {})}
    operator.put(kube, SERVICE_CIDRS, {"metadata": metadata, "spec": {"cidrs": list(cidrs)}, **fields})


def ip_addresses(kube: FakeKube) -> dict[str, str]:
    """The Gateways and others that have an IPAddress, by address."""
    found = {
        key[2]: raw["spec"]["parentRef"]["name"]
        for key, raw in vars(kube)["_objects"].items()
        if key[0] == IP_ADDRESSES
    }
    return dict(sorted(found.items()))


def other(name: str, resource: str = "services", **labels: str) -> Json:
    parent = {"group": "", "resource": resource, "namespace": "default", "name": "other"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}}


def message(kube: FakeKube, name: str = "edge", type_: str = "Programmed") -> str:
    status = (kube.find(GATEWAYS, name, "default") or {})["status"]
    return next(str(each["message"]) for each in status["conditions"] if each["type"] == type_)


async def test_a_gateway_gets_a_cluster_ip_and_serves_its_route_there(kube: GatewayKube, time: VirtualTime) -> None:
    operator = started(time, kube)
    async with running(operator):
        operator.put(kube, SERVICES, raw_service("web", ports=[{"name": "http", "port": 80}]))
        kube.put(
            GATEWAYS, raw_gateway(addresses=INSIDE, annotations={names.ANNOTATION_GATEWAY_TRAFFIC_POLICY: "Local"})
        )
        kube.put(TCP_ROUTES, raw_route())
        await asyncio.sleep(2)
        ((ip, parent),) = ip_addresses(kube).items()
        assert parent == "edge"
        raw = kube.find(IP_ADDRESSES, ip) or {}
        assert raw["metadata"]["labels"] == {
            "ipaddress.kubernetes.io/managed-by": "kube-nftlb-operator",
            "ipaddress.kubernetes.io/ip-family": "IPv4",
        }
        assert raw["spec"]["parentRef"] == {
            "group": "gateway.networking.k8s.io",
            "resource": "gateways",
            "namespace": "default",
            "name": "edge",
        }
        status = (kube.find(GATEWAYS, "edge", "default") or {})["status"]
        assert status["addresses"] == [{"type": "IPAddress", "value": ip, "routability": "Cluster"}]
        assert conditions(kube, GATEWAYS, "edge")["AddressesAssigned"] == ("True", "AddressesAssigned")
        (farm,) = [raw["spec"] for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]
        assert farm["addresses"] == [{"type": "ClusterIP", "ip": ip, "ports": "80"}]
        assert farm["trafficPolicy"] == "Cluster", "no connection comes from outside"


async def test_beside_an_address_of_a_pool_it_has_a_farm_of_its_own(kube: GatewayKube, time: VirtualTime) -> None:
    operator = started(time, kube)
    async with running(operator):
        operator.put(kube, SERVICES, raw_service("web", ports=[{"name": "http", "port": 80}]))
        kube.put(GATEWAYS, raw_gateway(addresses=[*INSIDE, {}, {"routability": "testing.x-k8s.io/sentinel"}]))
        kube.put(TCP_ROUTES, raw_route())
        await asyncio.sleep(2)
        status = (kube.find(GATEWAYS, "edge", "default") or {})["status"]
        (ip,) = ip_addresses(kube)
        assert [(each["value"], each["routability"]) for each in status["addresses"]] == [
            ("192.0.2.0", ""),
            ("192.0.2.1", "testing.x-k8s.io/sentinel"),
            (ip, "Cluster"),
        ]
        specs = [raw["spec"] for key, raw in vars(kube)["_objects"].items() if key[0] == FARMS]
        assert sorted([each["type"] for each in spec["addresses"]] for spec in specs) == [
            ["ClusterIP"],
            ["LoadBalancer", "LoadBalancer"],
        ]


async def test_the_features_are_those_of_the_definition(kube: GatewayKube, time: VirtualTime) -> None:
    def features() -> set[str]:
        found = (kube.find(GATEWAY_CLASSES, "nftlb") or {})["status"]["supportedFeatures"]
        return {each["name"] for each in found} & {"GatewayAddressRoutability", "GatewayAddressRoutabilityCluster"}

    kube.routability = False
    async with running(started(time, kube)):
        kube.put(GATEWAYS, raw_gateway())
        await asyncio.sleep(2)
        assert not features()
        assert "AddressesAssigned" not in conditions(kube, GATEWAYS, "edge")
        kube.routability = True
        await asyncio.sleep(30)
        assert len(features()) == 2
        assert conditions(kube, GATEWAYS, "edge")["AddressesAssigned"] == ("True", "AddressesAssigned")
        status = (kube.find(GATEWAYS, "edge", "default") or {})["status"]
        assert status["addresses"] == [{"type": "IPAddress", "value": "192.0.2.0", "routability": ""}]


@pytest.mark.parametrize("how", ["deleted", "deleted while no operator runs", "of another class", "asks no more"])
async def test_the_address_goes_with_what_asked_for_it(kube: GatewayKube, time: VirtualTime, how: str) -> None:
    async with running(started(time, kube)):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        kube.put(GATEWAYS, raw_gateway("stays", addresses=INSIDE))
        kube.put(IP_ADDRESSES, other("10.96.0.15"))
        kube.put(IP_ADDRESSES, other("10.96.0.16", "gateways", **{names.LABEL_IP_MANAGED_BY: "another-controller"}))
        await asyncio.sleep(1)
        assert sorted(ip_addresses(kube).values()) == ["edge", "other", "other", "stays"]
        status = (kube.find(GATEWAYS, "edge", "default") or {})["status"]
        changed = {**raw_gateway(), "metadata": {**raw_gateway()["metadata"], "generation": 2}, "status": status}
        if how == "deleted":
            kube.remove(GATEWAYS, "edge", "default")
        elif how == "of another class":
            kube.put(GATEWAYS, {**changed, "spec": {**changed["spec"], "gatewayClassName": "x", "addresses": INSIDE}})
        elif how == "asks no more":
            kube.put(GATEWAYS, changed)
        await asyncio.sleep(1)
    if how == "deleted while no operator runs":
        kube.remove(GATEWAYS, "edge", "default")
        async with running(started(time, kube)):
            await asyncio.sleep(1)
    assert sorted(ip_addresses(kube).values()) == ["other", "other", "stays"]
    if how == "of another class":
        assert addresses(kube) == []
        assert "AddressesAssigned" not in conditions(kube, GATEWAYS, "edge")


async def test_an_address_is_not_free_before_no_farm_has_it(kube: GatewayKube, time: VirtualTime) -> None:
    operator = started(time, kube)
    async with running(operator):
        operator.put(kube, SERVICES, raw_service("web", ports=[{"name": "http", "port": 80}]))
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        kube.put(TCP_ROUTES, raw_route())
        await asyncio.sleep(2)
        kube.remove(GATEWAYS, "edge", "default")
        await asyncio.sleep(2)
        deleted = [each.resource for each in kube.writes if each.verb == "delete"]
        assert deleted == [FARMS, IP_ADDRESSES]


async def test_a_restart_and_a_race_leave_a_gateway_its_address(kube: GatewayKube, time: VirtualTime) -> None:
    async with running(started(time, kube)):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
        before = ip_addresses(kube)
        async with running(started(time, kube)):
            kube.put(GATEWAYS, raw_gateway("late", addresses=INSIDE))
            await asyncio.sleep(2)
            assert sorted(ip_addresses(kube).values()) == ["edge", "late"]
            assert before.items() <= ip_addresses(kube).items()
            late = ip_addresses(kube)
    async with running(started(time, kube)):
        await asyncio.sleep(2)
    assert ip_addresses(kube) == late
    assert addresses(kube, "edge") == list(before)


async def test_an_operator_that_starts_deletes_no_farm_before_it_has_decided(
    kube: GatewayKube, time: VirtualTime
) -> None:
    async with running(first := started(time, kube)):
        first.put(kube, SERVICES, raw_service("web", ports=[{"name": "http", "port": 80}]))
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        kube.put(TCP_ROUTES, raw_route())
        await asyncio.sleep(2)
    second = restarted(time, kube)
    second.writers.remove(second.cluster_ips.work)
    async with running(second):
        await asyncio.sleep(2)
        assert [each for each in kube.writes if each.verb == "delete"] == []
        assert conditions(kube, GATEWAYS, "edge")["AddressesAssigned"] == ("True", "AddressesAssigned")


def restarted(time: VirtualTime, kube: FakeKube) -> Operator:
    """An operator that knows the Services and farms that there are."""
    operator = started(time, kube)
    for resource in (SERVICES, FARMS):
        for raw in [raw for key, raw in vars(kube)["_objects"].items() if key[0] == resource]:
            operator.ingest.put(resource, raw)
    return operator


async def test_of_two_addresses_where_one_is_wanted_the_older_one_stays(kube: GatewayKube, time: VirtualTime) -> None:
    async with running(started(time, kube)):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
    (first,) = ip_addresses(kube)
    raw = kube.find(IP_ADDRESSES, first) or {}
    second = {"name": "10.96.0.1" if first != "10.96.0.1" else "10.96.0.2", "creationTimestamp": "2031-01-01T00:00:00Z"}
    kube.put(IP_ADDRESSES, {**raw, "metadata": {"labels": raw["metadata"]["labels"], **second}})
    kube.put(
        IP_ADDRESSES,
        {**raw, "metadata": {**raw["metadata"], "creationTimestamp": "2030-01-01T00:00:00Z", "resourceVersion": ""}},
    )
    async with running(started(time, kube)):
        await asyncio.sleep(1)
    assert list(ip_addresses(kube)) == [first]


async def test_whoever_deletes_the_ip_address_gets_it_back(kube: GatewayKube, time: VirtualTime) -> None:
    async with running(started(time, kube)):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
        before = ip_addresses(kube)
        kube.remove(IP_ADDRESSES, next(iter(before)))
        await asyncio.sleep(1)
        assert ip_addresses(kube) == before


async def test_what_others_have_is_left_to_them(kube: GatewayKube, time: VirtualTime) -> None:
    operator = started(time, kube, "10.96.0.0/29")
    operator.put(kube, SERVICES, raw_service("known", clusterIP="10.96.0.1", clusterIPs=["10.96.0.1"]))
    for number in range(2, 6):
        kube.put(IP_ADDRESSES, other(f"10.96.0.{number}"))
    async with running(operator):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
        assert addresses(kube) == ["10.96.0.6"], "the only one that is free"
        created = [each.name for each in kube.writes if each.resource is IP_ADDRESSES]
        assert "10.96.0.1" not in created, "that a Service has it is known"
        kube.put(GATEWAYS, raw_gateway("late", addresses=INSIDE))
        await asyncio.sleep(1)
        assert conditions(kube, GATEWAYS, "late")["Programmed"] == ("False", "AddressNotAssigned")
        assert conditions(kube, GATEWAYS, "late")["AddressesAssigned"] == ("False", "NotAssigned")
        assert message(kube, "late") == "no IPv4 address is free in the ServiceCIDR 10.96.0.0/29"
        kube.remove(IP_ADDRESSES, "10.96.0.3")
        await asyncio.sleep(70)
        assert addresses(kube, "late") == ["10.96.0.3"]


async def test_an_address_that_it_names_and_that_is_taken_is_named(kube: GatewayKube, time: VirtualTime) -> None:
    kube.put(IP_ADDRESSES, other("10.96.0.9"))
    async with running(started(time, kube)):
        wanted = [{"routability": "Cluster", "value": ip} for ip in ("10.96.0.8", "10.96.0.9")]
        kube.put(GATEWAYS, raw_gateway(addresses=wanted))
        await asyncio.sleep(1)
        assert addresses(kube) == ["10.96.0.8"]
        assert conditions(kube, GATEWAYS, "edge")["Programmed"] == ("False", "AddressNotAssigned")
        assert conditions(kube, GATEWAYS, "edge")["AddressesAssigned"] == ("False", "PartiallyAssigned")
        assert message(kube).startswith("spec.addresses: 10.96.0.9 is the cluster IP of something else")


async def test_an_address_that_it_names_and_that_is_taken_costs_it_none(kube: GatewayKube, time: VirtualTime) -> None:
    kube.put(IP_ADDRESSES, other("10.96.0.9"))
    async with running(started(time, kube)):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
        had = addresses(kube)
        change(kube, addresses=[{"routability": "Cluster", "value": "10.96.0.9"}])
        await asyncio.sleep(1)
        assert addresses(kube) == had
        assert conditions(kube, GATEWAYS, "edge")["AddressesAssigned"] == ("False", "NotAssigned")
        assert message(kube).endswith(f"; until then it keeps {had[0]}")
        change(kube, addresses=[{"routability": "Cluster", "value": "10.96.0.8"}])
        await asyncio.sleep(1)
        assert addresses(kube) == ["10.96.0.8"]
        assert [name for name, gateway in ip_addresses(kube).items() if gateway == "edge"] == ["10.96.0.8"]


async def test_a_tenant_does_not_get_all(kube: GatewayKube, time: VirtualTime) -> None:
    async with running(started(time, kube)):
        for number in range(CLUSTER_IPS_MAX + 1):
            kube.put(GATEWAYS, raw_gateway(f"edge-{number}", addresses=INSIDE))
        await asyncio.sleep(1)
        assert len(ip_addresses(kube)) == CLUSTER_IPS_MAX
        last = f"edge-{CLUSTER_IPS_MAX}"
        (refused,) = {f"edge-{number}" for number in range(CLUSTER_IPS_MAX + 1)} - set(ip_addresses(kube).values())
        assert message(kube, refused).startswith(
            f"the Gateways of the namespace may have {CLUSTER_IPS_MAX} cluster IPs"
        )
        kube.remove(GATEWAYS, "edge-0" if refused != "edge-0" else last, "default")
        await asyncio.sleep(10)
        assert refused in ip_addresses(kube).values()


async def test_service_cidrs_that_are_not_in_use_give_none(kube: GatewayKube, time: VirtualTime) -> None:
    operator = started(time, kube, "10.96.0.0/29")
    put_cidr(operator, kube, "kubernetes", "10.96.0.0/29", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    put_cidr(operator, kube, "new", "10.97.0.0/29", **unready)
    async with running(operator):
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
        assert message(kube) == "no ServiceCIDR has IPv4 addresses"
        put_cidr(operator, kube, "new", "10.97.0.0/29")
        await asyncio.sleep(6)
        assert addresses(kube)[0].startswith("10.97.0.")


class WithoutIPAddresses(GatewayKube):
    error: errors.KubeError | None = errors.NotFoundError(404, "NotFound", "no such kind")

    async def list(self, resource: Any, *args: Any, **options: Any) -> Any:
        if resource is IP_ADDRESSES and self.error is not None:
            raise self.error
        return await super().list(resource, *args, **options)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            errors.NotFoundError(404, "NotFound", ""),
            "the cluster has no IPAddresses: they are there from Kubernetes 1.33 on",
        ),
        (
            errors.KubeError(403, "Forbidden", ""),
            "the operator may not read IPAddresses: install the chart with gateway.enabled",
        ),
    ],
)
async def test_where_there_are_no_ip_addresses_it_says_so(
    kube: GatewayKube, time: VirtualTime, error: errors.KubeError, expected: str
) -> None:
    without = WithoutIPAddresses()
    without.error = error
    vars(without).update({key: value for key, value in vars(kube).items() if key != "error"})
    async with running(started(time, without)):
        without.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        without.put(GATEWAYS, raw_gateway("outside"))
        await asyncio.sleep(2)
        assert message(without) == expected
        assert addresses(without, "outside") == ["192.0.2.0"]


async def test_a_missing_permission_takes_nothing_from_clients(time: VirtualTime) -> None:
    kube = WithoutIPAddresses()
    vars(kube).update(vars(api_server()))
    kube.error = None
    async with running(first := started(time, kube)):
        first.put(kube, SERVICES, raw_service("web", ports=[{"name": "http", "port": 80}]))
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        kube.put(TCP_ROUTES, raw_route())
        await asyncio.sleep(2)
    kube.error = errors.KubeError(403, "Forbidden", "")
    async with running(restarted(time, kube)):
        await asyncio.sleep(10)
        assert [each for each in kube.writes if each.verb == "delete"] == []
        kube.error = None
        kube.remove(GATEWAYS, "edge", "default")
        await asyncio.sleep(20)
        assert ip_addresses(kube) == {}


class RefusesWatch(GatewayKube):
    refusals: list[errors.KubeError]

    async def watch(self, resource: Any, *args: Any, **options: Any) -> Any:
        async for event in super().watch(resource, *args, **options):
            yield event
            if resource is IP_ADDRESSES and self.refusals:
                raise self.refusals.pop()


@pytest.mark.parametrize("status", [403, 404])
async def test_a_watch_that_is_refused_once_costs_no_address_for_long(time: VirtualTime, status: int) -> None:
    kube = RefusesWatch()
    vars(kube).update(vars(api_server()))
    kube.routability = True
    refusal = errors.NotFoundError if status == 404 else errors.KubeError
    kube.refusals = []
    async with running(started(time, kube)):
        await asyncio.sleep(1)
        kube.refusals = [refusal(status, "", "")]
        kube.bookmark(kube.version + 1)
        await asyncio.sleep(1)
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(1)
        assert "IPAddresses" in message(kube)
        kube.bookmark(kube.version + 1)
        await asyncio.sleep(6)
        assert addresses(kube) == list(ip_addresses(kube)) != []


async def test_an_answer_that_is_lost_costs_no_second_address(kube: GatewayKube, time: VirtualTime) -> None:
    async with running(started(time, kube)):
        kube.answers_lost = 1
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(2)
        assert addresses(kube) == list(ip_addresses(kube))


async def test_an_ip_address_that_the_api_server_refuses_is_told(kube: GatewayKube, time: VirtualTime) -> None:
    async with running(started(time, kube)):
        kube.create_errors.append(errors.KubeError(403, "Forbidden", "a policy says no"))
        kube.put(GATEWAYS, raw_gateway(addresses=INSIDE))
        await asyncio.sleep(2)
        assert message(kube).startswith("the API server refuses an IPAddress: ")
        await asyncio.sleep(65)
        assert addresses(kube) == list(ip_addresses(kube)) != []
