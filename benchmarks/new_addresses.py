"""How soon a client is served at a new address, and what becomes of its connections from the first answer on.

The client asks the segment for each address fifty times a second. As soon as somebody answers it connects, one
connection after another, and beside that tries at short intervals, whatever becomes of earlier tries, until one is
answered.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import IO, Any, Final

from benchmarks.announcers import SCENARIO, WEB, Announcer
from benchmarks.cluster import TRAFFIC
from benchmarks.records import Records
from lab.places import CLIENT

CREATED: Final = "Service created until a client is served"
GAP: Final = "first answer until a client is served"
CONNECTIONS: Final = "connections to a new address"
FAILED: Final = {
    "refused": "connections to a new address refused",
    "timed out": "connections to a new address timed out",
    "cut or unreachable": "connections to a new address otherwise failed",
}
"""The metrics of connections that failed, by how."""
_EVERY_S: Final = 2.3
"""No multiple of the second in which kube-proxy syncs, which would otherwise always be met at the same moment."""
_KINDS: Final = {"refused": "refused", "timeout": "timed out"}


def counted(kinds: dict[str, int]) -> dict[str, int]:
    """Return the numbers of failures as the records tell them apart, by those of the client's kinds."""
    found = dict.fromkeys(FAILED, 0)
    for kind, number in kinds.items():
        found[_KINDS.get(kind, "cut or unreachable")] += number
    return found


@contextlib.asynccontextmanager
async def arriving(place: Announcer, *options: str) -> AsyncIterator[tuple[IO[str], dict[str, Any]]]:
    """Have a client connect to addresses as soon as somebody answers for them.

    They are to be written to the first, a file, one a line; the second has what was met at each, after the block.
    """
    process = place.lab.popen(CLIENT, *TRAFFIC, "arrivals", "80", *options)
    met: dict[str, Any] = {}
    assert process.stdin  # noqa: S101 - narrows the type
    assert process.stderr  # noqa: S101 - narrows the type
    await asyncio.to_thread(process.stderr.readline)
    try:
        yield process.stdin, met
    finally:
        met.update(json.loads((await asyncio.to_thread(process.communicate))[0]))


async def measure(records: Records, place: Announcer, load: str, services: int, first: int) -> None:
    """Create Services one after another, and delete them in the end; ``first`` is the number of the first one."""
    created: dict[str, float] = {}
    numbers = range(first, first + services)
    async with place.changing(load), arriving(place, "--tries") as (asked, met):
        for number in numbers:
            ip = next(place.ips)
            asked.write(f"{ip}\n")
            asked.flush()
            created[ip] = time.monotonic()
            await place.create(f"new-{number}", WEB, ip)
            await asyncio.sleep(_EVERY_S)
    for number, ip in zip(numbers, created, strict=True):
        keys: dict[str, str | int] = {"load": load, "repetition": number}
        arrival, served = met[ip], met[ip]["served_at"]
        if not served:
            records.skip(SCENARIO, place.name, f"{CREATED}: not within 20 s", **keys)
            continue
        records.add(SCENARIO, place.name, CREATED, "ms", (served - created[ip]) * 1000, **keys)
        records.add(SCENARIO, place.name, GAP, "ms", (served - arrival["answered_at"]) * 1000, **keys)
        records.add(SCENARIO, place.name, CONNECTIONS, "", arrival["connections"], **keys)
        failures: list[str] = arrival["failures"]
        for how, failed in counted({kind: failures.count(kind) for kind in failures}).items():
            records.add(SCENARIO, place.name, FAILED[how], "", failed, **keys)
    await place.delete(*(f"new-{number}" for number in numbers))
