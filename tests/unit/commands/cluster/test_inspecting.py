"""``status --wait --service``: what counts for a Service, how long it waits, and the connections that it opens."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import connections, inspecting
from kube_nftlb.commands.cluster.connections import Target as Destination
from kube_nftlb.commands.cluster.connections import Tried
from kube_nftlb.commands.cluster.inspecting import StatusOptions
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import FARMS, NFTLB_NODES, NODES, SERVICES, JsonObject, Resource
from tests.builders import raw_farm, raw_node, raw_service_farm
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
