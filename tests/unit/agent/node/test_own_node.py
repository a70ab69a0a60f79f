"""The agent's own Node: what is read of it, and when a change is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kube_nftlb.agent.node.own_node import OwnNode, watch_own_node
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.kube.resources import NODES
from tests.fakes.kube import FakeKube


def _raw(version: int, **changes: Any) -> dict[str, Any]:
    metadata = {"name": "node-1", "uid": "u", "resourceVersion": str(version), **changes.pop("metadata", {})}
    return {"metadata": metadata, **changes}


def test_what_is_read_of_a_node() -> None:
    node = CoreNode.model_validate(
        _raw(
            1,
            metadata={"labels": {"topology.kubernetes.io/zone": "a"}, "annotations": {"x": "y"}},
            spec={"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"], "taints": [{"key": "t"}]},
            status={"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "capacity": {"cpu": "1"}},
        )
    )
    assert node.metadata.labels == {"topology.kubernetes.io/zone": "a"}
    assert node.spec.pod_cidrs == ("10.1.0.0/24", "fd00::/64")
    assert [taint.key for taint in node.spec.taints] == ["t"]
    assert [(address.type, address.address) for address in node.status.addresses] == [("InternalIP", "192.0.2.1")]


def test_a_node_without_lists_is_read() -> None:
    node = CoreNode.model_validate(_raw(1, spec={"podCIDRs": None, "taints": None}, status={"addresses": None}))
    assert (node.spec.pod_cidrs, node.spec.taints, node.status.addresses) == ((), (), ())


@contextlib.asynccontextmanager
async def watched(kube: FakeKube) -> AsyncIterator[tuple[OwnNode, list[CoreNode | None]]]:
    own_node, told = OwnNode("node-1"), list[CoreNode | None]()
    own_node.subscribe(lambda: told.append(own_node.current))
    task = asyncio.create_task(watch_own_node(kube, own_node))
    await kube.delivered()
    try:
        yield own_node, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_changes_are_told_and_heartbeats_are_not() -> None:
    tainted = _raw(4, spec={"taints": [{"key": "t", "effect": "NoSchedule"}]})
    kube = FakeKube()
    kube.put(NODES, _raw(1))
    async with watched(kube) as (own_node, told):
        kube.put(NODES, _raw(2, status={"conditions": [{"type": "Ready"}]}))
        kube.bookmark(3)
        kube.put(NODES, tainted)
        await kube.delivered()
    assert told == [CoreNode.model_validate(_raw(1)), CoreNode.model_validate(tainted)]
    assert own_node.current == told[-1]
    assert kube.lists == [(None, "metadata.name=node-1")]


async def test_a_node_that_is_not_there_is_known_not_to_be() -> None:
    assert not OwnNode("node-1").known
    async with watched(FakeKube()) as (own_node, told):
        assert own_node.known
        assert told == [None]


async def test_a_deleted_node_is_gone() -> None:
    kube = FakeKube()
    kube.put(NODES, _raw(1))
    async with watched(kube) as (own_node, told):
        kube.remove(NODES, "node-1", version=2)
        await kube.delivered()
        assert own_node.current is None
        assert len(told) == 2


async def test_a_node_that_cannot_be_read_leaves_the_last_one() -> None:
    kube = FakeKube()
    kube.put(NODES, _raw(1))
    async with watched(kube) as (own_node, told):
        kube.put(NODES, _raw(2, spec={"taints": "all"}))
        await kube.delivered()
        assert told == [CoreNode.model_validate(_raw(1))]
        assert own_node.current == told[0]
