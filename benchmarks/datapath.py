"""Requests per second and latency through a VIP, beside kube-proxy, HAProxy, NGINX, one rule, and no load balancer.

Client, servers and kernel share the same CPUs, so figures are comparable only within a round, in which the subjects
take turns: their ratio counts. The CPU time of a request depends less on what else the machine does.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import cluster, packets
from benchmarks.records import Records
from benchmarks.rounds import interleaved
from benchmarks.scope import Scope
from benchmarks.servers import Result
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB, NONE, Subject
from benchmarks.testbed import DIRECT, STATIC, Place, Target, add_others, add_static_rule, app_of, place_of, targets_of
from kube_nftlb import errors
from kube_nftlb.kube.resources import ENDPOINT_SLICES, SERVICES

SCENARIO = "datapath"
_PACKET_MODES = ("snat", "dnat")
_WITH_MANY_OTHERS = frozenset(
    {STATIC, KUBE_PROXY, *(f"{name} dnat{more}" for name in (NFTLB, NFTABLES) for more in ("", ", weight"))}
)
"""The subjects that are measured again with more other Services, for which the others need not be."""
USERS = 500
_PROGRAMMED_SOON_S = 3


class _Extent(NamedTuple):
    servers: tuple[int, ...]
    """Values other than the first are measured only with the fewest other Services."""
    others: tuple[int, ...]
    rounds: int
    seconds: int
    packet_rounds: int


_SHORT = _Extent((10,), (10,), 2, 1, 6)
_FULL = _Extent((10,), (10, 1000, 5000, 20_000), 6, 1, 20)
_NFTLB_MAX = 1000
"""With more other Services, nftlb takes hours to load them."""


def sizes(full: bool) -> tuple[int, ...]:
    """Return the numbers of other Services."""
    return (_FULL if full else _SHORT).others


def run(records: Records, scope: Scope) -> None:
    """Measure all subjects."""
    asyncio.run(_run(records, _FULL if scope.full else _SHORT, scope))


async def _run(records: Records, extent: _Extent, scope: Scope) -> None:
    wanted = scope.select(extent.others)
    subjects = [Subject(name) for name in (NONE, NFTLB, NFTABLES, KUBE_PROXY)]
    if min(wanted) > _NFTLB_MAX:
        subjects.remove(Subject(NFTLB))
    records.skip(SCENARIO, "kube-nftlb local", "a farm in this mode has no backends: the node's own process answers")
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(place_of(subject, extent.servers)) for subject in subjects]
        there = 0
        for others in wanted:
            if others > _NFTLB_MAX:
                records.skip(
                    SCENARIO, f"{NFTLB} dnat", f"not tried with {others} others, which take hours", others=others
                )
                places = [place for place in places if place.subject.name != NFTLB]
            for place in places:
                await add_others(place, there, others)
            there = others
            for number in extent.servers if others == extent.others[0] else extent.servers[:1]:
                targets = [target for place in places for target in await targets_of(place, number)]
                if others != extent.others[0]:
                    targets = [target for target in targets if target.name in _WITH_MANY_OTHERS]
                parameters = {"servers": number, "others": others}
                await asyncio.to_thread(_wrk_rounds, records, targets, extent, parameters)
            await _packet_rounds(records, places, extent.packet_rounds, others)


def _wrk_rounds(records: Records, targets: list[Target], extent: _Extent, parameters: Mapping[str, int]) -> None:
    for keep_alive in (True, False):
        for users in (1, USERS):
            keys = _keys(parameters, users, "wrk", keep_alive=keep_alive)
            for number, target in interleaved(targets, extent.rounds):
                result = target.servers.wrk(target.host, target.port, users, extent.seconds, keep_alive=keep_alive)
                record(records, target.name, result, {**keys, "round": number})


def _keys(parameters: Mapping[str, int], users: int, tool: str, *, keep_alive: bool) -> dict[str, str | int]:
    connections = "kept" if keep_alive else "new for each request"
    return {**parameters, "users": users, "connections": connections, "tool": tool}


async def _packet_rounds(records: Records, places: list[Place], rounds: int, others: int) -> None:
    """Measure the cost of one packet, with a single server behind each VIP."""
    with contextlib.ExitStack() as stack:
        targets: list[tuple[packets.Target, socket.socket]] = []
        for place in places:
            name, address = next(iter((await cluster.pods_of(place.kube, app_of(10))).items()))
            listener = stack.enter_context(packets.server(place.lab, f"default/{name}"))
            targets += [(target, listener) for target in await packet_targets(place, address)]
        keys = {"others": others}
        for number, (target, listener) in interleaved(targets, rounds):
            for metric, sample in (
                (packets.LATER, packets.later_ns(target, listener)),
                (packets.FIRST, packets.first_ns(target)),
            ):
                records.add(SCENARIO, target.name, metric, "ns", sample, **keys, round=number)


async def packet_targets(place: Place, address: str) -> list[packets.Target]:
    """Create Services for single packets, with one server, and return their addresses."""
    name = place.subject.name
    if name == NONE:
        vip = _packets_vip("")
        add_static_rule(place, vip, address, "udp", packets.PORT)
        return [packets.Target(DIRECT, place.lab, address), packets.Target(STATIC, place.lab, vip)]
    targets = []
    for mode in _PACKET_MODES if place.subject.ours else ("",):
        service, vip = f"packets{mode}", _packets_vip(mode)
        with contextlib.suppress(errors.ConflictError):  # from the round with fewer other Services
            body = cluster.service(service, vip, None, {cluster.MODE: mode} if mode else {})
            body["spec"]["ports"] = [{"name": "http", "port": packets.PORT, "protocol": "UDP"}]
            await place.kube.create(
                ENDPOINT_SLICES, cluster.endpoint_slice(service, [address], packets.PORT, "UDP"), "default"
            )
            await place.kube.create(SERVICES, body, "default")
            await asyncio.sleep(_PROGRAMMED_SOON_S)
        targets.append(packets.Target(f"{name} {mode}".strip(), place.lab, vip))
    return targets


def record(
    records: Records, subject: str, result: Result, keys: Mapping[str, str | int], scenario: str = SCENARIO
) -> None:
    """Store the result of a load generator."""
    rate = result.requests / result.seconds
    records.add(scenario, subject, "requests per second", "1/s", rate, **keys)
    records.add(scenario, subject, "failed requests", "", result.failed, **keys)
    for name in ("p50", "p95", "p99"):
        records.add(scenario, subject, name, "µs", getattr(result, name), **keys)
    if result.requests:
        records.add(scenario, subject, "processor time per request", "µs", result.cpu_s / result.requests * 1e6, **keys)


def _packets_vip(mode: str) -> str:
    return cluster.vip(211, ("", *_PACKET_MODES).index(mode))
