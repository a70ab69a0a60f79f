"""The actions and messages of ``drain`` as it counts, with an API server in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import drain_count, draining, node_addresses
from kube_nftlb.commands.cluster.draining import DrainOptions, drain, undrain
from kube_nftlb.commands.cluster.options import Format
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


class Busy(FakeKube):
    """Lets things happen when the nodes' reports are listed for the second time, and each time after that."""

    def __init__(self, *happenings: Callable[[FakeKube], object]) -> None:
        super().__init__()
        self._happenings = [lambda _: None, *happenings]

    async def list(self, resource: Resource, namespace: str | None = None, **rest: Any) -> Listing:
        if resource == NFTLB_NODES and self._happenings:
            self._happenings.pop(0)(self)
        return await super().list(resource, namespace, **rest)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_LOOK_EVERY_S", "_GONE_EVERY_S", "_COUNTED_S", "_TAKEN_OVER_S"):
        monkeypatch.setattr(drain_count, pause, 0.0)


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
    assert "backend default/a is to drain: no new connections of default/hand" in said
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


async def test_when_the_time_is_up_it_says_what_it_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nodes have not had the time to count.
    for pause in ("_COUNTED_S", "_GONE_EVERY_S"):
        monkeypatch.setattr(drain_count, pause, 15.0)
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NFTLB_NODES, counting("n1", {}))
    counted = {"watermark": "1000", "busiest": [{"ip": "10.244.1.2", "port": 8080, "connections": 3}]}
    kube.put(NFTLB_NODES, counting("n2", counted))
    assert await drain(HERE, "a", DrainOptions(timeout_s=0.0))
    assert capsys.readouterr().err.endswith("the time is up: waiting for the count of n1\n")
    kube.put(FARMS, farm())
    assert await drain(HERE, "a", DrainOptions(timeout_s=0.0, output=Format.JSON))
    answer = json.loads(capsys.readouterr().out)
    assert answer["connections"] is None, "nobody knows how many"
    assert (answer["uncountedNodes"], answer["silentNodes"], answer["byNode"]) == (["n1"], [], {"n2": 3})


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


async def test_a_node_is_undrained_though_the_last_pool_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    node = raw_node("n1")
    node["metadata"]["annotations"] = {"kube-nftlb.io/drains": "true"}
    kube.put(NODES, node)
    await undrain(HERE, "n1")
    written = [each.body["metadata"]["annotations"] for each in kube.writes if each.resource is NODES]
    assert written == [{"kube-nftlb.io/drains": None}]


async def test_the_addresses_of_pools_that_are_gone_leave_a_node_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    monkeypatch.setattr(node_addresses, "_PATIENCE_S", 0.0)
    kube.put(NODES, raw_node("n1"))
    report = raw_nftlb_node("n1")
    report["status"]["addresses"] = {"number": 2}
    kube.put(NFTLB_NODES, report)
    await drain(HERE, "n1", DrainOptions())
    written = [each.body["metadata"]["annotations"] for each in kube.writes if each.resource is NODES]
    assert written == [{"kube-nftlb.io/drains": "true"}]


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
    assert not await drain(HERE, "pod-a", DrainOptions(wait=False, output=Format.JSON))
    assert json.loads(capsys.readouterr().out)["connections"] is None, "nobody counts if nobody waits"


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


def counting(name: str, draining: JsonObject) -> JsonObject:
    report = raw_nftlb_node(name)
    report["status"]["draining"] = draining
    return report


def put_drained(kube: FakeKube) -> None:
    """A backend of a Service, whose Pod and farm say that it drains."""
    overrides = [{"pod": "web-0", "state": "drain"}]
    kube.put(FARMS, raw_service_farm(backendsFrom=[{"service": "web", "port": "http", "overrides": overrides}]))
    kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.2", "web-0"), endpoint("10.244.1.3", "web-1")))
    kube.put(PODS, raw_pod("web-0", annotations={"state": "drain"}))


async def test_it_ends_when_the_drained_pod_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def go(kube: FakeKube) -> None:
        kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.3", "web-1")))
        # Now nothing drains.
        kube.put(NFTLB_NODES, counting("n1", {}))

    busiest = [{"ip": "10.244.1.2", "port": 8080, "connections": 3}]
    kube = Busy(go)
    connect(monkeypatch, kube)
    put_drained(kube)
    counted = {"watermark": "1000", "backends": 1, "connections": 3, "busiest": busiest}
    kube.put(NFTLB_NODES, counting("n1", counted))
    assert not await asyncio.wait_for(drain(HERE, "web-0", DrainOptions()), 5)
    assert capsys.readouterr().err.endswith("3 connections are open, through n1\n0 connections are open\n")


async def test_it_says_that_somebody_has_undone_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = Busy(lambda kube: kube.put(FARMS, raw_service_farm()))
    connect(monkeypatch, kube)
    put_drained(kube)
    kube.put(NFTLB_NODES, counting("n1", {}))
    with pytest.raises(errors.UnavailableError, match="web-0 no longer drains"):
        await asyncio.wait_for(drain(HERE, "web-0", DrainOptions()), 5)


async def test_another_state_of_a_farm_written_by_hand_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(FARMS, raw_farm("hand", backends=[raw_backend("a", "10.244.1.2", state="down")]))
    with pytest.raises(errors.UsageError, match="backend a of farm default/hand has the state down, by the farm's"):
        await drain(HERE, "a", DrainOptions(force=True))
    assert kube.writes == []


async def test_the_state_of_one_pod_keeps_no_node_from_being_drained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NODES, raw_node("n1"))
    kube.put(FARMS, raw_service_farm())
    states = {"a": "off", "b": "down", "c": "junk", "d": "up"}
    endpoints = [endpoint(f"10.244.1.{number}", name, node="n1") for number, name in enumerate(states, 2)]
    kube.put(ENDPOINT_SLICES, raw_slice(*endpoints))
    for name, state in states.items():
        kube.put(PODS, raw_pod(name, annotations={"state": state}))
    for name in ("a", "c"):
        with pytest.raises(errors.UsageError, match=f"pod default/{name} has the state"):
            await drain(HERE, f"pod/{name}", DrainOptions(force=True))
    assert not await drain(HERE, "n1", DrainOptions(force=True, wait=False))
    assert [each.name for each in kube.writes] == ["c", "d"]
    assert "pod default/a has the state off, by its annotation" in capsys.readouterr().err


@pytest.mark.parametrize("announces", [False, True])
async def test_a_node_whose_backends_are_out_already_has_an_answer_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, announces: bool
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NODES, raw_node("n1"))
    states = {"a": "off", "b": "down"}
    overrides = [{"pod": name, "state": state} for name, state in states.items()]
    kube.put(FARMS, raw_service_farm(backendsFrom=[{"service": "web", "port": "http", "overrides": overrides}]))
    kube.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.2", "a", node="n1"), endpoint("10.244.1.3", "b", node="n1")))
    for name, state in states.items():
        kube.put(PODS, raw_pod(name, annotations={"state": state}))
    if announces:
        kube.put(ADDRESS_POOLS, raw_pool())
    assert not await drain(HERE, "n1", DrainOptions(output=Format.JSON))
    assert [each.resource for each in kube.writes] == ([NODES] if announces else [])
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "connections": 0,
        "byNode": {},
        "uncountedNodes": [],
        "silentNodes": [],
        "untoldNodes": [],
    }
    assert not said.err
    assert not await drain(HERE, "n1", DrainOptions())
    assert not capsys.readouterr().out


async def test_how_to_undo_it_is_said_before_a_write_that_may_be_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.apply_errors.append(errors.KubeError(403, "Forbidden", "you may not"))
    with pytest.raises(errors.KubeError):
        await drain(HERE, "a", DrainOptions())
    assert capsys.readouterr().err == "undo: kubectl nftlb undrain a\n"


@pytest.mark.parametrize(("manifest", "says"), [("up", "gets connections"), ("drain", "has the state drain")])
async def test_undrain_tells_what_still_drains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], manifest: str, says: str
) -> None:
    class Written(FakeKube):
        """Answers an apply that takes an entry back with the farm as its manifest says."""

        async def apply(self, *args: Any, **options: Any) -> JsonObject:
            await super().apply(*args, **options)
            return raw_farm("hand", backends=[raw_backend("a", "10.244.1.2", state=manifest)])

    kube = Written()
    connect(monkeypatch, kube)
    kube.put(FARMS, raw_farm("hand", backends=[raw_backend("a", "10.244.1.2", state="drain")]))
    await undrain(HERE, "a")
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


async def test_a_silent_agent_is_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(NFTLB_NODES, counting("n1", {"watermark": "1000", "backends": 1}))
    kube.put(NFTLB_NODES, raw_nftlb_node("n2", ready="Unknown", reason="AgentSilent"))
    assert await asyncio.wait_for(drain(HERE, "a", DrainOptions()), 5), "nobody knows of the connections there"
    assert "0 connections are open; unknown on n2, where the agent is silent" in capsys.readouterr().err


@pytest.mark.parametrize("replaced", [False, True])
async def test_the_operator_is_not_to_blame_for_a_pod_that_goes(
    monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    class Going(FakeKube):
        async def patch(self, *args: Any, **options: Any) -> JsonObject:
            done = await super().patch(*args, **options)
            self.remove(PODS, "web-0", "default")
            if replaced:
                self.put(PODS, raw_pod("web-0"))
            self.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.1.3", "web-1")))
            return done

    kube = Going()
    connect(monkeypatch, kube)
    put_drained(kube)
    kube.put(FARMS, raw_service_farm())
    kube.put(PODS, raw_pod("web-0"))
    kube.put(NFTLB_NODES, counting("n1", {}))
    assert not await asyncio.wait_for(drain(HERE, "web-0", DrainOptions()), 5)


class Applying(FakeKube):
    """Keeps which manager drains a pod in the farm ``front``, as server-side apply does."""

    def __init__(self) -> None:
        super().__init__()
        self.managers: list[str] = []

    async def apply(
        self, resource: Resource, body: JsonObject, *, field_manager: str, subresource: str | None = None
    ) -> JsonObject:
        await super().apply(resource, body, field_manager=field_manager, subresource=subresource)
        self.managers = [each for each in self.managers if each != field_manager]
        self.managers += [field_manager] if "spec" in body else []
        return self.put_farm()

    def put_farm(self) -> JsonObject:
        group: JsonObject = {"service": "web", "port": "http"}
        if self.managers:
            group["overrides"] = [{"pod": "web-0", "state": "drain"}]
        front = raw_farm("front", backends=[], backendsFrom=[group])
        front["metadata"]["managedFields"] = [{"manager": each, "operation": "Apply"} for each in self.managers]
        return self.put(FARMS, front)

    def put_pod(self, ip: str, node: str) -> None:
        self.put(
            ENDPOINT_SLICES, raw_slice(endpoint(ip, "web-0", node=node), endpoint("10.244.3.9", "web-1", node="n3"))
        )


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Applying:
    """A cluster in which a pod has drained with its node, by a farm written by hand, and is on another one now."""
    kube = Applying()
    connect(monkeypatch, kube)
    kube.remove(FARMS, "hand", "default")
    kube.put_farm()
    for node in ("n1", "n2"):
        kube.put(NODES, raw_node(node))
    return kube


@pytest.mark.parametrize("name", ["n1", "web-0", "pod/web-0", "n2"])
async def test_undrain_takes_back_what_has_moved_to_another_node(moved: Applying, name: str) -> None:
    moved.put_pod("10.244.1.2", "n1")
    await drain(HERE, "n1", DrainOptions(wait=False))
    assert len(moved.managers) == 1
    moved.put_pod("10.244.2.2", "n2")
    await undrain(HERE, name)
    # The drain of n1 is no business of n2, but its backend is.
    assert moved.managers == []


async def test_undrain_of_a_node_leaves_what_another_drain_has_applied(
    moved: Applying, capsys: pytest.CaptureFixture[str]
) -> None:
    moved.put_pod("10.244.1.2", "n1")
    await drain(HERE, "n1", DrainOptions(wait=False))
    moved.put_pod("10.244.2.2", "n2")
    await drain(HERE, "web-0", DrainOptions(wait=False))
    await undrain(HERE, "n1")
    assert len(moved.managers) == 1
    assert "web-0 of farm default/front still drains, by another drain" in capsys.readouterr().err


async def test_undrain_finds_a_pod_without_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()
    connect(monkeypatch, kube)
    kube.put(PODS, raw_pod("web-0", annotations={"state": "drain"}))
    await undrain(HERE, "pod/web-0")
    assert [each.name for each in kube.writes] == ["web-0"]
    assert capsys.readouterr().err == "pod default/web-0 no longer drains\n"
    with pytest.raises(errors.UsageError, match="no backend or node 'web-7'"):
        await undrain(HERE, "web-7")
