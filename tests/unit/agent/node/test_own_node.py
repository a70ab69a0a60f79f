"""The agent's own Node: what is read of it, and when a change is told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from kube_nftlb.agent.node.own_node import OwnNode, watch_own_node
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.kube.client import Listing, WatchEvent
from kube_nftlb.kube.resources import Resource


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


class Api:
    """One list, then the events of one watch; then nothing more happens."""

    def __init__(self, items: list[dict[str, Any]], events: list[WatchEvent]) -> None:
        self._items = items
        self._events = events
        self.selectors: list[str | None] = []
        self.done = asyncio.Event()

    async def list(self, resource: Resource, namespace: str | None, **selectors: str | None) -> Listing:
        self.selectors.append(selectors["field_selector"])
        return Listing(self._items, "1")

    async def watch(
        self, resource: Resource, resource_version: str, *, namespace: str | None, **selectors: str | None
    ) -> AsyncIterator[WatchEvent]:
        for event in self._events:
            yield event
        self.done.set()
        await asyncio.Event().wait()


async def _watched(api: Api) -> tuple[OwnNode, list[CoreNode | None]]:
    own_node, told = OwnNode("node-1"), list[CoreNode | None]()
    own_node.subscribe(lambda: told.append(own_node.current))
    task = asyncio.create_task(watch_own_node(api, own_node))  # type: ignore[arg-type]  # what follow() calls of Kube
    await api.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return own_node, told


async def test_changes_are_told_and_heartbeats_are_not() -> None:
    tainted = _raw(4, spec={"taints": [{"key": "t", "effect": "NoSchedule"}]})
    api = Api(
        [_raw(1)],
        [
            WatchEvent("MODIFIED", _raw(2, status={"conditions": [{"type": "Ready"}]})),
            WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "3"}}),
            WatchEvent("MODIFIED", tainted),
        ],
    )
    own_node, told = await _watched(api)
    assert told == [CoreNode.model_validate(_raw(1)), CoreNode.model_validate(tainted)]
    assert own_node.current == told[-1]
    assert api.selectors == ["metadata.name=node-1"]


async def test_a_node_that_is_not_there_is_known_not_to_be() -> None:
    assert not OwnNode("node-1").known
    own_node, told = await _watched(Api([], []))
    assert own_node.known
    assert told == [None]


async def test_a_deleted_node_is_gone() -> None:
    own_node, told = await _watched(Api([_raw(1)], [WatchEvent("DELETED", _raw(2))]))
    assert own_node.current is None
    assert len(told) == 2


async def test_a_node_that_cannot_be_read_leaves_the_last_one() -> None:
    own_node, told = await _watched(Api([_raw(1)], [WatchEvent("MODIFIED", _raw(2, spec={"taints": "all"}))]))
    assert told == [CoreNode.model_validate(_raw(1))]
    assert own_node.current == told[0]
