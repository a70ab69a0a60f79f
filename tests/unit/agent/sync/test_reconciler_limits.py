"""The loop and what the administrator allows."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.api.conflicts import FarmKey, farm_key
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.limits import NamespaceLimits
from tests.builders import farm, raw_policy
from tests.fakes.node import until
from tests.unit.agent.sync.conftest import Node


@pytest.fixture
async def small() -> AsyncIterator[Node]:
    """A node that allows a farm 120 elements, and a namespace 230."""
    node = Node(limits=NamespaceLimits(farm_elements=120, elements=230))
    node.start([])
    yield node
    await node.stop()


def sized(name: str, ports: int, day: int, version: int, **fields: Any) -> Farm:
    """A farm with so many ports, each of which has 14 elements."""
    addresses = [{"ip": f"10.96.1.{day}", "ports": f"1001-{1000 + ports}"}]
    return farm(name, addresses=addresses, created=f"2026-01-{day:02}T00:00:00Z", version=version, **fields)


async def test_one_farm_with_too_many_elements_is_not_served(small: Node) -> None:
    small.list([sized("good", 5, 2, 10), sized("large", 9, 1, 11)], 20)
    await small.settle(20)
    assert list(small.engine.farms) == ["good"]
    assert small.reason("large") == "TooManyElements"
    assert "administrator allows 120" in small.loop.progress.problems[FarmKey("default", "large")].message


async def test_the_oldest_farms_of_a_namespace_are_served_and_others_when_there_is_room(small: Node) -> None:
    farms = [sized(f"f{day}", 5, day, 10 + day) for day in (1, 2, 3, 4)]
    small.list([*farms, farm("other", namespace="quiet", addresses=[{"ip": "10.96.2.1", "ports": "80"}])], 20)
    await small.settle(20)
    assert sorted(small.engine.farms) == ["f1", "f2", "f3", "quiet.other"]
    assert small.reason("f4") == "TooManyElements"
    small.put(sized("f2", 8, 2, 21, generation=2))
    await until(lambda: "f3" not in small.engine.farms)
    small.remove(FarmKey("default", "f1"), 22)
    await until(lambda: sorted(small.engine.farms) == ["f2", "f3", "quiet.other"])
    small.put(sized("f2", 1, 2, 23, generation=3))
    await until(lambda: sorted(small.engine.farms) == ["f2", "f3", "f4", "quiet.other"])
    await until(lambda: not small.loop.progress.problems)


async def test_it_is_the_same_after_a_restart(small: Node) -> None:
    farms = [sized(f"f{day}", 5, day, 10 + day) for day in (4, 3, 2, 1)]
    small.list(farms, 20)
    await small.settle(20)
    changes = len(small.engine.changes)
    await small.restart_agent()
    small.list(farms, 20)
    await small.settle(20)
    assert sorted(small.engine.farms) == ["f1", "f2", "f3"]
    assert changes


async def test_a_policy_beyond_the_limit_lets_nobody_in_and_says_so(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([farm(policies=["list"])], 20)
    node.state.refuse_policy(PolicyKey("default", "list"))
    await until(lambda: bool(node.loop.progress.problems))
    assert node.reason() == "PolicyInvalid"
    (problem,) = node.loop.progress.problems.values()
    assert "exceeds the limits of its namespace" in problem.message
    node.state.put_policy(raw_policy(version=30))
    await until(lambda: not node.loop.progress.problems)


@pytest.mark.parametrize("what", ["farm", "unreadable farm", "policy"])
async def test_what_fits_its_budget_again_takes_no_watermark_back(node: Node, what: str) -> None:
    await node.program([farm(policies=["list"], version=899)], 900)
    node.state.put_policy(raw_policy(name="other", version=900))
    await until(lambda: node.loop.progress.policy_watermark == 900 and node.loop.settled)
    added = farm("other--http", version=12, addresses=[{"ip": "10.96.0.11", "ports": "80"}])
    if what == "farm":
        node.state.put(added)
    elif what == "unreadable farm":
        node.state.put_unreadable(farm_key(added), Problem("Invalid", "spec.mode: what"), 12)
    else:
        node.state.put_policy(raw_policy(version=12))
    assert node.state.has_work
    while not node.loop.settled:
        assert (node.loop.progress.watermark, node.state.policies.watermark) == (900, 900)
        await asyncio.sleep(0)
    assert what == "policy" or node.loop.progress.changed_at <= 900, "nobody waits for a version that may not come"
