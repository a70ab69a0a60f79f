"""Thousands of Services whose endpoints increase, as when the Deployment behind all of them is scaled.

At each step every Service's EndpointSlice gets more endpoints. When half of them are written, an unrelated Service is
created in another namespace, and more afterwards; a pod tries their VIPs. The benchmark writes the slices itself,
sixteen at a time: the controller that writes them in a cluster is the same for all proxies.

For kube-proxy a step is complete when a Service created right after it answers, because one transaction contains
everything. kube-nftlb would serve such a Service earlier; there a step is complete when the agent reports the expected
number of programmed backends.

On a machine that does other work too, the CPU time of each program is more reliable than elapsed time.
"""

import asyncio
import time
import traceback
from typing import NamedTuple

from benchmarks import cluster, series
from benchmarks.cost import RESTARTED
from benchmarks.processes import PEAK, usages
from benchmarks.records import Records
from benchmarks.scope import Scope
from benchmarks.subjects import EAGER, KUBE_PROXY, NFTABLES, NFTLB, Subject
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NAMESPACES, SERVICES, JsonObject
from lab.lab import Lab

SCENARIO = "scale"
_FAST = (Subject(NFTABLES), Subject(KUBE_PROXY), Subject(EAGER))
_ALL = (Subject(NFTLB), *_FAST)

_WRITERS = 16
_UNRELATED = 5
"""Single changes measured after each step."""
_APP = "web"
_NAME = "many-"
_SINGLES = "unrelated"
"""The namespace of the single Services."""
_VIPS, _SINGLE_VIPS = 1, 200
"""The third octets at which their address blocks begin."""
_TRIED_BEFORE_S = 1.0


class _Size(NamedTuple):
    services: int
    endpoints: tuple[int, ...]
    subjects: tuple[Subject, ...] = _ALL
    """With nftlb, 8,000 Services take hours."""


_SHORT = (_Size(1000, (10,)),)
_FULL = (
    _Size(1000, (1, 10)),
    _Size(2000, (1, 20)),
    _Size(8000, (1, 5, 30), _FAST),
    _Size(20_000, (10,), _FAST),
)
_STEP_WITHIN_S = 10_800
_LOOK_EVERY_S = 0.25
_SETTLED_S = 3
_SETTLED_WITHIN_S = 1200


def sizes(full: bool) -> tuple[int, ...]:
    """Return the numbers of Services."""
    return tuple(size.services for size in (_FULL if full else _SHORT))


def run(records: Records, scope: Scope) -> None:
    """Measure each size with each proxy, in a cluster of its own. Raises the last error."""
    broken: Exception | None = None
    wanted = scope.select(sizes(scope.full))
    for size in (size for size in (_FULL if scope.full else _SHORT) if size.services in wanted):
        for subject in (subject for subject in _ALL if subject not in size.subjects):
            reason = f"not tried with {size.services} Services, which take hours"
            records.skip(SCENARIO, subject.name, reason, services=size.services)
        for subject in size.subjects:
            try:
                asyncio.run(_measure(records, subject, size))
            except Exception as error:
                traceback.print_exc()
                records.skip(SCENARIO, subject.name, f"failed: {error!r}", services=size.services)
                broken = error
    if broken is not None:
        raise broken


async def _measure(records: Records, subject: Subject, size: _Size) -> None:
    lab = await asyncio.to_thread(subject.lab, SCENARIO)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {_APP: 1})
            (pod,) = (await cluster.pods_of(kube, _APP)).values()
            await kube.create(NAMESPACES, {"metadata": {"name": _SINGLES}})
            steps = _Steps(records, subject, lab, kube, size.services, pod)
            for number, endpoints in enumerate(size.endpoints):
                if not await steps.step(endpoints, create=number == 0):
                    break
            else:
                await steps.restart()
    finally:
        await asyncio.to_thread(lab.down)


class _Steps:
    """One cluster, step by step; ``pod`` is the address of the backend of single Services."""

    def __init__(self, records: Records, subject: Subject, lab: Lab, kube: Kube, services: int, pod: str) -> None:
        self._records = records
        self._subject = subject
        self._lab = lab
        self._kube = kube
        self._services = services
        self._pod = pod
        self._singles = 0
        self._others = 1
        """Backends of other Services; the first belongs to the Service ``kubernetes``."""
        self._endpoints = 0
        self._half = asyncio.Event()

    async def step(self, endpoints: int, *, create: bool) -> bool:
        """Scale all Services to this number of endpoints. Return False on timeout."""
        before = usages(self._lab)
        self._half = asyncio.Event()
        all_written = asyncio.Event()
        meanwhile = asyncio.create_task(self._single(when=self._half))
        after_all = asyncio.create_task(self._single(when=all_written))
        began = time.monotonic()
        await self._write_all(endpoints, create=create)
        written = time.monotonic()
        all_written.set()
        last, single = await after_all, await meanwhile
        if last is None or not await self._is_all_there(endpoints, written + _STEP_WITHIN_S):
            reason = f"not all was in the kernel {_STEP_WITHIN_S} s after the last was written"
            self._records.skip(SCENARIO, self._subject.name, reason, services=self._services, endpoints=endpoints)
            return False
        self._endpoints = endpoints
        there = time.monotonic()
        self._add(endpoints, "written at the API", "s", written - began)
        self._add(endpoints, series.ALL_THERE, "s", there - began)
        self._add(endpoints, series.AFTER_WRITES, "s", there - written)
        if single is not None:
            self._add(endpoints, series.MEANWHILE, "ms", single * 1000)
        if self._subject.ours:
            right_s = await self._until_statuses_are_right(endpoints) - there
            self._add(endpoints, series.STATUSES_RIGHT, "s", right_s)
        await self._settled()
        for name, after in usages(self._lab).items():
            self._add(endpoints, "processor time", "s", after.cpu_s - before[name].cpu_s, process=name)
            self._add(endpoints, "of it in the kernel", "s", after.system_s - before[name].system_s, process=name)
            self._add(endpoints, "memory", "MB", after.mb, process=name)
            self._add(endpoints, PEAK, "MB", after.peak_mb, process=name)
        for repetition in range(_UNRELATED):
            if (seconds := await self._single()) is not None:
                self._add(endpoints, series.SINGLE_CHANGE, "ms", seconds * 1000, repetition=repetition)
        return True

    async def restart(self) -> None:
        """Restart what programs the kernel, and measure the time until a Service that is created then answers.

        Neither program serves it before it has compared all others with the kernel.
        """
        program = "agent" if self._subject.ours else "kube-proxy"
        await self._settled("apiserver")
        began = time.monotonic()
        await asyncio.to_thread(self._lab.restart, program, cluster.NODE)
        restarted = time.monotonic() - began
        if (seconds := await self._single()) is not None:
            self._add(self._endpoints, RESTARTED, "s", restarted + _TRIED_BEFORE_S + seconds, process=program)

    async def _is_all_there(self, endpoints: int, until: float) -> bool:
        """Wait until all backends are in the kernel. Return False on timeout."""
        if not self._subject.ours:
            return True
        wanted = self._services * endpoints + self._others + self._singles
        while (there := await asyncio.to_thread(cluster.backends_in_kernel, self._lab)) < wanted:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)
        if there > wanted:
            raise AssertionError(f"there are {there} backends instead of {wanted}")
        return True

    async def _until_statuses_are_right(self, endpoints: int) -> float:
        """Return when the status of each farm had this number of backends, and said that all nodes have them.

        Farms are listed every few seconds, so this is a little late. Raises TimeoutError.
        """
        async with asyncio.timeout(_SETTLED_WITHIN_S):
            while True:
                listed = await self._kube.list(FARMS, "default", transform=_shown, not_older_than="0")
                many = [each["backends"] for each in listed.items if each["metadata"]["name"].startswith(_NAME)]
                if many.count(endpoints) == self._services:
                    return time.monotonic()
                await asyncio.sleep(_SETTLED_S)

    def _add(self, endpoints: int, metric: str, unit: str, value: float, **more: str | int) -> None:
        parameters = {"services": self._services, "endpoints": endpoints, **more}
        self._records.add(SCENARIO, self._subject.name, metric, unit, value, **parameters)

    async def _write_all(self, endpoints: int, *, create: bool) -> None:
        todo = iter(range(self._services))

        async def writer() -> None:
            for number in todo:
                if number == self._services // 2:
                    self._half.set()
                await self._write(number, endpoints, create=create)

        await asyncio.gather(*(writer() for _ in range(_WRITERS)))

    async def _write(self, number: int, endpoints: int, *, create: bool) -> None:
        name = _name(number)
        slice_ = cluster.endpoint_slice(name, _addresses(endpoints))
        if create:
            await self._kube.create(ENDPOINT_SLICES, slice_, "default")
            await self._kube.create(SERVICES, cluster.service(name, cluster.vip(_VIPS, number), None), "default")
        else:
            await self._kube.patch(ENDPOINT_SLICES, name, {"endpoints": slice_["endpoints"]}, "default")

    async def _single(self, when: asyncio.Event | None = None) -> float | None:
        """Return the seconds from the creation of a Service until it answers, or None on timeout."""
        self._singles += 1
        name, vip = f"single-{self._singles}", cluster.vip(_SINGLE_VIPS, self._singles)
        trying = asyncio.create_task(cluster.until(self._lab, "until-answers", vip, timeout_s=2 * _STEP_WITHIN_S))
        await asyncio.sleep(_TRIED_BEFORE_S)
        if when is not None:
            await when.wait()
        await self._kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, [self._pod]), _SINGLES)
        await self._kube.create(SERVICES, cluster.service(name, vip, None), _SINGLES)
        created = time.monotonic_ns()
        found = await trying
        return (found["monotonic_ns"] - created) / 1e9 if found["answered"] else None

    async def _settled(self, *more: str) -> None:
        """Wait until the proxy's programs, and more, have done all follow-up work, such as statuses."""
        async with asyncio.timeout(_SETTLED_WITHIN_S):
            before = usages(self._lab)
            while True:
                await asyncio.sleep(_SETTLED_S)
                after = usages(self._lab)
                names = (*self._subject.programs, *more)
                if all(after[name].cpu_s - before[name].cpu_s < _SETTLED_S / 4 for name in names):
                    return
                before = after


def _shown(farm: JsonObject) -> JsonObject:
    """Return the number of backends that the status of a farm says all nodes have; -1 while not all have them."""
    status = farm.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    everywhere = conditions.get("EndpointsProgrammed") == "True"
    return {"metadata": {"name": farm["metadata"]["name"]}, "backends": status["readyBackends"] if everywhere else -1}


def _name(number: int) -> str:
    return f"{_NAME}{number}"


def _addresses(endpoints: int) -> list[str]:
    return [f"10.200.{each // 250}.{each % 250 + 1}" for each in range(endpoints)]
