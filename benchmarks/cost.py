"""What operator, agent and nftlb cost: memory, processor time idle and while Services change, and starts.

kube-proxy is measured in the same way. An idle program may still compare farms with the kernel a minute after the last
change; that is waited for where everything is measured, and left out otherwise.
"""

import asyncio
import time
from typing import NamedTuple

from benchmarks import cluster
from benchmarks.cluster import NODE
from benchmarks.processes import usages
from benchmarks.records import Records
from kube_nftlb.kube import Kube
from kube_nftlb.lab.lab import Lab

SCENARIO = "cost"
PROXIES = ("kube-nftlb", "kube-proxy-nftables")

_ENDPOINTS = 10
_LOADED_WITHIN_S = 1800
_STARTED_WITHIN_S = 300


class _Extent(NamedTuple):
    services: tuple[int, ...]
    rest_s: int
    """How long nothing happens before the idle programs are looked at."""
    idle_s: int
    churn_s: int


_SHORT = _Extent((1000,), 10, 15, 15)
_FULL = _Extent((0, 1000, 8000), 240, 60, 60)


def run(records: Records, *, short: bool) -> None:
    """Measure each proxy, in a cluster of its own."""
    for proxy in PROXIES:
        asyncio.run(_measure(records, proxy, _SHORT if short else _FULL))


async def _measure(records: Records, proxy: str, extent: _Extent) -> None:
    lab = await asyncio.to_thread(Lab.up, f"bench-cost-{proxy}", nodes=1, proxy=proxy)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.run_pods(kube, {"web": 1})
            (pod,) = (await cluster.pods_of(kube, "web")).values()
            there = 0
            for services in extent.services:
                await cluster.create_others(kube, services - there, there, _ENDPOINTS)
                there = services
                await cluster.until_serves(lab, kube, f"loaded-{services}", pod, _LOADED_WITHIN_S)
                await _look(records, lab, kube, services, pod, extent)
    finally:
        await asyncio.to_thread(lab.down)


async def _look(records: Records, lab: Lab, kube: Kube, services: int, pod: str, extent: _Extent) -> None:
    if lab.proxy == "kube-nftlb":
        await cluster.until_in_sync(kube, _LOADED_WITHIN_S)
    await asyncio.sleep(extent.rest_s)
    await _use(records, lab, services, "idle", extent.idle_s)
    if services:
        async with cluster.steady_change(kube, services):
            await _use(records, lab, services, f"{cluster.CHANGES_PER_S} changes a second", extent.churn_s)
    for program in ("operator", "agent", "nftlb") if lab.proxy == "kube-nftlb" else ("kube-proxy",):
        began = time.monotonic()
        await asyncio.to_thread(lab.restart, program, None if program == "operator" else NODE)
        await cluster.until_serves(lab, kube, f"restarted-{program}-{services}", pod, _STARTED_WITHIN_S)
        seconds = time.monotonic() - began
        records.add(
            SCENARIO,
            lab.proxy,
            "restarted until a new Service answers",
            "s",
            seconds,
            services=services,
            process=program,
        )


async def _use(records: Records, lab: Lab, services: int, load: str, seconds: float) -> None:
    before, began = usages(lab), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = usages(lab), time.monotonic() - began
    for name, used in after.items():
        parameters: dict[str, str | int | float] = {
            "services": services,
            "endpoints": _ENDPOINTS,
            "load": load,
            "process": name,
        }
        share = (used.cpu_s - before[name].cpu_s) / passed * 100
        records.add(SCENARIO, lab.proxy, "processor time", "% of a core", share, **parameters)
        records.add(SCENARIO, lab.proxy, "memory", "MB", used.mb, **parameters)
