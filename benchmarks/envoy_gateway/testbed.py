"""A lab in which kube-nftlb and Envoy Gateway serve Gateways, each those of a class of its own."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import yaml

from benchmarks import cluster
from benchmarks.cluster import CLIENT_POD
from benchmarks.envoy_gateway import build, process
from benchmarks.envoy_gateway.build import Programs
from kube_nftlb import errors, names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    CRDS,
    GATEWAY_CLASSES,
    GATEWAYS,
    NAMESPACES,
    SERVICES,
    TCP_ROUTES,
    JsonObject,
    Resource,
)
from lab.lab import Lab
from lab.traffic import command
from lab.traffic.ask import Target, ask_tcp

OURS: Final = "kube-nftlb"
PEER: Final = "envoy"
SUBJECTS: Final = (OURS, PEER)
TENANT: Final = "tenant"
OLD, NEW = "old", "new"
"""Services with two pods each."""

_ENVOY_PROXIES = Resource("gateway.envoyproxy.io", "v1alpha1", "EnvoyProxy", "envoyproxies")
_CONTROLLERS: Final = {OURS: f"{names.GROUP}/gateway", PEER: "gateway.envoyproxy.io/gatewayclass-controller"}
_ON: Final = {"KUBE_NFTLB_ADDRESSES": "on"}
_OPERATOR: Final = {**_ON, "KUBE_NFTLB_GATEWAY": "on", "KUBE_NFTLB_DEFAULT_ENGINE": "nftables"}
_FIRST_PORT = 8000
_TIMEOUT_S, _PATIENCE_S, _PAUSE_S, _BEFORE_S = 5.0, 60, 0.002, 0.3


class Asked(NamedTuple):
    """A request: when it began and ended, in ns of CLOCK_MONOTONIC, and the pod that answered; empty if none did."""

    began: int
    ended: int
    pod: str


class Testbed(NamedTuple):
    """The lab, and the address of the pod in which Envoy runs."""

    lab: Lab
    kube: Kube
    envoy: str

    def target(self, subject: str, number: int) -> Target:
        """Return where a Gateway listens: kube-nftlb's have an address each, Envoy's a port."""
        if subject == OURS:
            return Target(f"172.31.0.{100 + number}", 80, _TIMEOUT_S)
        return Target(self.envoy, _FIRST_PORT + number, _TIMEOUT_S)

    async def add(self, subject: str, number: int, *backends: JsonObject, namespace: str = "default") -> None:
        """Create a Gateway and its route."""
        name, target = f"{subject}-{number}", self.target(subject, number)
        addresses = {"addresses": [{"type": "IPAddress", "value": target.host}]} if subject == OURS else {}
        listeners = [{"name": "tcp", "protocol": "TCP", "port": target.port}]
        await create(self.kube, GATEWAYS, name, namespace, gatewayClassName=subject, listeners=listeners, **addresses)
        rules = [{"backendRefs": list(backends)}]
        await create(self.kube, TCP_ROUTES, name, namespace, parentRefs=[{"name": name}], rules=rules)

    async def answers(self, target: Target) -> int:
        """Return when a pod first answered, in ns of CLOCK_MONOTONIC. Raises LabError."""
        asking = ["until-answers", target.host, str(target.port), "--interval-ms", "5", "--timeout", str(_PATIENCE_S)]
        met = await asyncio.to_thread(self.lab.inside, CLIENT_POD, lambda: command.run(asking))
        if not met["answered"]:
            raise errors.LabError(f"no answer at {target.host}:{target.port} within {_PATIENCE_S} s")
        at: int = met["monotonic_ns"]
        return at

    @contextlib.asynccontextmanager
    async def asking(self, target: Target) -> AsyncIterator[list[Asked]]:
        """Send one request after another during the block, which gets a list of those that have ended so far."""
        asked: list[Asked] = []
        stop = threading.Event()
        thread = asyncio.create_task(asyncio.to_thread(self.lab.inside, CLIENT_POD, lambda: ask(target, asked, stop)))
        try:
            await asyncio.sleep(_BEFORE_S)
            yield asked
        finally:
            stop.set()
            await thread


def ask(target: Target, asked: list[Asked], stop: threading.Event, number: int | None = None) -> None:
    """Send one request after another, until ``stop`` or so many."""
    while not stop.is_set() and len(asked) != number:
        began = time.monotonic_ns()
        try:
            pod = ask_tcp(target).pod
        except (OSError, ValueError):
            pod = ""
        asked.append(Asked(began, time.monotonic_ns(), pod))
        time.sleep(_PAUSE_S)


@contextlib.asynccontextmanager
async def running(programs: Programs) -> AsyncIterator[Testbed]:
    """Start the lab and Envoy Gateway."""
    settings = {"operator": _OPERATOR, "agent": _ON}
    lab = await asyncio.to_thread(Lab.up, "bench-gateways", settings=settings, gateway_api=True)
    try:
        async with await Kube.connect(lab.kubeconfig) as kube:
            await _set_up(kube, programs)
            ((pod, address),) = (await cluster.pods_of(kube, PEER)).items()
            with process.running(lab, f"default/{pod}", programs):
                yield Testbed(lab, kube, address)
    finally:
        await asyncio.to_thread(lab.down)


async def create(kube: Kube, resource: Resource, name: str, namespace: str | None = None, **spec: Any) -> None:
    """Create an object with a spec."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    await kube.create(resource, body, namespace)


async def _served(kube: Kube, resource: Resource) -> bool:
    with contextlib.suppress(errors.NotFoundError):
        await kube.list(resource)
        return True
    return False


async def _set_up(kube: Kube, programs: Programs) -> None:
    await kube.create(CRDS, yaml.safe_load(programs.crd.read_text()))
    await cluster.run_pods(kube, {OLD: 2, NEW: 2, PEER: 1})
    async with asyncio.timeout(_PATIENCE_S):
        while not await _served(kube, _ENVOY_PROXIES):  # noqa: ASYNC110 - the API server serves a new kind later
            await asyncio.sleep(0.2)
    await create(kube, NAMESPACES, process.NAMESPACE)
    host = {"type": "Host", "host": {"envoyVersion": build.envoy_version()}}
    quiet = {"accessLog": {"disable": True}}
    # One Envoy for all Gateways, without a line for each connection: neither its start nor its log is what is compared.
    await create(kube, _ENVOY_PROXIES, PEER, "default", mergeGateways=True, provider=host, telemetry=quiet)
    of_peer = {"group": _ENVOY_PROXIES.group, "kind": _ENVOY_PROXIES.kind, "name": PEER, "namespace": "default"}
    parameters: dict[str, JsonObject] = {OURS: {}, PEER: {"parametersRef": of_peer}}
    for subject, controller in _CONTROLLERS.items():
        await create(kube, GATEWAY_CLASSES, subject, controllerName=controller, **parameters[subject])
    await create(kube, ADDRESS_POOLS, "segment", ranges=["172.31.0.100-172.31.0.199"])
    await create(kube, NAMESPACES, TENANT)
    for number, name in enumerate((OLD, NEW)):
        await kube.create(SERVICES, cluster.service(name, cluster.vip(200, number), name), "default")
