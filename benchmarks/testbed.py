"""Clusters with servers, Services and proxies for the benchmarks of the data path."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import cluster
from benchmarks.cluster import CLIENT_POD, NODE
from benchmarks.servers import SERVER_PORT, Servers
from benchmarks.subjects import NFTABLES, NFTLB, NONE, Subject
from kube_nftlb import errors
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES
from lab.lab import Lab

DIRECT = "direct to a pod"
STATIC = "one static rule"
"""A ruleset with one rule, which translates to one server: the limit of what any proxy can do with nftables."""
LAB_PORT = 8080
_PROXY_PORTS = {"HAProxy": 9001, "NGINX": 9101}
_TIME_WAIT_S = 2
"""Time in seconds that conntrack keeps a closed connection. With the default of 120 s its table would fill up."""
_NO_TIME_WAIT = {"net/ipv4/tcp_max_tw_buckets": "0"}
_SETTINGS = {
    NODE: {
        f"net/netfilter/nf_conntrack_{kind}": str(_TIME_WAIT_S) for kind in ("tcp_timeout_time_wait", "udp_timeout")
    },
    # A client that closes first keeps its port for 60 s: at 10,000 connections a second it would soon have none.
    CLIENT_POD: {"net/ipv4/ip_local_port_range": "1024 65000", **_NO_TIME_WAIT},
}
_PROGRAMMED_WITHIN_S = 900


class _Way(NamedTuple):
    """One of our modes, with the scheduler if it is not the default."""

    mode: str
    scheduler: str = ""

    def name(self, subject: Subject) -> str:
        return f"{subject.name} {self.mode}{self.scheduler and ', '}{self.scheduler}"

    @property
    def annotations(self) -> dict[str, str]:
        return {cluster.MODE: self.mode, **({cluster.SCHEDULER: self.scheduler} if self.scheduler else {})}


# The last chooses at random, as kube-proxy does, which separates the cost of the scheduler from that of the rules.
_WAYS = {
    NFTLB: (_Way("snat"), _Way("dnat"), _Way("dsr"), _Way("dnat", "weight")),
    NFTABLES: (_Way("snat"), _Way("dnat"), _Way("dnat", "weight")),
}


class Target(NamedTuple):
    """An address to send requests to."""

    name: str
    servers: Servers
    host: str
    port: int = SERVER_PORT


class Place(NamedTuple):
    """A cluster with servers, and a connection to it."""

    subject: Subject
    lab: Lab
    kube: Kube
    servers: Servers


@contextlib.asynccontextmanager
async def place_of(subject: Subject, numbers: tuple[int, ...]) -> AsyncIterator[Place]:
    """Start a cluster of this subject and Deployments of these sizes."""
    lab = await asyncio.to_thread(subject.lab, "datapath")
    try:
        with tempfile.TemporaryDirectory(prefix="kube-nftlb-bench-") as folder, contextlib.ExitStack() as stack:
            servers = Servers(lab, Path(folder))
            stack.callback(servers.close)
            async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
                place = Place(subject, lab, kube, servers)
                await cluster.run_pods(kube, {app_of(number): number for number in numbers}, port=LAB_PORT)
                for number in numbers:
                    await _set_up(place, number)
                for where, settings in _SETTINGS.items():
                    _apply(lab, where, settings)
                yield place
    finally:
        await asyncio.to_thread(lab.down)


def _apply(lab: Lab, where: str, settings: Mapping[str, str]) -> None:
    def write() -> None:
        for key, value in settings.items():
            with contextlib.suppress(FileNotFoundError):  # those of conntrack, in a namespace without it
                Path("/proc/sys", key).write_text(value)

    lab.inside(where, write)


async def _set_up(place: Place, number: int) -> None:
    """Set up servers, proxies and Services for a Deployment of this size."""
    app = app_of(number)
    pods = await cluster.pods_of(place.kube, app)
    for pod in pods:
        place.servers.serve(f"default/{pod}")
        # A client's port comes back through another VIP, and its first packet would be out of order here.
        _apply(place.lab, f"default/{pod}", _NO_TIME_WAIT)
    if place.subject.name == NONE:
        place.servers.proxy_haproxy(NODE, _PROXY_PORTS["HAProxy"] + number, pods.values())
        place.servers.proxy_nginx(NODE, _PROXY_PORTS["NGINX"] + number, pods.values())
        add_static_rule(place, _vip(0, number), next(iter(pods.values())), "tcp", SERVER_PORT)
        return
    ways = [way.annotations for way in _WAYS.get(place.subject.name, ())] or [{}]
    for index, annotations in enumerate(ways):
        body = cluster.service(f"{app}-{index}", _vip(index, number), app, annotations)
        await place.kube.create(SERVICES, body, "default")


async def targets_of(place: Place, number: int) -> list[Target]:
    """Return what to send requests to, once all of it answers. Raises LabError."""
    name = place.subject.name
    if name == NONE:
        pods = await cluster.pods_of(place.kube, app_of(number))
        node = str(place.lab.nodes[0].addresses[0].ip)
        found = [Target(DIRECT, place.servers, next(iter(pods.values())))]
        found += [Target(STATIC, place.servers, _vip(0, number))]
        found += [Target(proxy, place.servers, node, port + number) for proxy, port in _PROXY_PORTS.items()]
    elif name in _WAYS:
        found = [
            Target(way.name(place.subject), place.servers, _vip(index, number)) for index, way in enumerate(_WAYS[name])
        ]
    else:
        found = [Target(name, place.servers, _vip(0, number))]
    for target in found:
        if not (await cluster.until(place.lab, "until-answers", target.host, target.port))["answered"]:
            raise errors.LabError(f"{target.name} does not answer at {target.host}:{target.port}")
    return found


async def add_others(place: Place, there: int, number: int) -> None:
    """Add other Services and wait until all of them are in the node's rules."""
    if place.subject.name == NONE:
        return
    await cluster.create_others(place.kube, number - there, first=there)
    if place.subject.ours:
        await cluster.until_in_sync(place.kube, _PROGRAMMED_WITHIN_S)
    address = next(iter((await cluster.pods_of(place.kube, app_of(10))).values()))
    await cluster.until_serves(place.lab, place.kube, f"last-{number}", address, _PROGRAMMED_WITHIN_S, LAB_PORT)


def add_static_rule(place: Place, vip: str, address: str, protocol: str, port: int) -> None:
    """Translate a VIP to one server by the only rule of a node, whatever there was. Raises LabError."""
    table = f"ip static-{protocol}-{vip.replace('.', '-')}"
    rule = f"type nat hook prerouting priority dstnat; ip daddr {vip} {protocol} dport {port} dnat to {address};"
    ruleset = f"table {table} {{}}\ndelete table {table}\ntable {table} {{ chain prerouting {{ {rule} }}\n}}\n"
    done = place.lab.exec(NODE, "nft", ruleset)
    if done.returncode != 0:
        raise errors.LabError(f"nft: {done.stderr}")


def app_of(number: int) -> str:
    """Return the name of the Deployment of this size."""
    return f"web-of-{number}"


def _vip(index: int, number: int) -> str:
    return cluster.vip(200 + index, number)
