"""``python -m benchmarks.gateways``: routes for TCP, beside Envoy Gateway, which serves them by a proxy.

In one lab and in turns a pod tries how soon a new route is served, an endpoint is reached or no longer tried, and a
route is refused whose grant is gone; how long a request takes; and whether connections fail while weights change.
Prints a line for each figure; nothing is recorded. The first run builds Envoy Gateway.
"""

import asyncio
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from statistics import median

from benchmarks import cluster
from benchmarks.cluster import CLIENT_POD, TRAFFIC
from benchmarks.envoy_gateway import build, testbed
from benchmarks.envoy_gateway.testbed import NEW, OLD, SUBJECTS, TENANT, Asked, Testbed
from benchmarks.rounds import interleaved
from benchmarks.stats import ratio
from kube_nftlb import names
from kube_nftlb.kube.resources import ENDPOINT_SLICES, REFERENCE_GRANTS, SERVICES, TCP_ROUTES, JsonObject
from lab.traffic.ask import Target

_FIRST_BYTES, _CHANGES, _ROUNDS = 20, 10, 10
_REQUESTS = 200
"""Of each subject in each round."""
_WEIGHTED, _MOVING, _FOREIGN = range(_FIRST_BYTES, _FIRST_BYTES + 3)
"""The numbers of the Gateways that stay."""
_SETTLED_S = 0.5
_FELT_WITHIN_S, _IN_A_ROW = 30, 20
_WEIGHTS = ((50, 50), (0, 100), (100, 0))
_CONNECTIONS, _EACH_WEIGHT_S, _WEIGHTS_S = 10_000, 3.0, 300.0
_DIRECT = "direct to a pod"


def main() -> None:
    """Measure all."""
    asyncio.run(_measure())


async def _measure() -> None:
    programs = await asyncio.to_thread(build.ensure, print)
    peer = f"Envoy Gateway {build.version()} with Envoy {build.envoy_version()}"
    _say(f"{datetime.now(UTC):%Y-%m-%d}, {peer}", f"load averages {os.getloadavg()}")
    async with testbed.running(programs) as bed:
        one, another = (await cluster.pods_of(bed.kube, OLD)).values()
        for number, subject in enumerate(SUBJECTS):
            await _prepare(bed, subject, cluster.vip(210, number), one)
        await _in_turns(bed, _FIRST_BYTES, _first_byte)
        await _in_turns(bed, _CHANGES, lambda bed, subject, _: _move(bed, subject, one, another))
        await _in_turns(bed, _CHANGES, _revoke)
        await _request(bed, one)
        for subject in SUBJECTS:
            await _change_weights(bed, subject)
    _say("afterwards", f"load averages {os.getloadavg()}")


async def _prepare(bed: Testbed, subject: str, vip: str, address: str) -> None:
    """Create a Service with slices of its own, and the Gateways that stay."""
    own = _service_of(subject)
    await bed.kube.create(SERVICES, cluster.service(own, vip, None), "default")
    await bed.kube.create(ENDPOINT_SLICES, cluster.endpoint_slice(own, [address]), "default")
    await bed.add(subject, _WEIGHTED, _backend(OLD, 100), _backend(NEW, 0))
    await bed.add(subject, _MOVING, _backend(own))
    await bed.add(subject, _FOREIGN, {**_backend(own), "namespace": "default"}, namespace=TENANT)
    for number in (_WEIGHTED, _MOVING):
        await bed.answers(bed.target(subject, number))


async def _in_turns(
    bed: Testbed, rounds: int, measured: Callable[[Testbed, str, int], Awaitable[Mapping[str, float]]]
) -> None:
    """Measure milliseconds by what they are, of each subject in each round, and print them."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        for subject in SUBJECTS:
            await asyncio.sleep(_SETTLED_S)
            for what, value in (await measured(bed, subject, number)).items():
                found[what, subject].append(value)
    for (what, subject), values in sorted(found.items()):
        _say(f"{what}: {subject}", _spread(values))


async def _first_byte(bed: Testbed, subject: str, number: int) -> Mapping[str, float]:
    asking = asyncio.create_task(bed.answers(bed.target(subject, number)))
    await asyncio.sleep(_SETTLED_S)
    began = time.monotonic_ns()
    await bed.add(subject, number, _backend(OLD))
    return {"Gateway and route → first byte": _ms(began, await asking)}


async def _move(bed: Testbed, subject: str, one: str, another: str) -> Mapping[str, float]:
    """Give a route one endpoint more, then take it away."""
    pods = {address: name for name, address in (await cluster.pods_of(bed.kube, OLD)).items()}
    own, other = _service_of(subject), pods[another]

    async def have(*addresses: str) -> int:
        began = time.monotonic_ns()
        body = {"endpoints": cluster.endpoints_of(list(addresses))}
        await bed.kube.patch(ENDPOINT_SLICES, own, body, "default")
        return began

    async with bed.asking(bed.target(subject, _MOVING)) as asked:
        added = await have(one, another)
        await _until(lambda: any(each.pod == other for each in asked))
        await asyncio.sleep(_SETTLED_S)
        removed = await have(one)
        await _until(lambda: over(asked, removed, {other}))
    served = [each for each in asked if each.pod == other]
    return {
        "an endpoint more → reached": _ms(added, served[0].ended),
        "an endpoint less → its last connection": _ms(removed, served[-1].began),
    }


async def _revoke(bed: Testbed, subject: str, _: int) -> Mapping[str, float]:
    """Grant a route of another namespace its Service, then take the grant away."""
    source = [{"group": names.GATEWAY_API, "kind": TCP_ROUTES.kind, "namespace": TENANT}]
    to = [{"group": "", "kind": SERVICES.kind, "name": _service_of(subject)}]
    target, pods = bed.target(subject, _FOREIGN), await cluster.pods_of(bed.kube, OLD)
    began = time.monotonic_ns()
    await testbed.create(bed.kube, REFERENCE_GRANTS, subject, "default", **{"from": source, "to": to})
    granted = await bed.answers(target)
    await asyncio.sleep(_SETTLED_S)
    async with bed.asking(target) as asked:
        revoked = time.monotonic_ns()
        await bed.kube.delete(REFERENCE_GRANTS, subject, "default")
        await _until(lambda: over(asked, revoked, pods))
    last = max(each.began for each in asked if each.pod)
    return {"grant created → first byte": _ms(began, granted), "grant deleted → last connection": _ms(revoked, last)}


async def _request(bed: Testbed, address: str) -> None:
    """Print how long a request over a new connection takes, and its share of one without anything between."""
    targets = {_DIRECT: Target(address, 80, 1.0), **{each: bed.target(each, _MOVING) for each in SUBJECTS}}
    took: dict[str, list[float]] = defaultdict(list)
    for _, subject in interleaved(list(targets), _ROUNDS):
        asked: list[Asked] = []
        asking = partial(testbed.ask, targets[subject], asked, threading.Event(), _REQUESTS)
        await asyncio.to_thread(bed.lab.inside, CLIENT_POD, asking)
        took[subject].append(median(_ms(each.began, each.ended) for each in asked))
    for subject, values in took.items():
        share = ratio(values, took[_DIRECT])
        _say(f"a request, medians of {_REQUESTS}: {subject}", f"{_spread(values)}, {share.value:.2f} of direct")


async def _change_weights(bed: Testbed, subject: str) -> None:
    """Move all connections from one Service to another and back while they come, and print what failed."""
    target = bed.target(subject, _WEIGHTED)
    attempts, failed, answers = 0, defaultdict[str, int](int), defaultdict[str, int](int)
    began = time.monotonic()
    while attempts < _CONNECTIONS and time.monotonic() - began < _WEIGHTS_S:
        options = ("--timeout", "5", "--threads", "4")
        hammer = bed.lab.popen(CLIENT_POD, *TRAFFIC, "hammer", target.host, str(target.port), *options)
        with hammer:
            await asyncio.sleep(_EACH_WEIGHT_S)
            for old, new in _WEIGHTS:
                rules = [{"backendRefs": [_backend(OLD, old), _backend(NEW, new)]}]
                await bed.kube.patch(TCP_ROUTES, f"{subject}-{_WEIGHTED}", {"spec": {"rules": rules}}, "default")
                await asyncio.sleep(_EACH_WEIGHT_S)
            hammer.terminate()
            met = json.loads((await asyncio.to_thread(hammer.communicate, timeout=60))[0])
        attempts += met["attempts"]
        for total, part in ((failed, met["failed"]), (answers, met["answers"])):
            for key, number in part.items():
                total[key] += number
    moved = sum(number for pod, number in answers.items() if pod.startswith(f"{NEW}-"))
    _say(f"weights 100 → 0 → 100: {subject}", f"{dict(failed)} of {attempts} failed, {moved} reached the other Service")


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(_FELT_WITHIN_S):
        while not happened():  # noqa: ASYNC110 - it happens in a thread
            await asyncio.sleep(0.02)


def over(asked: Sequence[Asked], since: int, pods: Collection[str]) -> bool:
    """Return True if none of these pods answered the latest requests, all of which began later than ``since``."""
    latest = asked[-_IN_A_ROW:]
    return len(latest) == _IN_A_ROW and all(each.began > since and each.pod not in pods for each in latest)


def _backend(service: str, weight: int = 1) -> JsonObject:
    return {"name": service, "port": 80, "weight": weight}


def _service_of(subject: str) -> str:
    return f"of-{subject}"


def _ms(began: int, ended: int) -> float:
    return (ended - began) / 1e6


def _spread(values: Sequence[float]) -> str:
    return f"median {median(values):.2f} ms ({min(values):.2f} to {max(values):.2f}), n = {len(values)}"


def _say(what: str, figures: str) -> None:
    print(f"{what:60} {figures}", flush=True)


if __name__ == "__main__":
    main()
