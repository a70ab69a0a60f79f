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
from kube_nftlb.kube import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES, Kube
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
            there = 0
            for services in extent.services:
                await cluster.create_others(kube, services - there, there, _ENDPOINTS)
                there = services
                await _until_answers(lab, kube, f"loaded-{services}", _LOADED_WITHIN_S)
                await _look(records, lab, kube, services, extent)
    finally:
        await asyncio.to_thread(lab.down)


async def _look(records: Records, lab: Lab, kube: Kube, services: int, extent: _Extent) -> None:
    if lab.proxy == "kube-nftlb":
        await _in_sync(kube)
    await asyncio.sleep(extent.rest_s)
    await _use(records, lab, services, "idle", extent.idle_s)
    if services:
        async with cluster.steady_change(kube, services):
            await _use(records, lab, services, f"{cluster.CHANGES_PER_S} changes a second", extent.churn_s)
    for program in ("operator", "agent", "nftlb") if lab.proxy == "kube-nftlb" else ("kube-proxy",):
        began = time.monotonic()
        await asyncio.to_thread(lab.restart, program, None if program == "operator" else NODE)
        await _until_answers(lab, kube, f"restarted-{program}-{services}", _STARTED_WITHIN_S)
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


async def _until_answers(lab: Lab, kube: Kube, name: str, within_s: float) -> None:
    """Create a Service, and wait until its VIP answers."""
    (pod,) = (await cluster.pods_of(kube, "web")).values()
    await kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(name, [pod]), "default")
    created = await kube.create(SERVICES, cluster.service(name, "", None), "default")
    vip = created["spec"]["clusterIP"]
    if not (await cluster.until(lab, "until-answers", vip, timeout_s=within_s))["answered"]:
        raise TimeoutError(f"a Service of {lab.proxy} did not answer within {within_s} s")


async def _in_sync(kube: Kube) -> None:
    """Wait until the node has everything that there is now."""
    farms = (await kube.list(FARMS)).items
    # From there on a farm has what it has now; its statuses alone have made it newer.
    since = (farm.get("status", {}).get("resourceVersion") or farm["metadata"]["resourceVersion"] for farm in farms)
    version = max(map(int, since))
    async with asyncio.timeout(_LOADED_WITHIN_S):
        while True:
            status = (await kube.get(NFTLB_NODES, NODE)).get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            if conditions.get("InSync") == "True" and int(status["watermark"]) >= version:
                return
            await asyncio.sleep(1)
