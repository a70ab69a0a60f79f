"""Cost of operator, agent and nftlb: memory, CPU time when idle and while Services change, and restarts.

kube-proxy is measured in the same way. One minute after the last change an agent compares its farms with the kernel;
the full form waits for that, the short form measures before it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks import cluster
from benchmarks.cluster import NODE
from benchmarks.processes import PEAK, spent
from benchmarks.records import Records
from benchmarks.scope import Scope
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB, Subject
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.kube.client import Kube
from lab.lab import Lab

SCENARIO = "cost"
SUBJECTS = (Subject(NFTLB), Subject(NFTABLES), Subject(KUBE_PROXY))

RESTARTED = "restarted until a new Service answers"
ALL_BACK = "restarted until everything is in the kernel"

ENDPOINTS = 10
_WITHIN_S = 1800
"""The timeout of every wait."""


class Extent(NamedTuple):
    """The numbers of Services to measure with, and the durations."""

    services: tuple[int, ...]
    """8,000 take long to create: the scenario ``scale`` measures the programs once it has them."""
    rest_s: Callable[[int], float]
    """The idle time before the programs are measured, by number of Services."""
    idle_s: int
    churn_s: int


def _until_compared_s(services: int) -> float:
    timing = Timing()
    return timing.audit_every_s + services * timing.poll_s / timing.audit_batch + 20


_SHORT = Extent((1000,), lambda _: 10, 15, 15)
_FULL = Extent((0, 1000), _until_compared_s, 60, 60)


class Place(NamedTuple):
    """A cluster with Services, and a server for the single ones."""

    subject: Subject
    lab: Lab
    kube: Kube
    pod: str
    slices: Mapping[str, list[str]]


def sizes(full: bool) -> tuple[int, ...]:
    """Return the numbers of Services."""
    return (_FULL if full else _SHORT).services


def run(records: Records, scope: Scope) -> None:
    """Measure each proxy in a cluster of its own."""
    extent = _FULL if scope.full else _SHORT
    extent = extent._replace(services=scope.select(extent.services))
    for subject in SUBJECTS:
        asyncio.run(_measure(records, subject, extent))


async def _measure(records: Records, subject: Subject, extent: Extent) -> None:
    lab = await asyncio.to_thread(subject.lab, SCENARIO)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {"web": 1})
            (pod,) = (await cluster.pods_of(kube, "web")).values()
            there = 0
            for services in extent.services:
                await cluster.create_others(kube, services - there, there, ENDPOINTS)
                there = services
                await cluster.until_serves(lab, kube, f"loaded-{services}", pod, _WITHIN_S)
                place = Place(subject, lab, kube, pod, cluster.others(services, ENDPOINTS))
                await look(records, place, extent)
                await restarts(records, place, subject.programs)
    finally:
        await asyncio.to_thread(lab.down)


async def look(records: Records, place: Place, extent: Extent = _FULL) -> None:
    """Measure the programs while idle and during churn."""
    services = len(place.slices)
    if place.subject.ours:
        await cluster.until_in_sync(place.kube, _WITHIN_S)
    await asyncio.sleep(extent.rest_s(services))
    await _use(records, place, "idle", extent.idle_s)
    if services:
        async with cluster.steady_change(place.kube, place.slices):
            await _use(records, place, f"{cluster.CHANGES_PER_S} changes a second", extent.churn_s)


async def restarts(records: Records, place: Place, programs: Sequence[str]) -> None:
    """Measure the time after a restart until a new Service answers, and until everything is in the kernel.

    kube-proxy does both at once.
    """
    lab, services = place.lab, len(place.slices)
    for program in programs:
        began = time.monotonic()
        await asyncio.to_thread(lab.restart, program, None if program == "operator" else NODE)
        await cluster.until_serves(lab, place.kube, f"restarted-{program}-{services}", place.pod, _WITHIN_S)
        keys: dict[str, str | int] = {"services": services, "process": program}
        records.add(SCENARIO, place.subject.name, RESTARTED, "s", time.monotonic() - began, **keys)
        if place.subject.ours:
            await cluster.until_in_sync(place.kube, _WITHIN_S)
        records.add(SCENARIO, place.subject.name, ALL_BACK, "s", time.monotonic() - began, **keys)


async def _use(records: Records, place: Place, load: str, seconds: float) -> None:
    endpoints = len(next(iter(place.slices.values()), ()))
    for name, (share, used) in (await spent(place.lab, place.subject.programs, seconds)).items():
        parameters: dict[str, str | int | float] = {
            "services": len(place.slices),
            "endpoints": endpoints,
            "load": load,
            "process": name,
        }
        records.add(SCENARIO, place.subject.name, "processor time", "% of a core", share, **parameters)
        records.add(SCENARIO, place.subject.name, "memory", "MB", used.mb, **parameters)
        records.add(SCENARIO, place.subject.name, PEAK, "MB", used.peak_mb, **parameters)
