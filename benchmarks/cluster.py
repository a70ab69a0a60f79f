"""Create objects in a lab, and wait for their effects."""

import asyncio
import contextlib
import itertools
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kube_nftlb import names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, PODS, SERVICES, JsonObject, Resource
from lab.lab import Lab

NODE = "node-1"
CLIENT_POD = "default/client"
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
MODE = "service.kubernetes.io/kube-nftlb-load-balancer-mode"
SCHEDULER = "service.kubernetes.io/kube-nftlb-load-balancer-scheduler"
TRAFFIC = (sys.executable, "-m", "lab.traffic")
CHANGES_PER_S = 10

_numbers = itertools.count()
"""Counts all changes of a run: a repeated change would be a no-op at the API server."""
_single_numbers = itertools.count()
_WRITERS = 16
_OTHERS, _SINGLES = 1, 240
"""The third octets at which their address blocks begin."""
_PODS_READY_WITHIN_S = 300


def vip(block: int, number: int) -> str:
    """Return the address of a Service by its number; ``block`` is the third octet of the first address of its kind."""
    return f"10.96.{block + number // 250}.{number % 250 + 1}"


def service(
    name: str, vip: str, app: str | None, annotations: Mapping[str, str] | None = None, target_port: int = 80
) -> JsonObject:
    """Return a Service on port 80; without an app, one whose slices are created by the caller."""
    selector = {"selector": {"app": app}} if app else {}
    port = {"name": "http", "port": 80, "targetPort": target_port}
    return {
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"clusterIP": vip, "ports": [port], **selector},
    }


def endpoint_slice(name: str, addresses: list[str], port: int = 80, protocol: str = "TCP") -> JsonObject:
    """Return an EndpointSlice of the Service with the same name, with ready endpoints."""
    return {
        "metadata": {"name": name, "labels": {names.LABEL_SLICE_SERVICE: name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": protocol}],
        "endpoints": endpoints_of(addresses),
    }


def endpoints_of(addresses: list[str]) -> list[JsonObject]:
    """Return ready endpoints of an EndpointSlice."""
    return [{"addresses": [address], "conditions": {"ready": True}} for address in addresses]


def deployment(name: str, replicas: int, port: int = 80) -> JsonObject:
    """Return a Deployment of pods in which the lab's server listens on a port."""
    labels = {"app": name}
    container = {"name": "server", "image": "server", "ports": [{"containerPort": port}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def run_pods(kube: Kube, deployments: Mapping[str, int], port: int = 80) -> None:
    """Create Deployments of these sizes and the client's pod on the first node, and wait until all pods are ready."""
    for name, replicas in deployments.items():
        await kube.create(DEPLOYMENTS, deployment(name, replicas, port), "default")
    spec = {"nodeName": NODE, "containers": [{"name": "client", "image": "client"}]}
    await kube.create(PODS, {"metadata": {"name": "client"}, "spec": spec}, "default")
    async with asyncio.timeout(_PODS_READY_WITHIN_S):
        while await _ready_pods(kube) < sum(deployments.values()) + 1:  # noqa: ASYNC110 - pods are the API server's
            await asyncio.sleep(0.5)


async def pods_of(kube: Kube, app: str) -> dict[str, str]:
    """Return the names of an app's pods with their IPv4 addresses."""
    items = (await kube.list(PODS, "default", label_selector=f"app={app}")).items
    return {item["metadata"]["name"]: item["status"]["podIP"] for item in items}


def others(number: int, endpoints: int, first: int = 0) -> dict[str, list[str]]:
    """Return idle Services by name, with the addresses of their endpoints."""
    return {
        f"other-{each}": [f"10.{100 + entry}.{each // 250}.{each % 250 + 1}" for entry in range(endpoints)]
        for each in range(first, first + number)
    }


async def create_others(kube: Kube, number: int, first: int = 0, endpoints: int = 10) -> None:
    """Create them with a slice each; their VIPs are in 10.96.0.0/17."""
    todo = iter(enumerate(others(number, endpoints, first).items(), start=first))

    async def writer() -> None:
        for each, (name, addresses) in todo:
            await kube.create(ENDPOINT_SLICES, endpoint_slice(name, addresses), "default")
            await kube.create(SERVICES, service(name, vip(_OTHERS, each), None), "default")

    await asyncio.gather(*(writer() for _ in range(_WRITERS)))


@contextlib.asynccontextmanager
async def steady_change(kube: Kube, slices: Mapping[str, list[str]]) -> AsyncIterator[None]:
    """Replace one endpoint of one of these slices ten times a second, as in a rolling update."""
    names_of_slices = list(slices)

    async def change() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for done, number in enumerate(_numbers):
            await asyncio.sleep(begin + done / CHANGES_PER_S - loop.time())
            name = names_of_slices[number % len(slices)]
            addresses = [*slices[name][:-1], f"10.250.{number // 250 % 250}.{number % 250 + 1}"]
            await kube.patch(ENDPOINT_SLICES, name, {"endpoints": endpoints_of(addresses)}, "default")

    task = asyncio.create_task(change())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(
    lab: Lab, action: str, vip: str, port: int = 80, timeout_s: float = 60, where: str = CLIENT_POD
) -> dict[str, Any]:
    """Wait, by default in the client's pod, until a VIP answers (``until-answers``) or refuses (``until-refuses``)."""
    arguments = (action, vip, str(port), "--interval-ms", "10", "--timeout", str(timeout_s))
    done = await asyncio.to_thread(lab.exec, where, *TRAFFIC, *arguments, timeout_s=timeout_s + 30)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def single_vip() -> str:
    """Return an address in 10.96.240.0/20 for one more Service; the API server's choice might be reused later."""
    return vip(_SINGLES, next(_single_numbers))


async def until_serves(lab: Lab, kube: Kube, name: str, address: str, within_s: float, port: int = 80) -> None:
    """Create a Service for a server and wait until its VIP answers. Raises TimeoutError."""
    await kube.create(ENDPOINT_SLICES, endpoint_slice(name, [address], port), "default")
    own = single_vip()
    await kube.create(SERVICES, service(name, own, None), "default")
    if not (await until(lab, "until-answers", own, timeout_s=within_s))["answered"]:
        raise TimeoutError(f"a Service did not answer within {within_s} s with {lab.proxy}")


async def until_in_sync(kube: Kube, within_s: float) -> None:
    """Wait until kube-nftlb's node has programmed everything that exists now. Raises TimeoutError."""
    farms = (await kube.list(FARMS)).items
    # From this version on a farm has its current spec; only status updates have changed it since.
    since = (farm.get("status", {}).get("resourceVersion") or farm["metadata"]["resourceVersion"] for farm in farms)
    version = max(map(int, since))
    async with asyncio.timeout(within_s):
        while True:
            status = (await kube.get(NFTLB_NODES, NODE)).get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            if conditions.get("InSync") == "True" and int(status["watermark"]) >= version:
                return
            await asyncio.sleep(1)


def backends_in_kernel(lab: Lab) -> int:
    """Return the number of backends that the agent on kube-nftlb's node reports as programmed."""

    def ask() -> str:
        with urllib.request.urlopen("http://127.0.0.1:9195/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    families = text_string_to_metric_families(lab.inside(NODE, ask))
    samples = (sample for family in families for sample in family.samples)
    return sum(int(sample.value) for sample in samples if sample.name == "kube_nftlb_node_backends")


async def _ready_pods(kube: Kube) -> int:
    return sum(
        any(
            entry["type"] == "Ready" and entry["status"] == "True"
            for entry in pod.get("status", {}).get("conditions", ())
        )
        for pod in (await kube.list(PODS, "default")).items
    )
