"""Servers that wait for a second before they reply, the usual test of IPVS schedulers.

The lab's servers accept every connection, so this shows the cost of a scheduler, not how well it spreads connections:
the functional tests do that.
"""

import asyncio
import contextlib

from benchmarks import cluster, datapath, testbed
from benchmarks.datapath import USERS
from benchmarks.records import Records
from benchmarks.rounds import interleaved
from benchmarks.scope import Scope
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB, Subject
from benchmarks.testbed import LAB_PORT, Place, Target
from kube_nftlb.kube.resources import SERVICES

SCENARIO = "schedulers"

SUBJECTS = (Subject(NFTLB), Subject(NFTABLES), Subject(KUBE_PROXY))
_SERVERS = 10
_SECONDS = 4
_SCHEDULERS = ("rr", "weight", "hash", "symhash")


def run(records: Records, scope: Scope) -> None:
    """Measure each of our schedulers with each engine, and kube-proxy."""
    asyncio.run(_run(records, rounds=5 if scope.full else 1))


async def _run(records: Records, rounds: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(testbed.place_of(subject, (_SERVERS,))) for subject in SUBJECTS]
        targets = [target for place in places for target in await _targets(place)]
        for number, target in interleaved(targets, rounds):
            url = f"http://{target.host}:{target.port}/wait?seconds=1"
            result = await asyncio.to_thread(target.servers.k6, url, USERS, _SECONDS, keep_alive=False)
            keys: dict[str, str | int] = {
                "servers": _SERVERS,
                "users": USERS,
                "connections": "new for each request",
                "tool": "k6",
                "waits": 1,
            }
            datapath.record(records, target.name, result, {**keys, "round": number}, SCENARIO)


async def _targets(place: Place) -> list[Target]:
    found: list[Target] = []
    for scheduler in _SCHEDULERS if place.subject.ours else ("",):
        annotations = {cluster.SCHEDULER: scheduler} if scheduler else {}
        vip = cluster.vip(210, len(found))
        body = cluster.service(f"wait-{scheduler}1", vip, testbed.app_of(_SERVERS), annotations, LAB_PORT)
        await place.kube.create(SERVICES, body, "default")
        await cluster.until(place.lab, "until-answers", vip)
        found.append(Target(f"{place.subject.name} {scheduler}".strip(), place.servers, vip, 80))
    return found
