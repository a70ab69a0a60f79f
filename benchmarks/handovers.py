"""What a client that connects all the time notices when an address moves: with its endpoints, or as its node fails."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, Final

from benchmarks import cluster
from benchmarks.announcers import LOCAL, SCENARIO, STEADY, Announcer
from benchmarks.cluster import DEPLOYMENTS, TRAFFIC
from benchmarks.new_addresses import counted
from benchmarks.records import Records
from kube_nftlb.kube.resources import PODS, JsonObject
from lab.places import CLIENT, SWITCH

MOVE, RESTART = "the only endpoint moves", "rolling restart"
"""Of a Service with externalTrafficPolicy Local: one pod, or three on three nodes."""
POWER_OFF, LINK_DOWN = "power off", "link down"
CONNECTIONS: Final = "connections meanwhile"
FAILED: Final = {
    "refused": "connections meanwhile refused",
    "timed out": "connections meanwhile timed out",
    "cut or unreachable": "connections meanwhile otherwise failed",
}
"""The metrics of connections that failed, by how; a node resets those that another one accepted, for example."""
LONGEST: Final = "longest time without a connection"
ANEW: Final = "failure until a client is connected anew"
_REPLICAS: Final = {MOVE: 1, RESTART: 3}
_GRACE_S: Final = 5
"""A pod goes on serving for so long once it is deleted."""
_LATER_EACH_TIME_S: Final = 0.1
"""Other nodes ask every half second from about when the Service is made: so not all failures come just after that."""
_ROLLED_WITHIN_S, _SETTLED_S, _MENDED_S = 60, 3, 10


async def roll(records: Records, place: Announcer, what: str, repetition: int) -> None:
    """Replace the pods of a Service while others change, the successor of each first; a single one on another node."""
    name = f"rolling-{repetition}-{_REPLICAS[what]}"
    await place.kube.create(DEPLOYMENTS, _rolling(name, what, 0), "default")
    await _rolled_out(place, name, _REPLICAS[what])
    ip = await place.announce(name, name, externalTrafficPolicy="Local")
    keys: dict[str, str | int] = {"change": what, "repetition": repetition}
    if await place.answered(ip):
        async with place.changing(STEADY), _hammered(place, ip) as met:
            await place.kube.patch(DEPLOYMENTS, name, {"spec": _rolling(name, what, 1)["spec"]}, "default")
            await _rolled_out(place, name, _REPLICAS[what])
            await asyncio.sleep(1)
        records.add(SCENARIO, place.name, CONNECTIONS, "", met["attempts"], **keys)
        for how, failed in counted(met["failed"]).items():
            records.add(SCENARIO, place.name, FAILED[how], "", failed, **keys)
        records.add(SCENARIO, place.name, LONGEST, "ms", met["longest_gap_ms"], **keys)
    else:
        records.skip(SCENARIO, place.name, f"{what}: the address did not answer before", **keys)
    await place.delete(name)
    await place.kube.delete(DEPLOYMENTS, name, "default")


async def fail(records: Records, place: Announcer, fault: str, repetition: int) -> None:
    """Let the node fail to which a client connects, and mend it. Each node serves clients with a pod of its own."""
    name = f"failing-{repetition}-{fault.replace(' ', '-')}"
    keys: dict[str, str | int] = {"fault": fault, "repetition": repetition}
    ip = await place.announce(name, LOCAL, externalTrafficPolicy="Local")
    answered = await place.answered(ip)
    if answered:
        await asyncio.sleep(_SETTLED_S)
        node = place.holder(ip)
        async with _hammered(place, ip, "--timeout", "0.1") as met:
            await asyncio.sleep(1 + _LATER_EACH_TIME_S * repetition)
            with _failed(place, node, fault):
                answered = await place.answered(ip)
                await asyncio.sleep(1)
    if answered:
        records.add(SCENARIO, place.name, ANEW, "ms", met["longest_gap_ms"], **keys)
    else:
        records.skip(SCENARIO, place.name, f"{fault}: the address does not answer within a minute", **keys)
    await place.delete(name)
    await asyncio.sleep(_MENDED_S)


@contextlib.contextmanager
def _failed(place: Announcer, node: str, fault: str) -> Any:
    """Take the link of a node down for a block; with POWER_OFF its programs are killed, too."""
    place.lab.exec(SWITCH, "ip", "link", "set", node, "down")
    try:
        if fault == POWER_OFF:
            for program in place.on_nodes:
                os.kill(place.lab.pid(program, node), signal.SIGKILL)
        yield
    finally:
        place.lab.exec(SWITCH, "ip", "link", "set", node, "up")


@contextlib.asynccontextmanager
async def _hammered(place: Announcer, ip: str, *options: str) -> AsyncIterator[dict[str, Any]]:
    """Have a client connect all the time during a block; the result is filled in after it."""
    met: dict[str, Any] = {}
    process = place.lab.popen(CLIENT, *TRAFFIC, "hammer", ip, "80", *options)
    assert process.stderr  # noqa: S101 - narrows the type
    await asyncio.to_thread(process.stderr.readline)
    try:
        yield met
    finally:
        process.terminate()
        met.update(json.loads((await asyncio.to_thread(process.communicate))[0]))


def _rolling(name: str, what: str, number: int) -> JsonObject:
    made = cluster.deployment(name, _REPLICAS[what])
    made["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = {"number": str(number)}
    template["spec"]["terminationGracePeriodSeconds"] = _GRACE_S
    if what == MOVE:
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"node-{number + 1}"}
    return made


async def _rolled_out(place: Announcer, name: str, replicas: int) -> None:
    """Wait until a Deployment has its pods, and those before them are gone. Raises TimeoutError."""
    async with asyncio.timeout(_ROLLED_WITHIN_S):
        while True:
            made = await place.kube.get(DEPLOYMENTS, name, "default")
            ready = made.get("status", {}).get("readyReplicas") == replicas
            seen = made.get("status", {}).get("observedGeneration") == made["metadata"]["generation"]
            pods = (await place.kube.list(PODS, "default", label_selector=f"app={name}")).items
            if ready and seen and len(pods) == replicas:
                return
            await asyncio.sleep(0.2)
