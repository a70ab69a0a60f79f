"""Which backends of a farm get connections, and which keep what they have. No I/O.

nftlb has priorities of its own, but makes them anew from what it has at each change: it forgets the farm's, and knows
nothing of backends that are not ready, which it never gets. So they are decided here.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kube_nftlb.agent.endpoints.topology import Endpoints, choose
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.nftlb.objects import BackendState


class Chosen(NamedTuple):
    """A backend that nftlb is to have, and the state that it has there."""

    backend: Backend
    state: BackendState


def chosen(spec: FarmSpec, facts: NodeFacts) -> Iterator[Chosen]:
    """The backends that nftlb is to have on a node, in their order.

    Those that the node uses are up; where it uses its own alone, the others are off, and so can be reached by who sets
    their mark (``steering``). A backend that drains is off as well: not scheduled, but still led to by sessions. One
    that is off or down, spare, or not ready is not in nftlb at all; nor is any of a farm that is off or down.
    """
    endpoints = candidates(spec, facts)
    scheduled = {backend.name for backend in endpoints.local or endpoints.cluster}
    reachable = {backend.name for backend in endpoints.cluster}
    for backend in spec.backends:
        if backend.name in scheduled:
            yield Chosen(backend, "off" if spec.state == "drain" else "up")
        elif backend.name in reachable or (spec.state in ("up", "drain") and _lingers(spec, backend)):
            yield Chosen(backend, "off")


def candidates(spec: FarmSpec, facts: NodeFacts) -> Endpoints:
    """The backends that may get connections on a node."""
    if spec.state in ("off", "down"):
        return Endpoints((), ())
    highest = priority_in_use(spec)
    able = [backend for backend in spec.backends if backend.state == "up" and backend.priority <= highest]
    return choose(able, spec.traffic_policy, facts)


def priority_in_use(spec: FarmSpec) -> int:
    """The highest priority of which backends get connections; those above it are spare."""
    able = [backend.priority for backend in spec.backends if _able(backend)]
    unable = [backend.priority for backend in spec.backends if not _able(backend)]
    highest = spec.priority
    while (further := spec.priority + sum(priority <= highest for priority in unable)) > highest:
        highest = further
    return max(highest, min(able, default=highest))


def cut_off(spec: FarmSpec) -> frozenset[str]:
    """The addresses of the backends whose open connections are to end."""
    return frozenset(backend.ip for backend in spec.backends if "down" in (spec.state, backend.state))


def remarks(spec: FarmSpec) -> str:
    """In a sentence, what of the spec has no effect though it is valid; else empty."""
    names = {backend.name for backend in spec.backends}
    for session in spec.sessions:
        if session.backend not in names:
            return f"the session of {session.client} names the backend {session.backend}, which the farm does not have"
    return ""


def _lingers(spec: FarmSpec, backend: Backend) -> bool:
    """Whether a backend that gets no new connections is still led to: it drains, or has UDP flows to answer.

    A client that a session would hold to one that terminates is not held.
    """
    if backend.state == "drain":
        return backend.ready
    flows = spec.protocol in ("UDP", "All") and spec.persistence == "none"
    return flows and backend.state == "up" and backend.serving and backend.terminating


def _able(backend: Backend) -> bool:
    return backend.ready and backend.state == "up"
