"""Addresses of Services, announced on the client's own segment: how soon, how safely, at what cost.

Three nodes announce them, by kube-nftlb or by MetalLB beside kube-proxy, each in a cluster of its own. They take turns.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks import cluster, handovers, new_addresses
from benchmarks.announcers import IDLE, SCENARIO, STEADY, WEB, Announcer, announcer
from benchmarks.handovers import LINK_DOWN, MOVE, POWER_OFF, RESTART
from benchmarks.processes import PEAK, spent
from benchmarks.records import Records
from benchmarks.rounds import interleaved, rotated
from benchmarks.scope import Scope
from benchmarks.stats import quantile
from benchmarks.subjects import ANNOUNCING, METALLB, METALLB_EAGER, NFTABLES, Subject
from kube_nftlb import errors
from lab.places import CLIENT

SUBJECTS: Final = tuple(map(Subject, ANNOUNCING))
_SOME: Final = (Subject(NFTABLES), Subject(METALLB))
PROCESSOR, ANSWER, LOST = "processor time", "time of an answer", "questions without an answer"

_MANY: Final = 100
_WRITERS = 8
_RESTED_S = 10


class _Extent(NamedTuple):
    subjects: Sequence[Subject]
    rounds: int
    """Of new addresses."""
    services: int
    """New in each round, and with each load."""
    moves: int
    restarts: int
    failures: int
    faults: tuple[str, ...]
    seconds: int
    """For which the programs are measured, with each load."""
    programmed: int
    """Services that are programmed while a client asks who has addresses."""


_SHORT = _Extent(_SOME, 1, 5, 1, 1, 1, (POWER_OFF,), 10, 0)
_FULL = _Extent(SUBJECTS, 5, 5, 10, 5, 5, (POWER_OFF, LINK_DOWN), 60, 2000)


def run(records: Records, scope: Scope) -> None:
    """Measure all subjects."""
    asyncio.run(_run(records, _FULL if scope.full else _SHORT))


async def _run(records: Records, extent: _Extent) -> None:
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(announcer(subject)) for subject in extent.subjects]
        numbers = iter(range(0, 1 << 14, extent.services))
        for repetition in range(extent.rounds):
            for load in (IDLE, STEADY):
                first = next(numbers)
                for place in rotated(places, repetition):
                    await new_addresses.measure(records, place, load, extent.services, first)
        for change, times in ((MOVE, extent.moves), (RESTART, extent.restarts)):
            for repetition, place in interleaved(places, times):
                await handovers.roll(records, place, change, repetition)
        # How often kube-proxy syncs makes no difference to the rest.
        once = [place for place in places if place.name != METALLB_EAGER]
        for fault in extent.faults:
            for repetition, place in interleaved(once, extent.failures):
                await handovers.fail(records, place, fault, repetition)
        for place in once:
            await _many(records, place, extent)


async def _many(records: Records, place: Announcer, extent: _Extent) -> None:
    """Measure the programs with many addresses, and the answers about these while Services are programmed."""
    ips = [next(place.ips) for _ in range(_MANY)]
    todo = iter(enumerate(ips))

    async def writer() -> None:
        for number, ip in todo:
            await place.create(f"many-{number}", WEB, ip)

    async with new_addresses.arriving(place, "--connections", "1") as (asked, met):
        asked.write("".join(f"{ip}\n" for ip in ips))
        await asyncio.gather(*(writer() for _ in range(_WRITERS)))
    if silent := [ip for ip in ips if not met[ip]["answered_at"]]:
        raise errors.LabError(f"nobody answers for {', '.join(silent)} with {place.name}")
    await asyncio.sleep(_RESTED_S)
    for load in (IDLE, STEADY):
        async with place.changing(load):
            found = await spent(place.lab, place.programs, extent.seconds)
        for program, (share, usage) in found.items():
            keys: dict[str, str | int] = {"addresses": _MANY, "load": load, "process": program}
            records.add(SCENARIO, place.name, PROCESSOR, "% of a core", share, **keys)
            records.add(SCENARIO, place.name, PEAK, "MB", usage.peak_mb, **keys)
    if extent.programmed:
        await _ask(records, place, ips, extent.programmed)


async def _ask(records: Records, place: Announcer, ips: Sequence[str], services: int) -> None:
    asking = place.lab.popen(CLIENT, sys.executable, "-m", "benchmarks.neighbours", *ips)
    await asyncio.sleep(2)
    await cluster.create_others(place.kube, services, first=100)
    await asyncio.sleep(5)
    asking.terminate()
    met = json.loads((await asyncio.to_thread(asking.communicate))[0])
    for share in (0.5, 0.99):
        value = quantile(met["took"], share)
        records.add(SCENARIO, place.name, ANSWER, "ms", value, services=services, quantile=share)
    records.add(SCENARIO, place.name, LOST, "", met["lost"], services=services)
