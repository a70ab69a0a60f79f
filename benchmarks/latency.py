"""Time until the VIP of a created Service answers and that of a deleted one refuses, and the number of rules.

The test of the original kube-nftlb: Deployments with 10, 50 and 100 ready pods. A pod tries the VIP every millisecond;
times start at the API server's response. kube-nftlb and kube-proxy, also with minSyncPeriod 0, take
turns, each in a cluster of its own.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from benchmarks import cluster, rules, taps, timeline
from benchmarks.cluster import NODE
from benchmarks.records import Records
from benchmarks.rounds import rotated
from benchmarks.scope import Scope
from benchmarks.subjects import EAGER, KUBE_PROXY, NFTABLES, NFTLB, Subject
from benchmarks.vip_prober import TRIED_BEFORE_S, VipProber
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, SERVICES
from lab.lab import Lab

SCENARIO = "latency"
SUBJECTS = (Subject(NFTLB), Subject(NFTABLES), Subject(KUBE_PROXY), Subject(EAGER))
SELECTOR, BEFORE = "found by selector", "made before"
IDLE, STEADY = "idle", "steady"

_OTHER_SERVICES = 50
_OTHERS_ENDPOINTS = 2
_BETWEEN_CHANGES_S = 2.0
_LATER_EACH_TIME_S = 0.37
"""Shift in seconds of the start of each repetition under steady change: kube-proxy syncs once a second, and would
otherwise always be met at the same moment.
"""
_ANSWERED_WITHIN_S = 60


class _Extent(NamedTuple):
    sizes: tuple[int, ...]
    repetitions: int
    timelines: int
    rule_steps: tuple[int, ...]


_SHORT = _Extent((10, 100), 2, 1, (1, 20))
_FULL = _Extent((10, 100), 5, 3, (1, 10, 100, 1000))


class _Case(NamedTuple):
    size: int
    load: str
    endpoints: str


class _Place(NamedTuple):
    subject: Subject
    lab: Lab
    kube: Kube
    prober: VipProber

    @property
    def name(self) -> str:
        return self.subject.name


def run(records: Records, scope: Scope) -> None:
    """Measure all proxies."""
    asyncio.run(_run(records, _FULL if scope.full else _SHORT))


async def _run(records: Records, extent: _Extent) -> None:
    cases = [_Case(size, load, SELECTOR) for load in (IDLE, STEADY) for size in extent.sizes]
    cases += [_Case(extent.sizes[0], load, BEFORE) for load in (IDLE, STEADY)]
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(_place(subject, extent.sizes)) for subject in SUBJECTS]
        numbers = iter(range(1 << 14))
        for repetition in range(extent.repetitions):
            for position, case in enumerate(cases):
                for place in rotated(places, repetition + position):
                    await _cycle(records, place, case, f"web-{next(numbers)}", repetition)
        for repetition in range(extent.timelines):
            for size in (extent.sizes[0], extent.sizes[-1]):
                for place in places:
                    await _timeline(records, place, size, f"web-{next(numbers)}", repetition)
        for place in places:
            await _count_rules(records, place, extent.rule_steps)


@contextlib.asynccontextmanager
async def _place(subject: Subject, sizes: tuple[int, ...]) -> AsyncIterator[_Place]:
    lab = await asyncio.to_thread(subject.lab, SCENARIO, nodes=2)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {_app(size): size for size in sizes})
            await cluster.create_others(kube, _OTHER_SERVICES, endpoints=_OTHERS_ENDPOINTS)
            with contextlib.closing(VipProber(lab)) as asker:
                yield _Place(subject, lab, kube, asker)
    finally:
        await asyncio.to_thread(lab.down)


async def _cycle(records: Records, place: _Place, case: _Case, name: str, repetition: int) -> None:
    """Create one Service, and delete it two seconds later."""
    keys = {**case._asdict(), "repetition": repetition}
    async with contextlib.AsyncExitStack() as stack:
        if case.load == STEADY:
            others = cluster.others(_OTHER_SERVICES, _OTHERS_ENDPOINTS)
            await stack.enter_async_context(cluster.steady_change(place.kube, others))
            await asyncio.sleep(1 + repetition * _LATER_EACH_TIME_S % 1)
        if case.endpoints == BEFORE:
            pods = await cluster.pods_of(place.kube, _app(case.size))
            await place.kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, list(pods.values())), "default")
            # Without a pause, kube-proxy delays the Service to the second after it has synced the slice.
            await asyncio.sleep(_BETWEEN_CHANGES_S)
        await place.prober.begin("answers", vip(name), _ANSWERED_WITHIN_S)
        before, created = await _create(place.kube, name, _app(case.size) if case.endpoints == SELECTOR else None)
        answered = await place.prober.seen()
        _record(records, place, "created until answered", answered, created, keys)
        records.add(SCENARIO, place.name, "creation at the API", "ms", (created - before) / 1e6, **keys)
        since_s = (time.monotonic_ns() - created) / 1e9
        await asyncio.sleep(max(0.0, _BETWEEN_CHANGES_S - TRIED_BEFORE_S - since_s))
        await place.prober.begin("refuses", vip(name), _ANSWERED_WITHIN_S)
        before = time.monotonic_ns()
        await place.kube.delete(SERVICES, name, "default")
        deleted = time.monotonic_ns()
        refused = await place.prober.seen()
        if answered is not None and (refused is None or refused >= before):
            _record(records, place, "deleted until refused", refused, deleted, keys)
        else:
            records.skip(SCENARIO, place.name, "deleted until refused: it did not answer before", **keys)
        if case.endpoints == BEFORE:
            await place.kube.delete(ENDPOINT_SLICES, name, "default")


async def _timeline(records: Records, place: _Place, size: int, name: str, repetition: int) -> None:
    """Measure each step from the creation of one Service while nothing else changes."""
    async with taps.watch(place.lab, place.kube, NODE) as seen:
        writes = await timeline.farm_writes(place.lab)
        await place.prober.begin("answers", vip(name), _ANSWERED_WITHIN_S)
        before, created = await _create(place.kube, name, _app(size))
        answered = await place.prober.seen()
        # Events of the last transaction may still be in flight.
        await asyncio.sleep(0.2)
        writes = await timeline.farm_writes(place.lab) - writes
    await place.kube.delete(SERVICES, name, "default")
    if answered is None:
        records.skip(SCENARIO, place.name, f"segment: no answer within {_ANSWERED_WITHIN_S} s", size=size)
        return
    for segment, milliseconds in timeline.segments(seen, name, before, created, answered, writes.mean_ms):
        records.add(
            SCENARIO, place.name, "segment", "ms", milliseconds, segment=segment, size=size, repetition=repetition
        )
    await asyncio.sleep(_BETWEEN_CHANGES_S)


async def _count_rules(records: Records, place: _Place, steps: tuple[int, ...]) -> None:
    """Count the rules with an increasing number of Services of ten endpoints."""
    there = 0
    pods = list((await cluster.pods_of(place.kube, _app(10))).values())
    for number in (0, *steps):
        for each in range(there, number):
            name = f"ruled-{each}"
            await place.kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, pods), "default")
            await place.kube.create(SERVICES, cluster.service(name, vip(name), None), "default")
        if number:
            await cluster.until(place.lab, "until-answers", vip(f"ruled-{number - 1}"), timeout_s=_ANSWERED_WITHIN_S)
        await asyncio.sleep(_BETWEEN_CHANGES_S)
        for kind, count in (await asyncio.to_thread(rules.count, place.lab, NODE)).items():
            records.add(SCENARIO, place.name, kind, "", count, services=number, endpoints=10)
        there = number


async def _create(kube: Kube, name: str, app: str | None) -> tuple[int, int]:
    """Create a Service; return when the request started and when it was answered."""
    before = time.monotonic_ns()
    await kube.create(SERVICES, cluster.service(name, vip(name), app), "default")
    return before, time.monotonic_ns()


def _record(
    records: Records, place: _Place, metric: str, at: int | None, since: int, keys: Mapping[str, str | int]
) -> None:
    if at is None:
        records.skip(SCENARIO, place.name, f"{metric}: not within {_ANSWERED_WITHIN_S} s", **keys)
    else:
        records.add(SCENARIO, place.name, metric, "ms", (at - since) / 1e6, **keys)


def _app(size: int) -> str:
    return f"web-of-{size}"


def vip(name: str) -> str:
    """Return the VIP of a Service; each kind (``web-1``, ``ruled-1``) has a block of its own."""
    kind, _, number = name.rpartition("-")
    return cluster.vip(128 if kind == "web" else 192, int(number))
