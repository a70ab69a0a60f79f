"""Servers that wait for a second before they answer, as the field tests the schedulers of IPVS.

The lab's servers take all who come, so this shows what a scheduler costs, and not how well it spreads them: that is
for the functional tests.
"""

import asyncio
import contextlib

from benchmarks import cluster, datapath
from benchmarks.datapath import LAB_PORT, USERS, Place, Subject
from benchmarks.latency import has_ip_vs
from benchmarks.options import Options
from benchmarks.records import Records
from benchmarks.turns import turns
from kube_nftlb.kube.resources import SERVICES

SCENARIO = "schedulers"

_SERVERS = 10
_SECONDS = 4
_SCHEDULERS = ("rr", "weight", "hash", "symhash")


def run(records: Records, options: Options) -> None:
    """Measure each of our schedulers, and each kube-proxy that the kernel has."""
    asyncio.run(_run(records, rounds=5 if options.full else 1))


async def _run(records: Records, rounds: int) -> None:
    proxies = ["kube-nftlb", "kube-proxy-nftables", "kube-proxy-iptables"]
    if has_ip_vs():
        proxies.append("kube-proxy-ipvs")
    else:
        records.skip(SCENARIO, "kube-proxy-ipvs", "the kernel has no ip_vs")
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(datapath.place_of(proxy, (_SERVERS,))) for proxy in proxies]
        subjects = [subject for place in places for subject in await _subjects(place)]
        for number, subject in turns(subjects, rounds):
            url = f"http://{subject.host}:{subject.port}/wait?seconds=1"
            result = await asyncio.to_thread(subject.servers.k6, url, USERS, _SECONDS, keep_alive=False)
            keys: dict[str, str | int] = {
                "servers": _SERVERS,
                "users": USERS,
                "connections": "new for each request",
                "tool": "k6",
                "waits": 1,
            }
            datapath.record(records, subject.name, result, {**keys, "round": number}, SCENARIO)


async def _subjects(place: Place) -> list[Subject]:
    proxy = place.lab.proxy
    found: list[Subject] = []
    for scheduler in _SCHEDULERS if proxy == "kube-nftlb" else ("",):
        annotations = {cluster.SCHEDULER: scheduler} if scheduler else {}
        vip = cluster.vip(210, len(found))
        body = cluster.service(f"wait-{scheduler}1", vip, datapath.app_of(_SERVERS), annotations, LAB_PORT)
        await place.kube.create(SERVICES, body, "default")
        await cluster.until(place.lab, "until-answers", vip)
        found.append(Subject(f"{proxy} {scheduler}".strip(), place.servers, vip, 80))
    return found
