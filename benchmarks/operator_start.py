"""Start-up of an operator: how long it takes to ingest a cluster, and how much memory.

The node's agent and nftlb are stopped: programming the farms takes longer, and other scenarios measure it.
"""

import asyncio
import time

from benchmarks import cluster, series
from benchmarks.cluster import NODE
from benchmarks.processes import PEAK, usages
from benchmarks.records import Records
from benchmarks.scope import Scope
from benchmarks.subjects import NFTLB
from kube_nftlb import errors
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, SERVICES
from lab.lab import Lab

SCENARIO = "intake"

_ENDPOINTS = 10
_RESTARTS = 3
_FARM_WITHIN_S = 1200
_LOOK_EVERY_S = 0.05


def sizes(full: bool) -> tuple[int, ...]:
    """Return the numbers of Services."""
    return (1000, 8000) if full else (1000,)


def run(records: Records, scope: Scope) -> None:
    """Measure with few Services and with many."""
    asyncio.run(_measure(records, scope.select(sizes(scope.full))))


async def _measure(records: Records, numbers: tuple[int, ...]) -> None:
    lab = await asyncio.to_thread(Lab.up, "bench-intake", nodes=1)
    try:
        for program in ("agent", "nftlb"):
            await asyncio.to_thread(lab.stop, program, NODE)
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            there = 0
            for services in numbers:
                await cluster.create_others(kube, services - there, there, _ENDPOINTS)
                there = services
                await _until_farms(kube, services)
                for repetition in range(_RESTARTS):
                    await _restart(records, lab, kube, services, repetition)
    finally:
        await asyncio.to_thread(lab.down)


async def _restart(records: Records, lab: Lab, kube: Kube, services: int, repetition: int) -> None:
    name = f"late-{services}-{repetition}"
    await asyncio.to_thread(lab.stop, "operator")
    await kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, ["10.250.0.1"]), "default")
    await kube.create(SERVICES, cluster.service(name, cluster.single_vip(), None), "default")
    began = time.monotonic()
    await asyncio.to_thread(lab.start, "operator")
    await _until_farm(kube, f"{name}--http")
    keys = {"services": services, "endpoints": _ENDPOINTS, "repetition": repetition}
    records.add(SCENARIO, NFTLB, series.OPERATOR_STARTED, "s", time.monotonic() - began, **keys)
    used = usages(lab, ("operator",))["operator"]
    records.add(SCENARIO, NFTLB, PEAK, "MB", used.peak_mb, **keys, process="operator")
    records.add(SCENARIO, NFTLB, "processor time", "s", used.cpu_s, **keys, process="operator")


async def _until_farm(kube: Kube, name: str) -> None:
    async with asyncio.timeout(_FARM_WITHIN_S):
        while True:
            try:
                await kube.get(FARMS, name, "default")
            except errors.NotFoundError:
                await asyncio.sleep(_LOOK_EVERY_S)
            else:
                return


async def _until_farms(kube: Kube, number: int) -> None:
    """Wait for the farm of the last Service, then for all others, which a queue may have put behind it."""
    await _until_farm(kube, f"other-{number - 1}--http")
    async with asyncio.timeout(_FARM_WITHIN_S):
        while len((await kube.list(FARMS, "default")).items) < number:  # noqa: ASYNC110 - farms are the API server's
            await asyncio.sleep(1)
