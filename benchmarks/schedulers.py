"""Servers that wait for a second before they reply, the usual test of IPVS schedulers.

The lab's servers accept every connection, so this shows the cost of a scheduler, not how well it spreads connections:
the functional tests do that.
"""

import asyncio
import contextlib

from benchmarks import cluster, datapath, testbed
from benchmarks.datapath import USERS
from benchmarks.latency import has_ip_vs
from benchmarks.records import Records
from benchmarks.rounds import interleaved
from benchmarks.scope import Scope
from benchmarks.testbed import LAB_PORT, Place, Subject
from kube_nftlb.kube.resources import SERVICES

SCENARIO = "schedulers"

_SERVERS = 10
_SECONDS = 4
_SCHEDULERS = ("rr", "weight", "hash", "symhash")


def run(records: Records, scope: Scope) -> None:
    """Measure each of our schedulers, and each kube-proxy mode that the kernel supports."""
    asyncio.run(_run(records, rounds=5 if scope.full else 1))


async def _run(records: Records, rounds: int) -> None:
    proxies = ["kube-nftlb", "kube-proxy-nftables", "kube-proxy-iptables"]
    if has_ip_vs():
        proxies.append("kube-proxy-ipvs")
    else:
        records.skip(SCENARIO, "kube-proxy-ipvs", "the kernel has no ip_vs")
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(testbed.place_of(proxy, (_SERVERS,))) for proxy in proxies]
        subjects = [subject for place in places for subject in await _subjects(place)]
        for number, subject in interleaved(subjects, rounds):
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
        body = cluster.service(f"wait-{scheduler}1", vip, testbed.app_of(_SERVERS), annotations, LAB_PORT)
        await place.kube.create(SERVICES, body, "default")
        await cluster.until(place.lab, "until-answers", vip)
        found.append(Subject(f"{proxy} {scheduler}".strip(), place.servers, vip, 80))
    return found
