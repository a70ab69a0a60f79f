"""Select backends by topology, as kube-proxy does (KEP-1669, KEP-2086, KEP-2433, KEP-3015). No I/O."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.values import TrafficPolicy


class Endpoints(NamedTuple):
    """The backends for connections that may leave the node, and the backends of the node itself."""

    cluster: tuple[Backend, ...]
    local: tuple[Backend, ...]


def choose(backends: Sequence[Backend], policy: TrafficPolicy, facts: NodeFacts) -> Endpoints:
    """Return both lists for a node; ``local`` is empty with the traffic policy Cluster, which does not use it.

    Each list has the ready backends; if there are none, those that serve while they terminate. Hints count for
    ``cluster`` alone, and only while every ready backend has some and one is meant for this node or zone.
    """
    ready = [backend for backend in backends if backend.ready]
    cluster = _preferred(ready, facts) or last_resort(backends)
    if policy == "Cluster":
        return Endpoints(tuple(cluster), ())
    here = [backend for backend in backends if backend.node_name == facts.name]
    local = [backend for backend in here if backend.ready] or last_resort(here)
    return Endpoints(tuple(cluster), tuple(local))


def last_resort(backends: Iterable[Backend]) -> list[Backend]:
    """Return the backends that are used if none is ready: those that serve while they terminate."""
    return [backend for backend in backends if backend.serving and backend.terminating]


def _preferred(ready: list[Backend], facts: NodeFacts) -> list[Backend]:
    """Return the ready backends hinted for this node, else for its zone, else all."""
    hints: tuple[tuple[str, Callable[[Backend], tuple[str, ...]]], ...] = (
        (facts.name, lambda backend: backend.for_nodes),
        (facts.zone, lambda backend: backend.for_zones),
    )
    for own, named in hints:
        if own and all(named(backend) for backend in ready):
            chosen = [backend for backend in ready if own in named(backend)]
            if chosen:
                return chosen
    return ready
