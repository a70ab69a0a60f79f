"""``status --wait --service``: what counts for a Service, how long it waits, and the connections that it opens."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_nftlb import errors, names
from kube_nftlb.commands.cluster import connections, inspecting
from kube_nftlb.commands.cluster import why as why_command
from kube_nftlb.commands.cluster.connections import Target as Destination
from kube_nftlb.commands.cluster.connections import Tried
from kube_nftlb.commands.cluster.inspecting import StatusOptions
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import OPERATOR_LEASE, Target
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    EVENTS,
    FARMS,
    GATEWAY_CLASSES,
    GATEWAYS,
    LEASES,
    NFTLB_NODES,
    NODES,
    SERVICES,
    JsonObject,
    Resource,
)
from tests.builders import raw_farm, raw_node, raw_service, raw_service_farm
from tests.builders.pools import raw_pool
from tests.fakes.kube import FakeKube
from tests.unit.commands.cluster.test_findings import GOOD, node

SERVICE = {
    "metadata": {"namespace": "default", "name": "web"},
    "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]},
}
STATUS = {"conditions": list(GOOD), "readyBackends": 1, "totalBackends": 1, "nodes": "1/1", "backendsReady": "1/1"}


class Cluster(FakeKube):
    """Has a healthy node and a Service, whose farm comes when its farms are listed for the second time."""

    def __init__(self, *farms: JsonObject) -> None:
        super().__init__()
        self.looks = 0
        self._farms = farms
        self.put(NODES, raw_node())
        self.put(NFTLB_NODES, node())
        self.put(SERVICES, SERVICE)

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource == FARMS:
            self.looks += 1
            if self.looks == 2:
                for farm in self._farms:
                    self.put(FARMS, farm)
        return await super().list(resource, namespace, **options)


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(target: Destination) -> Tried:
        return Tried(target, Counter({"pod-a": 20}), Counter())

    monkeypatch.setattr(connections, "connect", connect)
    monkeypatch.setattr(inspecting, "_AGAIN_S", 0)


async def status(monkeypatch: pytest.MonkeyPatch, kube: FakeKube, **options: Any) -> bool:
    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(inspecting, "connected", connected)
    return await inspecting.status(Target(), StatusOptions(service=("default", "web"), **options))


async def test_it_waits_until_the_service_has_its_farm_and_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What is wrong with the farm of somebody else does not count.
    kube = Cluster(raw_service_farm(status=STATUS), raw_farm("other"))
    assert not await status(monkeypatch, kube, wait_s=60)
    assert kube.looks == 2
    shown = capsys.readouterr().out
    assert "FARMS      1: 1 serving\nPROBLEMS   none\n" in shown
    assert shown.endswith("TCP 10.96.0.10:80 answered 20 of 20 connections, from pod-a (20)\n")


class Overloaded(Cluster):
    """Refuses the first look."""

    def __init__(self, status: int) -> None:
        super().__init__(raw_service_farm(status=STATUS))
        self._error = errors.KubeError(status, "", "not now")

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource == NFTLB_NODES and self.looks < 2:
            raise self._error
        return await super().list(resource, namespace, **options)


@pytest.mark.parametrize("code", [429, 500, 503, 504])
async def test_it_waits_for_an_api_server_that_cannot_answer_for_now(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    assert not await status(monkeypatch, Overloaded(code), wait_s=60)
    with pytest.raises(errors.KubeError, match="not now"):
        await status(monkeypatch, Overloaded(code))


class Slow(Cluster):
    """Answers after an hour."""

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        await asyncio.sleep(3600)
        return await super().list(resource, namespace, **options)


async def test_it_waits_no_longer_than_it_is_told_for_an_api_server_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspecting, "_LOOK_MIN_S", 0.1)
    with pytest.raises(errors.KubeUnreachableError, match="it has not answered everything in the time to wait"):
        await asyncio.wait_for(status(monkeypatch, Slow(), wait_s=0.01), 10)


async def test_it_does_not_wait_for_a_right_that_the_user_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = Overloaded(403)
    with pytest.raises(errors.KubeError, match="not now"):
        await status(monkeypatch, kube, wait_s=60)
    assert kube.looks == 1


async def test_without_a_farm_nothing_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await status(monkeypatch, Cluster())
    assert "service default/web: NoFarm: it has no farm" in capsys.readouterr().out


async def test_a_service_that_does_not_exist_is_a_wrong_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = Cluster()
    kube.remove(SERVICES, "web", "default")
    with pytest.raises(errors.UsageError, match="there is no Service 'web' in the namespace default"):
        await status(monkeypatch, kube)


async def test_connections_that_fail_are_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = Cluster()
    kube.put(FARMS, raw_service_farm(status=STATUS))
    assert await status(monkeypatch, kube, pods=2)
    assert (
        "service default/web: TooFewPods: TCP 10.96.0.10:80 was answered by pod-a (20) alone" in capsys.readouterr().out
    )


class WithWarnings(FakeKube):
    """Knows selectors of Events."""

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource in (EVENTS, LEASES):
            options.pop("field_selector", None)
        return await super().list(resource, namespace, **options)


def connect(monkeypatch: pytest.MonkeyPatch, kube: FakeKube) -> None:
    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[FakeKube]:
        yield kube

    for module in (inspecting, why_command):
        monkeypatch.setattr(module, "connected", connected)


async def why(monkeypatch: pytest.MonkeyPatch, kube: FakeKube, name: str | None, namespace: str | None = None) -> bool:
    connect(monkeypatch, kube)
    return await why_command.why(Target(namespace=namespace or ("default" if name else None)), name, Format.TEXT)


@pytest.mark.parametrize("name", [None, "web"])
async def test_a_service_that_was_refused_is_a_problem_with_the_operators_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str | None
) -> None:
    kube = WithWarnings()
    service = kube.put(SERVICES, raw_service())
    about = {"kind": "Service", "uid": service["metadata"]["uid"]}
    event = {"involvedObject": about, "reason": "TooManyFarms", "message": "5 of 4", "type": "Warning"}
    ours = {**event, "reportingComponent": "kube-nftlb-operator", "lastTimestamp": "2026-01-01T00:00:00Z"}
    kube.put(EVENTS, {"metadata": {"name": "e", "namespace": "default"}, **ours})
    clouds = {**event, "reason": "SyncLoadBalancerFailed", "reportingComponent": "service-controller"}
    kube.put(
        EVENTS, {"metadata": {"name": "f", "namespace": "default"}, **clouds, "lastTimestamp": "2026-01-02T00:00:00Z"}
    )
    assert await why(monkeypatch, kube, name)
    assert "service default/web: NoFarm: it has no farm: TooManyFarms: 5 of 4" in capsys.readouterr().out
    await inspecting.get(Target(namespace="default"), "web", Format.TEXT)
    assert "no farms: TooManyFarms: 5 of 4" in capsys.readouterr().out


async def test_a_service_that_nobody_should_serve_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    kube.put(SERVICES, raw_service(clusterIP="None"))
    assert not await why(monkeypatch, kube, "web")
    assert capsys.readouterr().out == "service default/web has no farm: it is headless\n"
    with pytest.raises(errors.UsageError, match="no farm and no Service 'other'"):
        await why(monkeypatch, kube, "other")


async def test_why_of_a_service_says_which_annotations_are_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    kube.put(SERVICES, raw_service(annotations={"schedular": "weight", "mode": "nat"}))
    no_effect = {**STATUS, "reason": "NoEffect: the session of 10.0.0.1 names the backend b"}
    kube.put(FARMS, raw_service_farm(mode="dnat", status=no_effect))
    assert not await why(monkeypatch, kube, "web"), "all is served"
    said = capsys.readouterr()
    assert said.out == "farm default/web--http is healthy: programmed on 1/1 nodes, 1/1 backends ready\n"
    effect, unknown, mode = said.err.splitlines()
    assert effect == f"warning: farm default/web--http: {no_effect['reason']}"
    assert unknown.startswith(
        f"warning: service default/web: InvalidAnnotation: {names.ANNOTATION_PREFIX}schedular: unk"
    )
    assert mode == (
        f"warning: service default/web: InvalidAnnotation: {names.ANNOTATION_PREFIX}mode: 'nat' is not one of: "
        "snat, dnat, dsr, local; dnat is used"
    )
    assert not await why(monkeypatch, kube, None)
    assert capsys.readouterr().err == "", "Events and the farms' REASON have them"


async def test_get_and_why_take_the_words_of_kubectl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    kube.put(SERVICES, raw_service())
    kube.put(FARMS, raw_service_farm(status=STATUS))
    kube.put(FARMS, raw_farm("by-hand", status=STATUS))
    assert not await why(monkeypatch, kube, "farm/by-hand")
    assert not await why(monkeypatch, kube, "svc/web")
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "default/by-hand",
        "default/web--http",
    ]
    await inspecting.get(Target(namespace="default"), "svc/web", Format.TEXT)
    assert "Service default/web" in capsys.readouterr().out
    with pytest.raises(errors.UsageError, match="there is no farm 'web' in the namespace default"):
        await why(monkeypatch, kube, "farm/web")
    with pytest.raises(errors.UsageError, match="there is no Service 'by-hand' in the namespace default"):
        await why(monkeypatch, kube, "svc/by-hand")
    hint = "'other' in the namespace default; for the namespace services say other -n services"
    with pytest.raises(errors.UsageError, match=hint):
        await why(monkeypatch, kube, "services/other")
    with pytest.raises(errors.UsageError, match=hint):
        await inspecting.get(Target(namespace="default"), "services/other", Format.TEXT)


@pytest.mark.parametrize("name", ["by-hand", "nftlbfarm/by-hand"])
async def test_get_of_a_farm_names_what_shows_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kube = FakeKube()
    kube.put(FARMS, raw_farm("by-hand", status=STATUS))
    connect(monkeypatch, kube)
    with pytest.raises(errors.UsageError, match=r"kubectl nftlb why farm/by-hand -n default.*get nftlbfarm by-hand"):
        await inspecting.get(Target(namespace="default"), name, Format.TEXT)


async def test_get_refuses_two_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, FakeKube())
    with pytest.raises(errors.UsageError, match="but --namespace says other"):
        await inspecting.get(Target(namespace="other"), "default/web", Format.TEXT)


@pytest.mark.parametrize("allowed", [True, False])
async def test_why_names_gateways_that_it_cannot_judge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, allowed: bool
) -> None:
    class Tenant(WithWarnings):
        async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
            if resource == GATEWAY_CLASSES and not allowed:
                raise errors.KubeError(403, "Forbidden", "cannot list gatewayclasses")
            return await super().list(resource, namespace, **options)

    kube = Tenant()
    metadata = {"namespace": "default", "name": "edge", "creationTimestamp": "2026-01-01T00:00:00Z"}
    kube.put(GATEWAYS, {"metadata": metadata, "spec": {"gatewayClassName": "ours"}})
    await why(monkeypatch, kube, None)
    printed = capsys.readouterr()
    told = (
        "not judged: gateway/edge: you may not list every GatewayClass, so it is unknown which controller is theirs; "
        "'why gateway/edge' shows conditions\n"
    )
    assert printed.err == ("" if allowed else told)
    assert ("there is no GatewayClass ours" in printed.out) is allowed


class Tenant(WithWarnings):
    """Lets a user list farms and pools, and with ``allowed`` the reports of nodes, of which none announces anything."""

    def __init__(self, *, allowed: bool) -> None:
        super().__init__()
        self._allowed = allowed
        accepted = {"type": "Accepted", "status": "True", "reason": "Valid", "message": "its ranges are valid"}
        self.put(ADDRESS_POOLS, {**raw_pool("office", "192.0.2.0/24"), "status": {"conditions": [accepted]}})
        self.put(NFTLB_NODES, node())

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource == NFTLB_NODES and not self._allowed:
            raise errors.KubeError(403, "Forbidden", "cannot list nftlbnodes")
        return await super().list(resource, namespace, **options)


@pytest.mark.parametrize("name", [None, "web--http"])
@pytest.mark.parametrize("allowed", [True, False])
async def test_why_raises_no_alarm_over_announced_addresses_for_who_may_not_list_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str | None, *, allowed: bool
) -> None:
    kube = Tenant(allowed=allowed)
    farm = raw_service_farm(addresses=[{"ip": "192.0.2.7", "ports": "80", "type": "LoadBalancer"}], status=STATUS)
    farm["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    kube.put(FARMS, farm)
    assert await why(monkeypatch, kube, name) is allowed
    printed = capsys.readouterr()
    assert ("NotAnnounced" in printed.out) is allowed
    told = "not judged: whether a node announces 192.0.2.7: you may not list NftlbNodes\n"
    assert printed.err == ("" if allowed else told)


async def test_why_says_nothing_of_addresses_that_are_of_no_pool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = Tenant(allowed=False)
    balanced = {"ip": "198.51.100.7", "ports": "80", "type": "LoadBalancer"}
    kube.put(FARMS, raw_service_farm(addresses=[balanced], status=STATUS))
    assert not await why(monkeypatch, kube, None)
    assert capsys.readouterr().err == ""


async def test_why_also_looks_at_the_operator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = WithWarnings()
    spec = {"holderIdentity": "x", "renewTime": "2020-01-01T00:00:00Z"}
    kube.put(LEASES, {"metadata": {"name": OPERATOR_LEASE, "namespace": "kube-nftlb-system"}, "spec": spec})
    assert await why(monkeypatch, kube, None)
    assert "operator kube-nftlb-operator" in capsys.readouterr().out


async def test_a_namespace_may_be_called_like_a_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    kube.put(FARMS, raw_farm("web", namespace="gateway", status=STATUS))
    assert not await why(monkeypatch, kube, "gateway/web")
    assert "farm gateway/web is healthy" in capsys.readouterr().out
    with pytest.raises(errors.UsageError, match="no Service 'x' in the namespace gateway, and no Gateway 'x'"):
        await why(monkeypatch, kube, "gateway/x")


async def test_a_gateway_of_another_controller_is_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    kube.put(GATEWAY_CLASSES, {"metadata": {"name": "x"}, "spec": {"controllerName": "example.com/other"}})
    metadata = {"name": "web", "namespace": "default"}
    kube.put(GATEWAYS, {"kind": "Gateway", "metadata": metadata, "spec": {"gatewayClassName": "x"}})
    assert not await why(monkeypatch, kube, "gateway/web")
    assert capsys.readouterr().out == "gateway default/web is of another controller\n"
