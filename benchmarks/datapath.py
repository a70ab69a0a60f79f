"""Requests per second and latency through a VIP, beside kube-proxy, HAProxy, NGINX, and no balancer at all.

Client, servers and kernel share the same processors, so all figures are of one round, in which the subjects took turns:
what counts is their ratio. The processor time of a request is less disturbed by what else the machine does.
"""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import cluster, packets
from benchmarks.cluster import CLIENT_POD, NODE
from benchmarks.latency import has_ip_vs
from benchmarks.options import Options
from benchmarks.records import Records
from benchmarks.servers import SERVER_PORT, Result, Servers
from benchmarks.turns import turns
from kube_nftlb import errors
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, SERVICES
from lab.lab import Lab

SCENARIO = "datapath"
DIRECT = "direct to a pod"

LAB_PORT = 8080
_PROXY_PORTS = {"HAProxy": 9001, "NGINX": 9101}
_PACKET_MODES = ("snat", "dnat")
USERS = 500
_TIME_WAIT_S = 2
"""For how long conntrack remembers a connection that was closed. At the usual 120 s its table would be full at once."""
_SETTINGS = {
    NODE: {
        f"net/netfilter/nf_conntrack_{kind}": str(_TIME_WAIT_S) for kind in ("tcp_timeout_time_wait", "udp_timeout")
    },
    CLIENT_POD: {"net/ipv4/ip_local_port_range": "1024 65000"},
}
_PROGRAMMED_WITHIN_S = 900
_PROGRAMMED_SOON_S = 3


class _Extent(NamedTuple):
    servers: tuple[int, ...]
    """More than the first of them only with the fewest other Services."""
    others: tuple[int, ...]
    rounds: int
    seconds: int
    k6_rounds: int
    k6_seconds: int
    packet_rounds: int


_SHORT = _Extent((10,), (10,), 2, 1, 1, 2, 6)
_FULL = _Extent((10, 100), (10, 1000, 5000), 5, 1, 5, 3, 20)


class _Way(NamedTuple):
    """A mode of ours, and the scheduler where it is not the usual one."""

    mode: str
    scheduler: str = ""

    @property
    def name(self) -> str:
        return f"kube-nftlb {self.mode}{self.scheduler and ', '}{self.scheduler}"

    @property
    def annotations(self) -> dict[str, str]:
        return {cluster.MODE: self.mode, **({cluster.SCHEDULER: self.scheduler} if self.scheduler else {})}


# The last chooses at random, as kube-proxy does: so what the scheduler costs can be told from what the rules cost.
_WAYS = (_Way("snat"), _Way("dnat"), _Way("dsr"), _Way("dnat", "weight"))


class Subject(NamedTuple):
    """Something to ask."""

    name: str
    servers: Servers
    host: str
    port: int = SERVER_PORT


class Place(NamedTuple):
    """A cluster with servers, and a connection to it."""

    lab: Lab
    kube: Kube
    servers: Servers


def sizes(full: bool) -> tuple[int, ...]:
    """The numbers of other Services."""
    return (_FULL if full else _SHORT).others


def run(records: Records, options: Options) -> None:
    """Measure, with all that the kernel has."""
    asyncio.run(_run(records, _FULL if options.full else _SHORT, options))


async def _run(records: Records, extent: _Extent, options: Options) -> None:
    proxies = ["none", "kube-nftlb", "kube-proxy-nftables", "kube-proxy-iptables"]
    if has_ip_vs():
        proxies.append("kube-proxy-ipvs")
    else:
        records.skip(SCENARIO, "kube-proxy-ipvs", "the kernel has no ip_vs")
    records.skip(SCENARIO, "kube-nftlb stlsdnat", "nftlb 1.0.7 cannot load it for pods (docs/nftlb-defects.md, 17)")
    records.skip(SCENARIO, "kube-nftlb local", "a farm in this mode has no backends: the node's own process answers")
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(place_of(proxy, extent.servers)) for proxy in proxies]
        there = 0
        for others in options.wanted(extent.others):
            for place in places:
                await _add_others(place, there, others)
            there = others
            for number in extent.servers if others == extent.others[0] else extent.servers[:1]:
                subjects = [subject for place in places for subject in await _subjects(place, number)]
                parameters = {"servers": number, "others": others}
                await asyncio.to_thread(_wrk_rounds, records, subjects, extent, parameters)
                if others == extent.others[0]:
                    await asyncio.to_thread(_k6_rounds, records, subjects, extent, parameters)
            await _packet_rounds(records, places, extent.packet_rounds, others)


def _wrk_rounds(records: Records, subjects: list[Subject], extent: _Extent, parameters: Mapping[str, int]) -> None:
    for keep_alive in (True, False):
        for users in (1, USERS):
            keys = _keys(parameters, users, "wrk", keep_alive=keep_alive)
            for number, subject in turns(subjects, extent.rounds):
                result = subject.servers.wrk(subject.host, subject.port, users, extent.seconds, keep_alive=keep_alive)
                record(records, subject.name, result, {**keys, "round": number})


def _k6_rounds(records: Records, subjects: list[Subject], extent: _Extent, parameters: Mapping[str, int]) -> None:
    for users, keep_alive in ((1, True), (USERS, False)):
        keys = _keys(parameters, users, "k6", keep_alive=keep_alive)
        for number, subject in turns(subjects, extent.k6_rounds):
            url = f"http://{subject.host}:{subject.port}/"
            result = subject.servers.k6(url, users, extent.k6_seconds, keep_alive=keep_alive)
            record(records, subject.name, result, {**keys, "round": number})


def _keys(parameters: Mapping[str, int], users: int, tool: str, *, keep_alive: bool) -> dict[str, str | int]:
    connections = "kept" if keep_alive else "new for each request"
    return {**parameters, "users": users, "connections": connections, "tool": tool}


async def _packet_rounds(records: Records, places: list[Place], rounds: int, others: int) -> None:
    """What one packet costs, with a single server behind each VIP."""
    with contextlib.ExitStack() as stack:
        targets: list[tuple[packets.Target, socket.socket]] = []
        for place in places:
            name, address = next(iter((await cluster.pods_of(place.kube, app_of(10))).items()))
            listener = stack.enter_context(packets.server(place.lab, f"default/{name}"))
            targets += [(target, listener) for target in await _packet_targets(place, address)]
        keys = {"others": others}
        for number, (target, listener) in turns(targets, rounds):
            for metric, sample in (
                (packets.LATER, packets.later_ns(target, listener)),
                (packets.FIRST, packets.first_ns(target)),
            ):
                records.add(SCENARIO, target.name, metric, "ns", sample, **keys, round=number)


async def _packet_targets(place: Place, address: str) -> list[packets.Target]:
    proxy = place.lab.proxy
    if proxy == "none":
        return [packets.Target(DIRECT, place.lab, address)]
    targets = []
    for mode in _PACKET_MODES if proxy == "kube-nftlb" else ("",):
        name, vip = f"packets{mode}", _packets_vip(mode)
        with contextlib.suppress(errors.ConflictError):  # from the round with fewer other Services
            body = cluster.service(name, vip, None, {cluster.MODE: mode} if mode else {})
            body["spec"]["ports"] = [{"name": "http", "port": packets.PORT, "protocol": "UDP"}]
            await place.kube.create(
                ENDPOINT_SLICES, cluster.endpoint_slice(name, [address], packets.PORT, "UDP"), "default"
            )
            await place.kube.create(SERVICES, body, "default")
            await asyncio.sleep(_PROGRAMMED_SOON_S)
        targets.append(packets.Target(f"kube-nftlb {mode}" if mode else proxy, place.lab, vip))
    return targets


def record(
    records: Records, subject: str, result: Result, keys: Mapping[str, str | int], scenario: str = SCENARIO
) -> None:
    """Keep what somebody has seen who asked."""
    rate = result.requests / result.seconds
    records.add(scenario, subject, "requests per second", "1/s", rate, **keys)
    records.add(scenario, subject, "failed requests", "", result.failed, **keys)
    for name in ("p50", "p95", "p99"):
        records.add(scenario, subject, name, "µs", getattr(result, name), **keys)
    if result.requests:
        records.add(scenario, subject, "processor time per request", "µs", result.cpu_s / result.requests * 1e6, **keys)


@contextlib.asynccontextmanager
async def place_of(proxy: str, numbers: tuple[int, ...]) -> AsyncIterator[Place]:
    """A cluster with this proxy, or ``none``, and Deployments of so many servers."""
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
    # Only there where the namespace has connection tracking.
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/sys", key).write_text(value)


async def _set_up(place: Place, number: int) -> None:
    """Servers, proxies and Services for a Deployment with so many pods."""
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


async def _subjects(place: Place, number: int) -> list[Subject]:
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


async def _add_others(place: Place, there: int, number: int) -> None:
    """More other Services; returns when all of them are in the node's rules."""
    if place.lab.proxy == "none":
        return
    await cluster.create_others(place.kube, number - there, first=there)
    if place.lab.proxy == "kube-nftlb":
        await cluster.until_in_sync(place.kube, _PROGRAMMED_WITHIN_S)
    address = next(iter((await cluster.pods_of(place.kube, app_of(10))).values()))
    await cluster.until_serves(place.lab, place.kube, f"last-{number}", address, _PROGRAMMED_WITHIN_S, LAB_PORT)


def app_of(number: int) -> str:
    """The Deployment with so many servers."""
    return f"web-of-{number}"


def _vip(index: int, number: int) -> str:
    return cluster.vip(200 + index, number)


def _packets_vip(mode: str) -> str:
    return cluster.vip(211, ("", *_PACKET_MODES).index(mode))
