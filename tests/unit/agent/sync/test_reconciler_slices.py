"""The loop follows EndpointSlices."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from kube_nftlb import metrics
from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.endpointslices.index import SliceIndex
from kube_nftlb.endpointslices.slices import Slice
from tests.builders import endpoint, endpoint_slice, farm, raw_policy
from tests.unit.agent.sync.conftest import Node

FROM_WEB: dict[str, Any] = {"backends": [], "backendsFrom": [{"service": "web", "port": "http"}]}


def slice_of(*ips: str) -> Slice:
    return endpoint_slice(*(endpoint(ip) for ip in ips))


def served(node: Node) -> list[str]:
    return [each.backend.ip for each in node.engine.farms["web--http"].endpoints]


async def test_nothing_is_programmed_before_slices_are_listed(node: Node) -> None:
    node.list([farm(**FROM_WEB)], 10)
    node.put_slice(slice_of("10.244.1.2"), 5)
    await node.settle(10)
    await node.restart_agent(slices=None)
    node.list([farm(**FROM_WEB)], 10)
    await node.passes(3)
    assert served(node) == ["10.244.1.2"]
    node.list_slices([slice_of("10.244.1.3")], 20)
    await node.settle_slices(20)
    assert served(node) == ["10.244.1.3"]


async def test_endpoints_come_and_go_without_a_change_of_the_farm(node: Node) -> None:
    await node.program([farm(**FROM_WEB)], 10)
    assert served(node) == []
    node.put_slice(slice_of("10.244.1.2", "10.244.1.3"), 11)
    await node.settle_slices(11)
    assert served(node) == ["10.244.1.2", "10.244.1.3"]
    node.put_slice(slice_of("10.244.1.3"), 12)
    await node.settle_slices(12)
    assert served(node) == ["10.244.1.3"]
    assert node.loop.progress.watermark == 10


async def test_the_watermark_waits_for_the_farm_and_no_other_does(node: Node) -> None:
    await node.program([farm(**FROM_WEB)], 10)
    node.put_slice(slice_of("10.244.1.2"), 900)
    assert node.loop.progress.slice_watermark < 900
    await node.settle_slices(900)
    await node.change(farm("other--http", version=11, addresses=[{"ip": "10.96.0.11", "ports": "80"}]))


async def test_a_slice_that_is_read_again_since_it_was_cut_takes_no_watermark_back(node: Node) -> None:
    node.state.index.slices = SliceIndex(endpoints_max=1)
    await node.program([farm(**FROM_WEB)], 10)
    other = endpoint_slice(endpoint("10.244.1.9"), name="other-1", service="other")
    node.put_slice(other, 11)
    node.put_slice(slice_of("10.244.1.2"), 12)
    node.state.put_slice(("default", other.name), None, 20, None)
    node.state.slices_seen(20)
    await node.settle_slices(20)
    assert served(node) == []
    node.state.put_slice(("default", "web-1"), slice_of("10.244.1.2"), 12, None)
    while len(node.state.queue):
        assert node.loop.progress.slice_watermark == 20
        await asyncio.sleep(0)
    assert served(node) == ["10.244.1.2"]


async def test_a_restarted_agent_leaves_endpoints_that_are_right(node: Node) -> None:
    each = slice_of("10.244.1.2")
    node.list([farm(**FROM_WEB)], 10)
    node.put_slice(each, 11)
    await node.settle_slices(11)
    commands = len(node.nft.commands)
    await node.restart_agent(slices=[each])
    await node.program([farm(**FROM_WEB)], 12)
    assert served(node) == ["10.244.1.2"]
    assert len(node.nft.commands) == commands


async def test_a_farm_of_the_older_form_gives_way_to_one_by_reference(node: Node) -> None:
    backends = [{"name": "10-244-1-2-8080", "ip": "10.244.1.2", "port": 8080, "nodeName": "n1"}]
    node.put_slice(slice_of("10.244.1.2"), 9)
    await node.program([farm(backends=backends)], 10)
    before = node.engine.farms["web--http"].endpoints
    await node.change(farm(version=11, generation=2, **FROM_WEB))
    assert node.engine.farms["web--http"].endpoints == before


async def test_the_latency_of_an_endpoint_is_measured_on_the_node(node: Node) -> None:
    def count() -> float:
        (family,) = metrics.PROGRAMMING_SECONDS.collect()
        return next(sample.value for sample in family.samples if sample.name.endswith("_count"))

    await node.program([farm(**FROM_WEB)], 10)
    before = count()
    node.put_slice(slice_of("10.244.1.2"), 11, datetime.now(UTC) + timedelta(seconds=1))
    await node.settle_slices(11)
    assert count() == before + 1


async def test_a_policy_applies_to_endpoints_by_reference_too(node: Node) -> None:
    node.state.replace_policies([raw_policy()], 20)
    node.list([farm(policies=["list"], **FROM_WEB)], 20)
    node.put_slice(slice_of("10.244.1.2"), 21)
    await node.settle_slices(21)
    assert served(node) == ["10.244.1.2"]
    assert node.reason() is None


async def test_a_farm_whose_endpoints_change_all_the_time_holds_no_watermark() -> None:
    node = Node(Timing(verify_within_s=-1))
    node.start([])
    await node.program([farm(**FROM_WEB)], 10)
    apply, version = node.engine.apply, 100

    async def applied(changes: FarmChanges) -> Applied:
        nonlocal version
        outcome = await apply(changes)
        version += 1
        node.put_slice(slice_of(f"10.244.1.{version % 50 + 1}"), version)
        await asyncio.sleep(0)
        return outcome

    node.engine.apply = applied  # type: ignore[method-assign]  # noted, and called
    node.put_slice(slice_of("10.244.2.1"), version)
    await node.settle_slices(120)
    await node.stop()
