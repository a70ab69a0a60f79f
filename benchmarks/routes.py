"""How soon a router learns by BGP that an address is served: kube-nftlb with BIRD, and MetalLB in its native mode.

The router is FRR, and the time is that at which its kernel has the route to the first node, or to none any more.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from pyroute2 import IPRoute

from benchmarks import cluster
from benchmarks.announcers import METALLB_GROUP, POOLS, Announcer, pool_object
from benchmarks.records import Records
from benchmarks.rounds import interleaved
from benchmarks.scope import Scope
from benchmarks.subjects import METALLB, NFTABLES, NFTLB, Subject
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ADDRESS_POOLS, BGP_PEERS, ENDPOINT_SLICES, JsonObject, Resource
from lab.metallb import plan
from lab.routing.hops import hops
from lab.routing.plan import NODES_ASN, ROUTERS_ASN, plan_routers

SCENARIO: Final = "routes"
SUBJECTS: Final = (NFTABLES, NFTLB, METALLB)
ROUTED: Final = "endpoint ready until a router has a route"
UNROUTED: Final = "endpoint not ready until a router has no route"
_ROUTERS = 2
_ROUTER: Final = plan_routers(_ROUTERS)[-1]
"""The one whose sessions have no password."""
_RANGE, _IP = "192.0.2.0/24", "192.0.2.10"
_NAME: Final = "routed"
_EVERY_S, _WITHIN_S, _SETTLED_S = 0.002, 60.0, 1.0
_REPETITIONS_SHORT, _REPETITIONS = 1, 20
_PEERS = Resource(METALLB_GROUP, "v1beta2", "BGPPeer", "bgppeers")
_ADVERTISEMENTS = Resource(METALLB_GROUP, "v1beta1", "BGPAdvertisement", "bgpadvertisements")


class _Flip(NamedTuple):
    metric: str
    ready: bool


_FLIPS: Final = (_Flip(ROUTED, True), _Flip(UNROUTED, False))


def run(records: Records, scope: Scope) -> None:
    """Measure all subjects."""
    asyncio.run(_measure(records, _REPETITIONS if scope.full else _REPETITIONS_SHORT))


async def _measure(records: Records, repetitions: int) -> None:
    """Make the only endpoint of a Service ready and not ready, so many times each; the subjects take turns."""
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(_place(Subject(name))) for name in SUBJECTS]
        for repetition, place in interleaved(places, repetitions):
            for flip in _FLIPS:
                if (took := await _flipped(place, ready=flip.ready)) is None:
                    reason = f"{flip.metric}: not within {_WITHIN_S:.0f} s"
                    records.skip(SCENARIO, place.name, reason, repetition=repetition)
                else:
                    records.add(SCENARIO, place.name, flip.metric, "ms", took * 1000, repetition=repetition)
                await asyncio.sleep(_SETTLED_S)


@contextlib.asynccontextmanager
async def _place(subject: Subject) -> AsyncIterator[Announcer]:
    """Start a cluster whose nodes have sessions with the routers, and a Service without a ready endpoint."""
    lab = await asyncio.to_thread(subject.lab, "routes", nodes=3, announcing=True, routers=_ROUTERS)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            for resource, body in _objects(subject):
                await kube.create(resource, body, plan.NAMESPACE if resource.namespaced else None)
            place = Announcer(subject, lab, kube, iter([_IP]))
            await kube.create(ENDPOINT_SLICES, _slice(ready=False), "default")
            await place.announce(_NAME)
            # Until its sessions are established, the first route takes longer.
            for ready in (True, False):
                await _flipped(place, ready=ready)
            yield place
    finally:
        await asyncio.to_thread(lab.down)


def _objects(subject: Subject) -> list[tuple[Resource, JsonObject]]:
    """Return the objects with which a subject announces the address to the router."""
    router = str(_ROUTER.inside[0].ip)
    if subject.ours:
        pool = pool_object(ADDRESS_POOLS, ranges=[_RANGE], announce={"bgp": {}, "whenEmpty": "withdraw"})
        peer = pool_object(BGP_PEERS, address=router, asn=ROUTERS_ASN, myAsn=NODES_ASN)
        return [(ADDRESS_POOLS, pool), (BGP_PEERS, peer)]
    peer = pool_object(_PEERS, peerAddress=router, peerASN=ROUTERS_ASN, myASN=NODES_ASN)
    return [
        (POOLS, pool_object(POOLS, addresses=[_RANGE])),
        (_PEERS, peer),
        (_ADVERTISEMENTS, pool_object(_ADVERTISEMENTS)),
    ]


def _slice(*, ready: bool) -> JsonObject:
    made = cluster.endpoint_slice(_NAME, ["10.244.1.250"])
    made["endpoints"][0]["conditions"]["ready"] = ready
    return made


async def _flipped(place: Announcer, *, ready: bool) -> float | None:
    """Change the endpoint, and return after how many seconds the router's route followed; None if it did not."""
    watching = threading.Event()
    watch = asyncio.create_task(asyncio.to_thread(place.lab.inside, _ROUTER.name, lambda: _until(ready, watching.set)))
    await asyncio.to_thread(watching.wait)
    began = time.monotonic()
    body = {"endpoints": _slice(ready=ready)["endpoints"]}
    await place.kube.patch(ENDPOINT_SLICES, _NAME, body, "default")
    seen = await watch
    return seen - began if seen is not None else None


def _until(there: bool, begun: Callable[[], None]) -> float | None:
    """Return when this namespace first has a route to the address, or none; None if that takes too long."""
    with IPRoute() as netlink:
        begun()
        until = time.monotonic() + _WITHIN_S
        while (now := time.monotonic()) < until:
            if bool(hops(netlink, _IP)) == there:
                return now
            time.sleep(_EVERY_S)
    return None
