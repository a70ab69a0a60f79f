"""How long after a Service was created its VIP answers, and after it was deleted refuses; and how many rules there are.

The test of this project's ancestor: Deployments with 10, 50 and 100 ready pods. A pod tries the VIP every millisecond;
the time counts from the API server's answer. kube-nftlb and kube-proxy take turns, each in a cluster of its own.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import cluster, prober, rules, taps
from benchmarks.cluster import CLIENT_POD, NODE
from benchmarks.options import Options
from benchmarks.records import Records
from benchmarks.turns import turn
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, SERVICES
from lab.lab import Lab

SCENARIO = "latency"
PROXIES = ("kube-nftlb", "kube-proxy-nftables", "kube-proxy-iptables", "kube-proxy-ipvs")
SELECTOR, BEFORE = "found by selector", "made before"
IDLE, STEADY = "idle", "steady"

_OTHER_SERVICES = 50
_OTHERS_ENDPOINTS = 2
_TRIED_BEFORE_S = 0.2
_BETWEEN_CHANGES_S = 2.0
_LATER_EACH_TIME_S = 0.37
"""How much later in a second a Service is created under steady change with each repetition: kube-proxy's sync comes
once a second, and would else be met at the same moment each time."""
_ANSWERED_WITHIN_S = 60


_OF_FARMS = re.compile(r'resource="nftlbfarms".*subresource="",verb="(APPLY|PATCH|POST|PUT)"')


class _Extent(NamedTuple):
    sizes: tuple[int, ...]
    repetitions: int
    timelines: int
    rule_steps: tuple[int, ...]


_SHORT = _Extent((10, 100), 2, 1, (1, 20))
_FULL = _Extent((10, 50, 100), 6, 6, (1, 10, 100, 1000))


class _Case(NamedTuple):
    size: int
    load: str
    endpoints: str


class _Subject(NamedTuple):
    lab: Lab
    kube: Kube
    prober: "_Prober"

    @property
    def name(self) -> str:
        return self.lab.proxy


def run(records: Records, options: Options) -> None:
    """Measure, with all proxies that the kernel has."""
    asyncio.run(_run(records, _FULL if options.full else _SHORT))


def has_ip_vs() -> bool:
    """Whether the kernel has IPVS, asked for by name so that a module is loaded."""
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["modprobe", "ip_vs"], capture_output=True, check=False)
    return Path("/proc/net/ip_vs").exists()


async def _run(records: Records, extent: _Extent) -> None:
    proxies = list(PROXIES)
    if not has_ip_vs():
        proxies.remove("kube-proxy-ipvs")
        records.skip(SCENARIO, "kube-proxy-ipvs", "the kernel has no ip_vs")
    cases = [_Case(size, load, SELECTOR) for load in (IDLE, STEADY) for size in extent.sizes]
    cases += [_Case(extent.sizes[0], load, BEFORE) for load in (IDLE, STEADY)]
    async with contextlib.AsyncExitStack() as stack:
        subjects = [await stack.enter_async_context(_subject(proxy, extent.sizes)) for proxy in proxies]
        numbers = iter(range(1 << 14))
        for repetition in range(extent.repetitions):
            for place, case in enumerate(cases):
                for subject in turn(subjects, repetition + place):
                    await _cycle(records, subject, case, f"web-{next(numbers)}", repetition)
        for repetition in range(extent.timelines):
            for size in (extent.sizes[0], extent.sizes[-1]):
                for subject in subjects:
                    await _timeline(records, subject, size, f"web-{next(numbers)}", repetition)
        for subject in subjects:
            await _count_rules(records, subject, extent.rule_steps)


@contextlib.asynccontextmanager
async def _subject(proxy: str, sizes: tuple[int, ...]) -> AsyncIterator[_Subject]:
    lab = await asyncio.to_thread(Lab.up, f"bench-latency-{proxy}", nodes=2, proxy=proxy)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {_app(size): size for size in sizes})
            await cluster.create_others(kube, _OTHER_SERVICES, endpoints=_OTHERS_ENDPOINTS)
            with contextlib.closing(_Prober(lab)) as asker:
                yield _Subject(lab, kube, asker)
    finally:
        await asyncio.to_thread(lab.down)


async def _cycle(records: Records, subject: _Subject, case: _Case, name: str, repetition: int) -> None:
    """One Service created, and deleted two seconds later."""
    keys = {**case._asdict(), "repetition": repetition}
    async with contextlib.AsyncExitStack() as stack:
        if case.load == STEADY:
            others = cluster.others(_OTHER_SERVICES, _OTHERS_ENDPOINTS)
            await stack.enter_async_context(cluster.steady_change(subject.kube, others))
            await asyncio.sleep(1 + repetition * _LATER_EACH_TIME_S % 1)
        if case.endpoints == BEFORE:
            pods = await cluster.pods_of(subject.kube, _app(case.size))
            await subject.kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, list(pods.values())), "default")
            # Without a pause kube-proxy makes the Service wait for the second that follows its sync of the slice.
            await asyncio.sleep(_BETWEEN_CHANGES_S)
        await subject.prober.begin("answers", name)
        before, created = await _create(subject.kube, name, _app(case.size) if case.endpoints == SELECTOR else None)
        answered = await subject.prober.seen()
        _record(records, subject, "created until answered", answered, created, keys)
        records.add(SCENARIO, subject.name, "creation at the API", "ms", (created - before) / 1e6, **keys)
        since_s = (time.monotonic_ns() - created) / 1e9
        await asyncio.sleep(max(0.0, _BETWEEN_CHANGES_S - _TRIED_BEFORE_S - since_s))
        await subject.prober.begin("refuses", name)
        before = time.monotonic_ns()
        await subject.kube.delete(SERVICES, name, "default")
        deleted = time.monotonic_ns()
        refused = await subject.prober.seen()
        if answered is not None and (refused is None or refused >= before):
            _record(records, subject, "deleted until refused", refused, deleted, keys)
        else:
            records.skip(SCENARIO, subject.name, "deleted until refused: it did not answer before", **keys)
        if case.endpoints == BEFORE:
            await subject.kube.delete(ENDPOINT_SLICES, name, "default")


async def _timeline(records: Records, subject: _Subject, size: int, name: str, repetition: int) -> None:
    """Where the time goes, from one Service created while nothing else changes."""
    async with taps.watch(subject.lab, subject.kube, NODE) as seen:
        writes = await _farm_writes(subject)
        await subject.prober.begin("answers", name)
        before, created = await _create(subject.kube, name, _app(size))
        answered = await subject.prober.seen()
        # The events of the last transaction may still be on their way to us.
        await asyncio.sleep(0.2)
        writes = await _farm_writes(subject) - writes
    await subject.kube.delete(SERVICES, name, "default")
    if answered is None:
        records.skip(SCENARIO, subject.name, f"segment: no answer within {_ANSWERED_WITHIN_S} s", size=size)
        return
    for segment, milliseconds in segments(seen, name, before, created, answered, writes.mean_ms):
        records.add(
            SCENARIO, subject.name, "segment", "ms", milliseconds, segment=segment, size=size, repetition=repetition
        )
    await asyncio.sleep(_BETWEEN_CHANGES_S)


def segments(
    seen: taps.Seen, name: str, before: int, created: int, answered: int, farm_write_ms: float
) -> list[tuple[str, float]]:
    """The parts of the way, in their order, each in ms; times are CLOCK_MONOTONIC in ns.

    What could not be told apart is part of what comes after it. A point that was seen out of order has no length.
    """
    points: list[tuple[str, int | None]] = [
        ("API: the Service", created),
        ("controller: the slice", seen.objects.get(f"endpointslices/{name}")),
    ]
    if (farm := seen.objects.get(f"nftlbfarms/{name}")) is not None:
        post = next((at for at in seen.posts if at >= created), answered)
        loaded = next((at for at, program in seen.transactions if program == "nftlb" and at >= post), None)
        points += [("operator", farm - int(farm_write_ms * 1e6)), ("API: the farm", farm), ("agent", post)]
        points.append(("nftlb and the kernel", loaded))
    else:
        synced = [at for at, _ in seen.transactions if created <= at <= answered]
        points.append(("kube-proxy and the kernel", synced[-1] if synced else None))
    points.append(("until a packet is answered", answered))
    parts, last = [], before
    for segment, at in points:
        if at is not None:
            # Our own clock may be read late, but no later than the answer came.
            end = max(last, min(at, answered))
            parts.append((segment, (end - last) / 1e6))
            last = end
    return parts


async def _count_rules(records: Records, subject: _Subject, steps: tuple[int, ...]) -> None:
    """The rules with more and more Services of ten endpoints."""
    there = 0
    pods = list((await cluster.pods_of(subject.kube, _app(10))).values())
    for number in (0, *steps):
        for each in range(there, number):
            name = f"ruled-{each}"
            await subject.kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, pods), "default")
            await subject.kube.create(SERVICES, cluster.service(name, vip(name), None), "default")
        if number:
            await cluster.until(subject.lab, "until-answers", vip(f"ruled-{number - 1}"), timeout_s=_ANSWERED_WITHIN_S)
        await asyncio.sleep(_BETWEEN_CHANGES_S)
        for kind, count in (await asyncio.to_thread(rules.count, subject.lab, NODE)).items():
            records.add(SCENARIO, subject.name, kind, "", count, services=number, endpoints=10)
        there = number


class _Writes(NamedTuple):
    number: float
    seconds: float

    def __sub__(self, other: "_Writes") -> "_Writes":
        return _Writes(self.number - other.number, self.seconds - other.seconds)

    @property
    def mean_ms(self) -> float:
        return self.seconds / self.number * 1000 if self.number else 0.0


async def _farm_writes(subject: _Subject) -> _Writes:
    """What the API server counts of the writes of NftlbFarms, their statuses left out."""
    kubectl = [
        str(subject.lab.bin / "kubectl"),
        "--kubeconfig",
        str(subject.lab.kubeconfig),
        "get",
        "--raw",
        "/metrics",
    ]
    done = await asyncio.to_thread(subprocess.run, kubectl, capture_output=True, text=True, check=True)
    return parse_farm_writes(done.stdout)


def parse_farm_writes(metrics: str) -> _Writes:
    """The number and the seconds of writes of NftlbFarms in what the API server exports."""
    sums = dict.fromkeys(("count", "sum"), 0.0)
    for line in metrics.splitlines():
        match = re.match(r"apiserver_request_duration_seconds_(count|sum)\{(.*)\} (\S+)", line)
        if match and _OF_FARMS.search(match[2]):
            sums[match[1]] += float(match[3])
    return _Writes(sums["count"], sums["sum"])


async def _create(kube: Kube, name: str, app: str | None) -> tuple[int, int]:
    """When the request began, and when it was answered."""
    before = time.monotonic_ns()
    await kube.create(SERVICES, cluster.service(name, vip(name), app), "default")
    return before, time.monotonic_ns()


class _Prober:
    """A process in the client's pod that tries VIPs."""

    def __init__(self, lab: Lab) -> None:
        self._process = lab.popen(CLIENT_POD, sys.executable, "-S", prober.__file__)

    async def begin(self, action: str, name: str) -> None:
        """Try the VIP from now on."""
        assert self._process.stdin  # noqa: S101 (narrows the type)
        self._process.stdin.write(f"{action} {vip(name)} 80 {_ANSWERED_WITHIN_S}\n")
        self._process.stdin.flush()
        await self._line()
        await asyncio.sleep(_TRIED_BEFORE_S)

    async def seen(self) -> int | None:
        """When the VIP answered, or refused; None where it did not in time."""
        at: int | None = json.loads(await self._line())["monotonic_ns"]
        return at

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()

    async def _line(self) -> str:
        assert self._process.stdout  # noqa: S101 (narrows the type)
        if line := await asyncio.to_thread(self._process.stdout.readline):
            return line
        _, err = self._process.communicate()
        raise subprocess.CalledProcessError(self._process.returncode, self._process.args, "", err)


def _record(
    records: Records, subject: _Subject, metric: str, at: int | None, since: int, keys: Mapping[str, str | int]
) -> None:
    if at is None:
        records.skip(SCENARIO, subject.name, f"{metric}: not within {_ANSWERED_WITHIN_S} s", **keys)
    else:
        records.add(SCENARIO, subject.name, metric, "ms", (at - since) / 1e6, **keys)


def _app(size: int) -> str:
    return f"web-of-{size}"


def vip(name: str) -> str:
    """One of its own for each number, ``web-1`` and ``ruled-1`` apart."""
    kind, _, number = name.rpartition("-")
    return cluster.vip(128 if kind == "web" else 192, int(number))
