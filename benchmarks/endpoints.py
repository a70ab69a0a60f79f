"""Time until a Service reaches an endpoint that became ready, and what a changing endpoint costs the API server.

The Service has internalTrafficPolicy Local and one endpoint on the client's node, so that only this one can answer; the
others are ready on another node, and have no server. Its own slice says whether it is ready. A pod tries the VIP every
millisecond; times start at the API server's response. kube-nftlb and
kube-proxy, also with minSyncPeriod 0, take turns, each in its own cluster.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from benchmarks import cluster
from benchmarks.cluster import NODE
from benchmarks.records import Records
from benchmarks.rounds import rotated
from benchmarks.scope import Scope
from benchmarks.spending import counters
from benchmarks.subjects import EAGER, KUBE_PROXY, NFTABLES, NFTLB, Subject
from benchmarks.vip_prober import VipProber
from kube_nftlb import names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, SERVICES, JsonObject
from lab.lab import Lab

SCENARIO = "endpoints"
SUBJECTS = (Subject(NFTLB), Subject(NFTABLES), Subject(KUBE_PROXY), Subject(EAGER))
IDLE, STEADY = "idle", "steady"

_SLICE = 100
"""Endpoints of a slice, as the endpoint slice controller makes them."""
_OTHER_SERVICES = 50
_OTHERS_ENDPOINTS = 10
_SETTLED_S = 2.2
"""Longer than kube-proxy's sync period."""
_LATER_EACH_TIME_S = 0.37
"""Shift in seconds of the start of each repetition, so that kube-proxy is not always met at the same moment."""
_WITHIN_S = 60
_OF_NODE = "10.244.1."
"""The prefix of the addresses of pods on the client's node."""
_STATUSES_REST_AFTER_S = 60
_PORTS = 5
_ROLLED = "rolled"


class _Extent(NamedTuple):
    sizes: tuple[int, ...]
    repetitions: int
    steady_s: int
    rolled: int
    """The number of endpoints of the Service that is rolled, each of which is replaced once."""


_SHORT = _Extent((10, 100), 3, 10, 200)
_FULL = _Extent((10, 100, 1000), 6, 180, 1000)


class _Place(NamedTuple):
    subject: Subject
    lab: Lab
    kube: Kube
    pod: str
    prober: VipProber
    vips: dict[int, str]

    @property
    def name(self) -> str:
        return self.subject.name


def run(records: Records, scope: Scope) -> None:
    """Measure all proxies."""
    asyncio.run(_run(records, _FULL if scope.full else _SHORT))


async def _run(records: Records, extent: _Extent) -> None:
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(_place(subject, extent.sizes)) for subject in SUBJECTS]
        for load in (IDLE, STEADY):
            for repetition in range(extent.repetitions):
                for size in extent.sizes:
                    for place in rotated(places, repetition):
                        await _cycle(records, place, size, load, repetition)
        await _cost_of_changes(records, places, extent.steady_s)
        for place in places:
            await _roll(records, place, extent.rolled)


@contextlib.asynccontextmanager
async def _place(subject: Subject, sizes: tuple[int, ...]) -> AsyncIterator[_Place]:
    lab = await asyncio.to_thread(subject.lab, SCENARIO, nodes=2)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {"web": 2})
            # One is on each node.
            (pod,) = (ip for ip in (await cluster.pods_of(kube, "web")).values() if ip.startswith(_OF_NODE))
            await cluster.create_others(kube, _OTHER_SERVICES, endpoints=_OTHERS_ENDPOINTS)
            vips = {size: cluster.vip(128, number) for number, size in enumerate(sizes)}
            for size, vip in vips.items():
                await _create(kube, size, vip)
                await kube.create(ENDPOINT_SLICES, _own_slice(size, pod, ready=True), "default")
                await cluster.until(lab, "until-answers", vip, timeout_s=_WITHIN_S)
            with contextlib.closing(VipProber(lab)) as asker:
                yield _Place(subject, lab, kube, pod, asker, vips)
    finally:
        await asyncio.to_thread(lab.down)


async def _create(kube: Kube, size: int, vip: str) -> None:
    others = [f"10.{200 + each // 250 // 250}.{each // 250 % 250}.{each % 250 + 1}" for each in range(size - 1)]
    for number in range(0, size - 1, _SLICE):
        body = _slice(f"web-{size}-{number}", size, others[number : number + _SLICE], "node-2", ready=True)
        await kube.create(ENDPOINT_SLICES, body, "default")
    service = cluster.service(f"web-{size}", vip, None)
    service["spec"]["internalTrafficPolicy"] = "Local"
    await kube.create(SERVICES, service, "default")


def _slice(name: str, size: int, addresses: list[str], node: str, *, ready: bool) -> JsonObject:
    body = cluster.endpoint_slice(name, addresses)
    body["metadata"]["labels"] = {names.LABEL_SLICE_SERVICE: f"web-{size}"}
    for endpoint in body["endpoints"]:
        endpoint |= {"nodeName": node, "conditions": {"ready": ready}}
    return body


def _own_slice(size: int, pod: str, *, ready: bool) -> JsonObject:
    return _slice(f"web-{size}-own", size, [pod], NODE, ready=ready)


async def _cycle(records: Records, place: _Place, size: int, load: str, repetition: int) -> None:
    """Make the endpoint not ready, and ready again."""
    keys: dict[str, str | int] = {"size": size, "load": load, "repetition": repetition}
    async with contextlib.AsyncExitStack() as stack:
        if load == STEADY:
            others = cluster.others(_OTHER_SERVICES, _OTHERS_ENDPOINTS)
            await stack.enter_async_context(cluster.steady_change(place.kube, others))
        for metric, action, ready in (
            ("not ready until not reached", "refuses", False),
            ("ready until reached", "answers", True),
        ):
            await asyncio.sleep(_SETTLED_S + repetition * _LATER_EACH_TIME_S % 1)
            await place.prober.begin(action, place.vips[size], _WITHIN_S)
            body = {"endpoints": _own_slice(size, place.pod, ready=ready)["endpoints"]}
            await place.kube.patch(ENDPOINT_SLICES, f"web-{size}-own", body, "default")
            changed = time.monotonic_ns()
            if (seen := await place.prober.seen()) is None:
                records.skip(SCENARIO, place.name, f"{metric}: not within {_WITHIN_S} s", **keys)
            else:
                records.add(SCENARIO, place.name, metric, "ms", (seen - changed) / 1e6, **keys)


async def _cost_of_changes(records: Records, places: list[_Place], seconds: int) -> None:
    """Measure processor time and bytes per change of an endpoint, of which there are ten a second.

    All clusters are quiet at the same time, and each changes while the others are quiet.
    """
    await asyncio.sleep(_STATUSES_REST_AFTER_S)
    spent = await asyncio.gather(*(_spent(place, seconds) for place in places))
    for place, quiet in zip(places, spent, strict=True):
        await _cost_in(records, place, quiet, seconds)


async def _cost_in(records: Records, place: _Place, quiet: dict[str, float], seconds: int) -> None:
    async with cluster.steady_change(place.kube, cluster.others(_OTHER_SERVICES, _OTHERS_ENDPOINTS)):
        # At first the backends of each farm are listed in its status; while endpoints never rest, they are not.
        await asyncio.sleep(_STATUSES_REST_AFTER_S)
        busy = await _spent(place, seconds)
    changes = seconds * cluster.CHANGES_PER_S
    for metric, spent in busy.items():
        unit = "ms" if metric.startswith("processor") else "bytes"
        records.add(SCENARIO, place.name, f"{metric} per change", unit, (spent - quiet[metric]) / changes)


async def _roll(records: Records, place: _Place, endpoints: int) -> None:
    """Replace each endpoint of a Service of several ports once, and measure what is written and sent."""
    ports = [{"name": f"p{port}", "port": 8000 + port} for port in range(_PORTS)]
    slices = {
        f"{_ROLLED}-{number}": [f"10.{240 + number // 250}.{number % 250}.{each + 1}" for each in range(_SLICE)]
        for number in range(endpoints // _SLICE)
    }
    for name, addresses in slices.items():
        body = cluster.endpoint_slice(name, addresses)
        body["metadata"]["labels"] = {names.LABEL_SLICE_SERVICE: _ROLLED}
        await place.kube.create(ENDPOINT_SLICES, {**body, "ports": ports}, "default")
    service = cluster.service(_ROLLED, cluster.single_vip(), None)
    service["spec"]["ports"] = ports
    await place.kube.create(SERVICES, service, "default")
    await asyncio.sleep(10)
    before = await counters(place.lab, place.subject.programs)
    for each in range(_SLICE):
        for number, (name, addresses) in enumerate(slices.items()):
            addresses[each] = f"10.{245 + number // 250}.{number % 250}.{each + 1}"
            body = {"endpoints": cluster.endpoints_of(addresses)}
            await place.kube.patch(ENDPOINT_SLICES, name, body, "default")
    await asyncio.sleep(10)
    after = await counters(place.lab, place.subject.programs)
    for counter in ("bytes to etcd", "bytes to the node"):
        mebibytes = (after[counter] - before[counter]) / (1 << 20)
        metric = counter.replace("bytes", "rolling update")
        records.add(SCENARIO, place.name, metric, "MiB", mebibytes, endpoints=endpoints, ports=_PORTS)


async def _spent(place: _Place, seconds: int) -> dict[str, float]:
    before = await counters(place.lab, place.subject.programs)
    await asyncio.sleep(seconds)
    after = await counters(place.lab, place.subject.programs)
    return {metric: value - before[metric] for metric, value in after.items()}
