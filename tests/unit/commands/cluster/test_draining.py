"""The actions and messages of ``drain`` as it counts, with an API server in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import draining
from kube_nftlb.commands.cluster.draining import DrainOptions, drain, undrain
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    ENDPOINT_SLICES,
    FARMS,
    NFTLB_NODES,
    NODES,
    PODS,
    JsonObject,
    Resource,
)
from tests.builders import (
    endpoint,
    raw_backend,
    raw_farm,
    raw_nftlb_node,
    raw_node,
    raw_pod,
    raw_route_farm,
    raw_service_farm,
    raw_slice,
)
from tests.builders.pools import raw_pool
from tests.fakes.kube import FakeKube

HERE = Target(namespace="default")


class OneNamespace(FakeKube):
    """Refuses what is not in a namespace."""

    async def list(self, resource: Resource, namespace: str | None = None, **rest: Any) -> Listing:
        if namespace is None:
            raise errors.KubeError(403, "Forbidden", f"cannot list {resource.plural}")
        return await super().list(resource, namespace, **rest)


def connect(monkeypatch: pytest.MonkeyPatch, kube: FakeKube) -> None:
    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(draining, "connected", connected)
    kube.put(FARMS, farm())


def farm() -> JsonObject:
    return raw_farm("hand", backends=[raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")])


async def test_who_may_not_see_nodes_drains_without_a_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = OneNamespace()
    connect(monkeypatch, kube)
    assert not await drain(HERE, "a", DrainOptions())
    said = capsys.readouterr().err
    assert "backend default/a drains" in said
    assert "open connections are not counted: you may not list NftlbNodes" in said
    (backend,) = kube.writes[0].body["spec"]["backends"]
    assert backend == {"name": "a", "state": "drain"}


async def test_connections_that_a_node_does_not_list_may_be_open(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    report = raw_nftlb_node()
    others = [{"ip": "10.0.0.1", "port": 80, "connections": 9}]
    report["status"]["draining"] = {"watermark": "1000", "backends": 101, "connections": 10, "busiest": others}
    kube.put(NFTLB_NODES, report)
    assert await drain(HERE, "a", DrainOptions(timeout_s=0.0))
    assert "at least 0 connections are open: not all are known of n1" in capsys.readouterr().err


async def test_the_addresses_of_a_node_leave_first_also_if_it_has_no_backends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NODES, raw_node("n1"))
    kube.put(ADDRESS_POOLS, raw_pool())
    kube.put(NFTLB_NODES, raw_nftlb_node("n1"))
    assert not await drain(HERE, "n1", DrainOptions())
    assert "node n1 announces no addresses" in capsys.readouterr().err
    await undrain(HERE, "n1")
    written = [each.body["metadata"]["annotations"] for each in kube.writes if each.resource is NODES]
    assert written == [{"kube-nftlb.io/drains": "true"}, {"kube-nftlb.io/drains": None}]


async def test_without_pools_a_node_without_backends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NODES, raw_node("n1"))
    with pytest.raises(errors.UsageError, match="no farm has a backend there"):
        await drain(HERE, "n1", DrainOptions())


async def test_a_backend_also_drains_for_routes_of_other_namespaces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    group = {"namespace": "default", "service": "web", "port": "http"}
    kube.put(FARMS, raw_route_farm("made", namespace="edge", backendsFrom=[group]))
    kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.5", "pod-a"), endpoint("10.244.1.6", "pod-b")))
    kube.put(PODS, raw_pod("pod-a"))
    assert not await drain(HERE, "pod-a", DrainOptions(wait=False))
    assert "no new connections of edge/made" in capsys.readouterr().err
    assert [(write.resource, write.name) for write in kube.writes] == [(PODS, "pod-a")]


async def test_a_pod_that_goes_meanwhile_keeps_no_other_from_being_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NODES, raw_node("n1"))
    kube.put(FARMS, raw_service_farm())
    kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.2", "a", node="n1"), endpoint("10.244.1.3", "b", node="n1")))
    kube.put(PODS, {"metadata": {"name": "a", "namespace": "default"}})
    await drain(HERE, "node/n1", DrainOptions(force=True, wait=False))
    await undrain(HERE, "node/n1")
    assert [each.name for each in kube.writes if each.resource is PODS] == ["a", "a"]
