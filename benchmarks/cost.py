"""What operator, agent and nftlb cost: memory, processor time idle and while Services change, and starts.

kube-proxy is measured in the same way. A minute after the last change an agent compares its farms with the kernel; that
is waited for where everything is measured, and comes after the short form.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks import cluster
from benchmarks.cluster import NODE
from benchmarks.options import Options
from benchmarks.processes import PEAK, programs_of, usages
from benchmarks.records import Records
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.kube.client import Kube
from lab.lab import Lab

SCENARIO = "cost"
PROXIES = ("kube-nftlb", "kube-proxy-nftables")

RESTARTED = "restarted until a new Service answers"
ALL_BACK = "restarted until everything is in the kernel"

ENDPOINTS = 10
_WITHIN_S = 1800
"""For everything that is waited for."""


class Extent(NamedTuple):
    """What is measured, and for how long."""

    services: tuple[int, ...]
    """8,000 take long to make: the scenario ``scale`` looks at the programs when it has them."""
    rest_s: Callable[[int], float]
    """How long nothing happens before the idle programs are looked at, by the number of Services."""
    idle_s: int
    churn_s: int


def _until_compared_s(services: int) -> float:
    timing = Timing()
    return timing.audit_every_s + services * timing.poll_s / timing.audit_batch + 20


_SHORT = Extent((1000,), lambda _: 10, 15, 15)
_FULL = Extent((0, 1000), _until_compared_s, 60, 60)


class Place(NamedTuple):
    """A cluster with Services, and a server that the single ones lead to."""

    lab: Lab
    kube: Kube
    pod: str
    slices: Mapping[str, list[str]]


def sizes(full: bool) -> tuple[int, ...]:
    """The numbers of Services."""
    return (_FULL if full else _SHORT).services


def run(records: Records, options: Options) -> None:
    """Measure each proxy, in a cluster of its own."""
    extent = _FULL if options.full else _SHORT
    extent = extent._replace(services=options.wanted(extent.services))
    for proxy in PROXIES:
        asyncio.run(_measure(records, proxy, extent))


async def _measure(records: Records, proxy: str, extent: Extent) -> None:
    lab = await asyncio.to_thread(Lab.up, f"bench-cost-{proxy}", nodes=1, proxy=proxy)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {"web": 1})
            (pod,) = (await cluster.pods_of(kube, "web")).values()
            there = 0
            for services in extent.services:
                await cluster.create_others(kube, services - there, there, ENDPOINTS)
                there = services
                await cluster.until_serves(lab, kube, f"loaded-{services}", pod, _WITHIN_S)
                place = Place(lab, kube, pod, cluster.others(services, ENDPOINTS))
                await look(records, place, extent)
                await restarts(records, place, programs_of(lab))
    finally:
        await asyncio.to_thread(lab.down)


async def look(records: Records, place: Place, extent: Extent = _FULL) -> None:
    """What the programs take while nothing happens, and in churn."""
    services = len(place.slices)
    if place.lab.proxy == "kube-nftlb":
        await cluster.until_in_sync(place.kube, _WITHIN_S)
    await asyncio.sleep(extent.rest_s(services))
    await _use(records, place, "idle", extent.idle_s)
    if services:
        async with cluster.steady_change(place.kube, place.slices):
            await _use(records, place, f"{cluster.CHANGES_PER_S} changes a second", extent.churn_s)


async def restarts(records: Records, place: Place, programs: Sequence[str]) -> None:
    """How soon a new Service answers after a program was started anew, and how soon everything is in the kernel.

    kube-proxy does both at once.
    """
    lab, services = place.lab, len(place.slices)
    for program in programs:
        began = time.monotonic()
        await asyncio.to_thread(lab.restart, program, None if program == "operator" else NODE)
        await cluster.until_serves(lab, place.kube, f"restarted-{program}-{services}", place.pod, _WITHIN_S)
        keys: dict[str, str | int] = {"services": services, "process": program}
        records.add(SCENARIO, lab.proxy, RESTARTED, "s", time.monotonic() - began, **keys)
        if lab.proxy == "kube-nftlb":
            await cluster.until_in_sync(place.kube, _WITHIN_S)
        records.add(SCENARIO, lab.proxy, ALL_BACK, "s", time.monotonic() - began, **keys)


async def _use(records: Records, place: Place, load: str, seconds: float) -> None:
    before, began = usages(place.lab), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = usages(place.lab), time.monotonic() - began
    endpoints = len(next(iter(place.slices.values()), ()))
    for name, used in after.items():
        parameters: dict[str, str | int | float] = {
            "services": len(place.slices),
            "endpoints": endpoints,
            "load": load,
            "process": name,
        }
        share = (used.cpu_s - before[name].cpu_s) / passed * 100
        records.add(SCENARIO, place.lab.proxy, "processor time", "% of a core", share, **parameters)
        records.add(SCENARIO, place.lab.proxy, "memory", "MB", used.mb, **parameters)
        records.add(SCENARIO, place.lab.proxy, PEAK, "MB", used.peak_mb, **parameters)
