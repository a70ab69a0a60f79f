"""Addresses of Services, announced on the client's own segment: how soon, and how safely.

Three nodes announce them, by kube-nftlb or by MetalLB beside kube-proxy, each in a cluster of its own. They take turns.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks import handovers, new_addresses
from benchmarks.announcers import IDLE, STEADY, announcer
from benchmarks.handovers import LINK_DOWN, MOVE, POWER_OFF, RESTART
from benchmarks.records import Records
from benchmarks.rounds import interleaved, rotated
from benchmarks.scope import Scope
from benchmarks.subjects import ANNOUNCING, METALLB, METALLB_EAGER, NFTABLES, Subject

SUBJECTS: Final = tuple(map(Subject, ANNOUNCING))
_SOME: Final = (Subject(NFTABLES), Subject(METALLB))


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


_SHORT = _Extent(_SOME, 1, 5, 1, 1, 1, (POWER_OFF,))
_FULL = _Extent(SUBJECTS, 5, 5, 10, 5, 5, (POWER_OFF, LINK_DOWN))


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
