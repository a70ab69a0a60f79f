"""What the benchmarks put into a lab, and how they wait for it."""

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
"""Of all changes of a run: one that repeats an earlier one would change nothing at the API server."""
_single_numbers = itertools.count()
_WRITERS = 16
_OTHERS, _SINGLES = 1, 240
"""The blocks of their addresses."""
_PODS_READY_WITHIN_S = 300


def vip(block: int, number: int) -> str:
    """The address of a Service by its number; ``block`` is the third octet at which addresses of its kind begin."""
    return f"10.96.{block + number // 250}.{number % 250 + 1}"


def service(
    name: str, vip: str, app: str | None, annotations: Mapping[str, str] | None = None, target_port: int = 80
) -> JsonObject:
    """A Service on port 80; without an app, one whose slices somebody else makes."""
    selector = {"selector": {"app": app}} if app else {}
    port = {"name": "http", "port": 80, "targetPort": target_port}
    return {
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"clusterIP": vip, "ports": [port], **selector},
    }


def endpoint_slice(name: str, addresses: list[str], port: int = 80, protocol: str = "TCP") -> JsonObject:
    """An EndpointSlice of the Service with the same name, all of its endpoints ready."""
    return {
        "metadata": {"name": name, "labels": {names.LABEL_SLICE_SERVICE: name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": protocol}],
        "endpoints": endpoints_of(addresses),
    }


def endpoints_of(addresses: list[str]) -> list[JsonObject]:
    """The endpoints of an EndpointSlice, all of them ready."""
    return [{"addresses": [address], "conditions": {"ready": True}} for address in addresses]


def deployment(name: str, replicas: int, port: int = 80) -> JsonObject:
    """Pods in which the lab's server listens on a port."""
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
    """Deployments with so many pods each, and the client's pod on the first node; returns when all are ready."""
    for name, replicas in deployments.items():
        await kube.create(DEPLOYMENTS, deployment(name, replicas, port), "default")
    spec = {"nodeName": NODE, "containers": [{"name": "client", "image": "client"}]}
    await kube.create(PODS, {"metadata": {"name": "client"}, "spec": spec}, "default")
    async with asyncio.timeout(_PODS_READY_WITHIN_S):
        while await _ready_pods(kube) < sum(deployments.values()) + 1:  # noqa: ASYNC110 - pods are the API server's
            await asyncio.sleep(0.5)


async def pods_of(kube: Kube, app: str) -> dict[str, str]:
    """The names of an app's pods and their IPv4 addresses."""
    items = (await kube.list(PODS, "default", label_selector=f"app={app}")).items
    return {item["metadata"]["name"]: item["status"]["podIP"] for item in items}


def others(number: int, endpoints: int, first: int = 0) -> dict[str, list[str]]:
    """So many Services that nobody asks, by name, with the addresses of their endpoints."""
    return {
        f"other-{each}": [f"10.{100 + entry}.{each // 250}.{each % 250 + 1}" for entry in range(endpoints)]
        for each in range(first, first + number)
    }


async def create_others(kube: Kube, number: int, first: int = 0, endpoints: int = 10) -> None:
    """Create them, each with a slice; their VIPs are in 10.96.0.0/17."""
    todo = iter(enumerate(others(number, endpoints, first).items(), start=first))

    async def writer() -> None:
        for each, (name, addresses) in todo:
            await kube.create(ENDPOINT_SLICES, endpoint_slice(name, addresses), "default")
            await kube.create(SERVICES, service(name, vip(_OTHERS, each), None), "default")

    await asyncio.gather(*(writer() for _ in range(_WRITERS)))


@contextlib.asynccontextmanager
async def steady_change(kube: Kube, slices: Mapping[str, list[str]]) -> AsyncIterator[None]:
    """Ten times a second one endpoint of one of these slices is replaced, as a rolling update does."""
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


async def until(lab: Lab, action: str, vip: str, port: int = 80, timeout_s: float = 60) -> dict[str, Any]:
    """Wait in the client's pod until a VIP answers (``until-answers``) or refuses."""
    arguments = (action, vip, str(port), "--interval-ms", "10", "--timeout", str(timeout_s))
    done = await asyncio.to_thread(lab.exec, CLIENT_POD, *TRAFFIC, *arguments, timeout_s=timeout_s + 30)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def single_vip() -> str:
    """An address in 10.96.240.0/20 for one more Service. One that the API server chose might be another's later."""
    return vip(_SINGLES, next(_single_numbers))


async def until_serves(lab: Lab, kube: Kube, name: str, address: str, within_s: float, port: int = 80) -> None:
    """Create a Service for a server, and wait until its VIP answers. Raises TimeoutError."""
    await kube.create(ENDPOINT_SLICES, endpoint_slice(name, [address], port), "default")
    own = single_vip()
    await kube.create(SERVICES, service(name, own, None), "default")
    if not (await until(lab, "until-answers", own, timeout_s=within_s))["answered"]:
        raise TimeoutError(f"a Service of {lab.proxy} did not answer within {within_s} s")


async def until_in_sync(kube: Kube, within_s: float) -> None:
    """Wait until kube-nftlb's node has everything that there is now. Raises TimeoutError."""
    farms = (await kube.list(FARMS)).items
    # From there on a farm has what it has now; its statuses alone have made it newer.
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
    """How many backends the agent of kube-nftlb's node has brought to the kernel, as it counts them."""

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
