"""Events of EndpointSlices come in protobuf; they say what the JSON of a list says."""

import asyncio
from typing import Any

import pytest

from kube_nftlb import errors, names
from kube_nftlb.endpointslices.slices import SERVED_SLICES, parse_slice
from kube_nftlb.kube.client import Kube, WatchEvent
from kube_nftlb.kube.resources import ENDPOINT_SLICES
from tests.functional.cluster import Cluster

FULL = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "addressType": "IPv6",
    "endpoints": [
        {
            "addresses": ["fd00::1"],
            "conditions": {"ready": False, "serving": True, "terminating": True},
            "hostname": "a",
            "targetRef": {"kind": "Pod", "name": "web-a", "namespace": "default", "uid": "1"},
            "nodeName": "node-1",
            "zone": "a",
            "hints": {"forZones": [{"name": "a"}, {"name": "b"}], "forNodes": [{"name": "node-2"}]},
        },
        {"addresses": ["fd00::2"], "conditions": {}},
    ],
    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 65535, "protocol": "UDP"}],
}


def test_an_event_says_what_the_list_says(cluster: Cluster, namespace: str) -> None:
    metadata = {
        "name": "web-1",
        "namespace": namespace,
        "labels": {names.LABEL_SLICE_SERVICE: "web"},
        "annotations": {names.ANNOTATION_TRIGGER_TIME: "2026-01-01T00:00:00Z"},
    }

    async def both() -> tuple[list[dict[str, Any]], list[WatchEvent]]:
        async with await Kube.connect(cluster.lab.kubeconfig) as kube:
            before = await kube.list(ENDPOINT_SLICES, namespace, label_selector=SERVED_SLICES)
            await kube.create(ENDPOINT_SLICES, {**FULL, "metadata": metadata}, namespace)
            listed = (await kube.list(ENDPOINT_SLICES, namespace, label_selector=SERVED_SLICES)).items
            await kube.delete(ENDPOINT_SLICES, "web-1", namespace)
            events: list[WatchEvent] = []
            async with asyncio.timeout(30):
                async for event in kube.watch(
                    ENDPOINT_SLICES, before.resource_version, namespace=namespace, label_selector=SERVED_SLICES
                ):
                    events.append(event)
                    if event.type == "DELETED":
                        break
            return listed, events

    [listed], (added, deleted) = asyncio.run(both())
    assert (added.type, deleted.type) == ("ADDED", "DELETED")
    assert parse_slice(added.object) == parse_slice(listed)
    read = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations")
    assert added.object["metadata"] == {key: listed["metadata"][key] for key in read}
    assert int(deleted.object["metadata"]["resourceVersion"]) > int(listed["metadata"]["resourceVersion"])


def test_a_refused_watch_says_why(cluster: Cluster) -> None:
    async def watch() -> None:
        async with await Kube.connect(cluster.lab.kubeconfig) as kube, asyncio.timeout(30):
            async for _ in kube.watch(ENDPOINT_SLICES, "nonsense"):
                pass

    with pytest.raises(errors.KubeError, match="resourceVersion: Invalid value"):
        asyncio.run(watch())
