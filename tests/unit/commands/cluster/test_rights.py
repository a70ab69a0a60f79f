"""What commands show to users with few rights, such as those of the role view, which has none on Nodes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import draining, inspecting, queries, top
from kube_nftlb.commands.cluster.draining import DrainOptions
from kube_nftlb.commands.cluster.inspecting import StatusOptions
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.commands.cluster.top import TopOptions
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import (
    ENDPOINT_SLICES,
    FARMS,
    NFTLB_NODES,
    NODES,
    SERVICES,
    JsonObject,
    Resource,
)
from tests.builders import endpoint, raw_service, raw_service_farm, raw_slice
from tests.fakes.kube import FakeKube
from tests.unit.commands.cluster.test_findings import node
from tests.unit.commands.cluster.test_inspecting import STATUS

HERE = Target(namespace="default")
NOTE = "you may not list Nodes: those without an NftlbNode are missing here, zones and addresses are unknown\n"


class Viewer(FakeKube):
    """Refuses Nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = {NODES}
        self.put(NFTLB_NODES, node())
        self.put(SERVICES, raw_service())
        self.put(FARMS, raw_service_farm(status=STATUS))
        self.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.2", "web-0", node="n1")))

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource in self.refused:
            # Others are answered first.
            await asyncio.sleep(0 if resource == NODES else 0.1)
            raise errors.KubeError(403, "Forbidden", f"{resource.plural} is forbidden")
        return await super().list(resource, namespace, **options)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        if resource == NODES:
            raise errors.KubeError(403, "Forbidden", "nodes is forbidden")
        return await super().get(resource, name, namespace)


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> Viewer:
    kube = Viewer()

    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[Viewer]:
        yield kube

    for module in (draining, inspecting, top):
        monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(inspecting, "_AGAIN_S", 0)
    queries._note_once.cache_clear()  # noqa: SLF001 - each test is a command of its own
    return kube


@pytest.mark.usefixtures("kube")
async def test_status_has_the_nodes_with_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert not await inspecting.status(HERE, StatusOptions())
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split()[:3] == ["n1", "ready", "yes"]
    assert shown.err == NOTE


async def test_status_says_once_what_is_missing_however_often_it_looks(
    kube: Viewer, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.put(FARMS, raw_service_farm(status={"conditions": [], "totalBackends": 1}))
    refused = "NoReadyBackends: its only backend is not ready"
    farm = raw_service_farm(status={**STATUS, "readyBackends": 0, "reason": refused})
    kube.put(FARMS, farm)
    assert await inspecting.status(HERE, StatusOptions(wait_s=0.05))
    assert capsys.readouterr().err == NOTE


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda: inspecting.status(HERE, StatusOptions()), id="status"),
        pytest.param(lambda: inspecting.get(HERE, "web", Format.TEXT), id="get"),
    ],
)
async def test_nothing_is_said_of_nodes_to_who_may_not_see_farms(
    kube: Viewer, capsys: pytest.CaptureFixture[str], command: Callable[[], Awaitable[Any]]
) -> None:
    kube.refused.add(FARMS)
    with pytest.raises(errors.KubeError, match="nftlbfarms is forbidden"):
        await command()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("kube")
async def test_get_shows_what_nodes_do(capsys: pytest.CaptureFixture[str]) -> None:
    await inspecting.get(HERE, "web", Format.TEXT)
    shown = capsys.readouterr()
    assert "n1  serves" in shown.out
    assert "web-0 10.244.1.2:8080 on n1: connections" in shown.out
    assert shown.err == NOTE


async def test_top_asks_the_nodes_with_an_agent(kube: Viewer) -> None:
    kube.put(NFTLB_NODES, node())
    with pytest.raises(errors.UsageError, match="there is no node 'n2'"):
        await top.top(HERE, TopOptions(nodes=("n2",)))
    with pytest.raises(errors.UnavailableError, match="n1: exit status 1"):
        await top.top(HERE, TopOptions(node_command="false {node}"))
    kube.remove(NFTLB_NODES, "n1")
    with pytest.raises(errors.UnavailableError, match="no node reports its traffic: there is none"):
        await top.top(HERE, TopOptions(node_command="false {node}"))


@pytest.mark.usefixtures("kube")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "node-2",
            "no backend 'node-2' (namespace default); whether it is a node is not known: you may not read Nodes",
        ),
        ("node/n1", "you may not read Nodes, of which this needs one"),
    ],
)
async def test_drain_does_not_say_that_there_is_no_node_that_it_may_not_see(name: str, expected: str) -> None:
    for command in (draining.undrain(HERE, name), draining.drain(HERE, name, DrainOptions())):
        with pytest.raises(errors.UnavailableError) as caught:
            await command
        assert str(caught.value) == expected
