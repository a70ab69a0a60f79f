"""What nodes that announce many addresses cost, and how soon they answer for these while they program Services.

Three nodes announce them, by kube-nftlb or by MetalLB beside kube-proxy, each in a cluster of its own.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks import cluster, new_addresses
from benchmarks.announcers import IDLE, STEADY, WEB, Announcer, announcer
from benchmarks.processes import PEAK, spent
from benchmarks.records import Records
from benchmarks.scope import Scope
from benchmarks.stats import quantile
from benchmarks.subjects import METALLB, NFTABLES, NFTLB, Subject
from kube_nftlb import errors
from lab.places import CLIENT

SCENARIO: Final = "many_addresses"
ADDRESSES: Final = 500
SUBJECTS: Final = (NFTABLES, NFTLB, METALLB)
"""How often kube-proxy syncs makes no difference here."""
PROCESSOR: Final = "processor time"
ANSWER: Final = "time of an answer"
ANSWERED: Final = "questions with an answer"
LOST: Final = "questions without an answer"
MEDIAN, TAIL = 0.5, 0.99
"""The quantiles of the answers' times."""

_WRITERS = 8
_RESTED_S = 10


class _Extent(NamedTuple):
    seconds: int
    """For which the programs are measured, with each load."""
    programmed: int
    """Services that are programmed while a client asks who has the addresses."""


_SHORT, _FULL = _Extent(10, 200), _Extent(60, 2000)


def run(records: Records, scope: Scope) -> None:
    """Measure all subjects, one after another."""
    asyncio.run(_run(records, _FULL if scope.full else _SHORT))


async def _run(records: Records, extent: _Extent) -> None:
    for name in SUBJECTS:
        async with announcer(Subject(name)) as place:
            await _measure(records, place, extent)


async def _measure(records: Records, place: Announcer, extent: _Extent) -> None:
    """Measure the programs with many addresses, and the answers about these while Services are programmed."""
    ips = [next(place.ips) for _ in range(ADDRESSES)]
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
            keys: dict[str, str | int] = {"addresses": ADDRESSES, "load": load, "process": program}
            records.add(SCENARIO, place.name, PROCESSOR, "% of a core", share, **keys)
            records.add(SCENARIO, place.name, PEAK, "MB", usage.peak_mb, **keys)
    await _ask(records, place, ips, extent.programmed)


async def _ask(records: Records, place: Announcer, ips: Sequence[str], services: int) -> None:
    asking = place.lab.popen(CLIENT, sys.executable, "-m", "benchmarks.neighbours", *ips)
    await asyncio.sleep(2)
    await cluster.create_others(place.kube, services, first=100)
    await asyncio.sleep(5)
    asking.terminate()
    met = json.loads((await asyncio.to_thread(asking.communicate))[0])
    for share in (MEDIAN, TAIL):
        value = quantile(met["took"], share)
        records.add(SCENARIO, place.name, ANSWER, "ms", value, services=services, quantile=share)
    records.add(SCENARIO, place.name, ANSWERED, "", len(met["took"]), services=services)
    records.add(SCENARIO, place.name, LOST, "", met["lost"], services=services)
