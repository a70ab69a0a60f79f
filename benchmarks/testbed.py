"""Clusters with servers, Services and proxies for the benchmarks of the data path."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import cluster
from benchmarks.cluster import CLIENT_POD, NODE
from benchmarks.servers import SERVER_PORT, Servers
from kube_nftlb import errors
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES
from lab.lab import Lab

DIRECT = "direct to a pod"
LAB_PORT = 8080
_PROXY_PORTS = {"HAProxy": 9001, "NGINX": 9101}
_TIME_WAIT_S = 2
"""How long conntrack keeps a closed connection. With the default of 120 s its table would fill up."""
_SETTINGS = {
    NODE: {
        f"net/netfilter/nf_conntrack_{kind}": str(_TIME_WAIT_S) for kind in ("tcp_timeout_time_wait", "udp_timeout")
    },
    CLIENT_POD: {"net/ipv4/ip_local_port_range": "1024 65000"},
}
_PROGRAMMED_WITHIN_S = 900


class _Way(NamedTuple):
    """One of our modes, with the scheduler if it is not the default."""

    mode: str
    scheduler: str = ""

    @property
    def name(self) -> str:
        return f"kube-nftlb {self.mode}{self.scheduler and ', '}{self.scheduler}"

    @property
    def annotations(self) -> dict[str, str]:
        return {cluster.MODE: self.mode, **({cluster.SCHEDULER: self.scheduler} if self.scheduler else {})}


# The last chooses at random, as kube-proxy does, which separates the cost of the scheduler from that of the rules.
_WAYS = (_Way("snat"), _Way("dnat"), _Way("dsr"), _Way("dnat", "weight"))


class Subject(NamedTuple):
    """An address to send requests to."""

    name: str
    servers: Servers
    host: str
    port: int = SERVER_PORT


class Place(NamedTuple):
    """A cluster with servers, and a connection to it."""

    lab: Lab
    kube: Kube
    servers: Servers


@contextlib.asynccontextmanager
async def place_of(proxy: str, numbers: tuple[int, ...]) -> AsyncIterator[Place]:
    """Start a cluster with this proxy (or ``none``) and Deployments of these sizes."""
    lab = await asyncio.to_thread(Lab.up, f"bench-datapath-{proxy}", nodes=1, proxy=proxy)
    try:
        with tempfile.TemporaryDirectory(prefix="kube-nftlb-bench-") as folder, contextlib.ExitStack() as stack:
            servers = Servers(lab, Path(folder))
            stack.callback(servers.close)
            async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
                place = Place(lab, kube, servers)
                await cluster.run_pods(kube, {app_of(number): number for number in numbers}, port=LAB_PORT)
                for number in numbers:
                    await _set_up(place, number)
                for where, settings in _SETTINGS.items():
                    for key, value in settings.items():
                        lab.inside(where, lambda key=key, value=value: _set(key, value))  # type: ignore[misc]
                yield place
    finally:
        await asyncio.to_thread(lab.down)


def _set(key: str, value: str) -> None:
    # Exists only in namespaces with connection tracking.
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/sys", key).write_text(value)


async def _set_up(place: Place, number: int) -> None:
    """Set up servers, proxies and Services for a Deployment of this size."""
    app, proxy = app_of(number), place.lab.proxy
    pods = await cluster.pods_of(place.kube, app)
    for pod in pods:
        place.servers.serve(f"default/{pod}")
    if proxy == "none":
        place.servers.proxy_haproxy(NODE, _PROXY_PORTS["HAProxy"] + number, pods.values())
        place.servers.proxy_nginx(NODE, _PROXY_PORTS["NGINX"] + number, pods.values())
        return
    ways = [way.annotations for way in _WAYS] if proxy == "kube-nftlb" else [{}]
    for index, annotations in enumerate(ways):
        body = cluster.service(f"{app}-{index}", _vip(index, number), app, annotations)
        await place.kube.create(SERVICES, body, "default")


async def subjects_of(place: Place, number: int) -> list[Subject]:
    """Return what to send requests to, once all of it answers. Raises LabError."""
    proxy = place.lab.proxy
    if proxy == "none":
        pods = await cluster.pods_of(place.kube, app_of(number))
        node = str(place.lab.nodes[0].addresses[0].ip)
        found = [Subject(DIRECT, place.servers, next(iter(pods.values())))]
        found += [Subject(name, place.servers, node, port + number) for name, port in _PROXY_PORTS.items()]
    elif proxy == "kube-nftlb":
        found = [Subject(way.name, place.servers, _vip(index, number)) for index, way in enumerate(_WAYS)]
    else:
        found = [Subject(proxy, place.servers, _vip(0, number))]
    for subject in found:
        if not (await cluster.until(place.lab, "until-answers", subject.host, subject.port))["answered"]:
            raise errors.LabError(f"{subject.name} does not answer at {subject.host}:{subject.port}")
    return found


async def add_others(place: Place, there: int, number: int) -> None:
    """Add other Services and wait until all of them are in the node's rules."""
    if place.lab.proxy == "none":
        return
    await cluster.create_others(place.kube, number - there, first=there)
    if place.lab.proxy == "kube-nftlb":
        await cluster.until_in_sync(place.kube, _PROGRAMMED_WITHIN_S)
    address = next(iter((await cluster.pods_of(place.kube, app_of(10))).values()))
    await cluster.until_serves(place.lab, place.kube, f"last-{number}", address, _PROGRAMMED_WITHIN_S, LAB_PORT)


def app_of(number: int) -> str:
    """Return the name of the Deployment of this size."""
    return f"web-of-{number}"


def _vip(index: int, number: int) -> str:
    return cluster.vip(200 + index, number)
