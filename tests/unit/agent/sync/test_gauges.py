"""The gauges that are set for each scrape, by which nothing may be computed that tenants make expensive."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import metrics
from kube_nftlb.agent.status.gauges import Gauges
from kube_nftlb.agent.sync.farm_index import FarmIndex
from kube_nftlb.api.conflicts import Conflicts
from kube_nftlb.api.farm import Farm
from kube_nftlb.endpointslices.slices import Slice
from tests.builders import Grouped, endpoint, endpoint_slice, farm, grouped_farm
from tests.fakes.node import WEB
from tests.unit.agent.sync.conftest import Node

DROPPING = "kube_nftlb_node_farms_without_local_backends"
LOCAL: dict[str, Any] = {"trafficPolicy": "Local", "backends": [], "backendsFrom": [{"service": "web", "port": "http"}]}


@pytest.fixture
def gauge(node: Node) -> Callable[..., float | None]:
    def scraped(name: str, **labels: str) -> float | None:
        Gauges(node.state, node.loop, Path("/nowhere")).refresh()
        return metrics.REGISTRIES["agent"].get_sample_value(name, labels)

    return scraped


def on(*nodes: str) -> Slice:
    return endpoint_slice(*(endpoint(f"10.244.1.{number}", node=each) for number, each in enumerate(nodes, 1)))


def grouped(*nodes: str) -> Farm:
    """A farm with a group for each of these nodes, with an endpoint there."""
    groups = {
        f"web-{number}": Grouped(1, [endpoint(f"10.244.1.{number}", node=each)]) for number, each in enumerate(nodes)
    }
    return grouped_farm(groups=groups, trafficPolicy="Local")


async def test_farms_without_local_backends_follow_endpoints_farms_and_agents(
    node: Node, gauge: Callable[..., float | None]
) -> None:
    node.put_slice(on("node-2"), 5)
    await node.program([farm(**LOCAL), farm("other", addresses=[{"ip": "10.96.0.11", "ports": "80"}])], 10)
    assert gauge(DROPPING) == 1
    node.put_slice(on("node-2", "node-1"), 11)
    await node.settle_slices(11)
    assert gauge(DROPPING) == 0, "one has come to this node"
    node.put_slice(on("node-2"), 12)
    await node.settle_slices(12)
    assert gauge(DROPPING) == 1
    node.put_slice(on(), 13)
    await node.settle_slices(13)
    assert gauge(DROPPING) == 0, "without any backend it refuses connections, and drops none"
    await node.restart_agent(slices=[on("node-2")])
    assert gauge(DROPPING) == 0, "nothing is known yet"
    await node.program([farm(**LOCAL)], 20)
    assert gauge(DROPPING) == 1
    node.remove(WEB, 21)
    await node.settle(21)
    assert gauge(DROPPING) == 0


async def test_a_change_that_is_refused_does_not_count(node: Node, gauge: Callable[..., float | None]) -> None:
    node.put_slice(on("node-1"), 5)
    await node.program([farm(**LOCAL)], 10)
    node.engine.deviations["web--http"] = "the kernel lacks it"
    node.engine.irreparable.add("web--http")
    revert = node.engine.revert

    async def as_it_was(name: str) -> bool:
        node.engine.irreparable.clear()
        node.engine.deviations.clear()
        return await revert(name)

    node.engine.revert = as_it_was  # type: ignore[method-assign]  # what the kernel had it can have again
    node.put_slice(on("node-2"), 11)
    await node.settle_slices(11)
    assert node.engine.reverted == ["web--http"]
    assert gauge(DROPPING) == 0


@pytest.mark.parametrize(
    ("nodes", "dropping"), [(("node-2", "node-2"), 1), (("node-1", "node-2"), 0), (("node-2", "node-1"), 0)]
)
async def test_a_farm_of_two_groups_lacks_local_backends_only_if_neither_has_one(
    node: Node,
    gauge: Callable[..., float | None],
    monkeypatch: pytest.MonkeyPatch,
    nodes: tuple[str, str],
    dropping: int,
) -> None:
    given = grouped(*nodes)
    monkeypatch.setattr(node.state.index, "resolved", lambda _: given)
    await node.program([given], 10)
    assert gauge(DROPPING) == dropping


async def test_addresses_are_counted_by_pool_and_a_pool_that_goes_has_no_series(node: Node) -> None:
    name, pools = "kube_nftlb_node_addresses", Counter({("one", "announced"): 2, ("two", "no_link"): 1})
    gauges = Gauges(node.state, node.loop, Path("/nowhere"), lambda: pools)
    sample = metrics.REGISTRIES["agent"].get_sample_value
    gauges.refresh()
    assert sample(name, {"pool": "one", "state": "announced"}) == 2
    assert sample(name, {"pool": "two", "state": "announced"}) == 0
    del pools["two", "no_link"]
    gauges.refresh()
    assert sample(name, {"pool": "one", "state": "announced"}) == 2
    assert sample(name, {"pool": "two", "state": "announced"}) is None


async def test_a_scrape_decides_on_no_farm(
    node: Node, gauge: Callable[..., float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.put_slice(on("node-2"), 5)
    await node.program([farm(**LOCAL), farm("late", created="2026-01-02T00:00:00Z")], 10)

    def expensive(*_: object) -> None:
        pytest.fail("it may take seconds, in which nobody else has a turn")

    for of, name in ((FarmIndex, "resolved"), (FarmIndex, "facts"), (Conflicts, "get"), (Conflicts, "owner")):
        monkeypatch.setattr(of, name, expensive)
    assert gauge(DROPPING) == 1
    states = ("programmed", "pending", "failed", "refused")
    assert [gauge("kube_nftlb_node_farms", state=each) for each in states] == [1, 0, 0, 1]
    monkeypatch.undo()
    node.remove(WEB, 11)
    await node.settle(11)
    assert [gauge("kube_nftlb_node_farms", state=each) for each in states] == [1, 0, 0, 0], "the other one wins now"
