"""Select the backends of a farm that get connections, and those that keep what they have. Pure: no I/O.

States and priorities are decided here, as engines do not know about backends that are not ready.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.agent.endpoints.topology import Endpoints, choose
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import FarmSpec

ANSWERS: Final = frozenset(("up", "drain"))
"""The states in which a farm or a backend answers the connections that it has."""


class NodeBackend(NamedTuple):
    """A backend that this node uses.

    One that is not schedulable gets no new connections from the scheduler, but keeps those it has, and stays reachable
    for sessions and for clients of this node.
    """

    backend: Backend
    schedulable: bool


class Group(NamedTuple):
    """Backends that get a share of a farm's new connections, and are chosen among as if they were all of it."""

    number: int
    """The position of the reference."""
    weight: int
    spec: FarmSpec
    """The farm's, with these backends alone."""


def groups(spec: FarmSpec) -> tuple[Group, ...]:
    """Return the groups of a farm that get connections. Backends that are written by hand are one."""
    references = spec.backends_from
    if len(references) <= 1:
        weight = references[0].weight if references else 1
        return (Group(0, weight, spec),) if weight else ()
    of: dict[int, list[Backend]] = {}
    for backend in spec.backends:
        of.setdefault(backend.group, []).append(backend)
    return tuple(
        Group(number, each.weight, spec.model_copy(update={"backends": tuple(of.get(number, ()))}))
        for number, each in enumerate(references)
        if each.weight
    )


def select(spec: FarmSpec, endpoints: Endpoints) -> Iterator[NodeBackend]:
    """Yield the endpoints that a node uses, in the order of the spec; ``endpoints`` are its ``candidates``.

    Those that the traffic policy allows are schedulable. If the node schedules only its own, its own clients can still
    reach the others. A backend that drains is not schedulable either, but keeps its sessions. One that is off
    or down, on standby, or not ready is not used at all; nor is any of a farm that is off or down.
    """
    scheduled = {backend.name for backend in endpoints.local or endpoints.cluster}
    reachable = {backend.name for backend in endpoints.cluster}
    for backend in spec.backends:
        if backend.name in scheduled:
            yield NodeBackend(backend, schedulable=spec.state != "drain")
        elif backend.name in reachable or (spec.state in ANSWERS and _lingers(spec, backend)):
            yield NodeBackend(backend, schedulable=False)


def candidates(spec: FarmSpec, facts: NodeFacts) -> Endpoints:
    """Return the backends that may get connections on a node."""
    return choose(able(spec), spec.traffic_policy, facts)


def able(spec: FarmSpec) -> list[Backend]:
    """Return the backends of a group that may get connections on some node, if they are ready."""
    if spec.state not in ANSWERS:
        return []
    highest = priority_in_use(spec)
    return [backend for backend in spec.backends if backend.state == "up" and backend.priority <= highest]


def in_use(spec: FarmSpec) -> list[Backend]:
    """Return the backends of all groups that may get connections on some node, if they are ready."""
    return [backend for group in groups(spec) for backend in able(group.spec)]


def priority_in_use(spec: FarmSpec) -> int:
    """Return the highest priority in use; backends above it are on standby."""
    available = [backend.priority for backend in spec.backends if _available(backend)]
    unavailable = [backend.priority for backend in spec.backends if not _available(backend)]
    highest = spec.priority
    while (further := spec.priority + sum(priority <= highest for priority in unavailable)) > highest:
        highest = further
    return max(highest, min(available, default=highest))


def cut_off(spec: FarmSpec) -> frozenset[str]:
    """Return the addresses of backends whose open connections must end."""
    return frozenset(backend.ip for backend in spec.backends if "down" in (spec.state, backend.state))


def answering(spec: FarmSpec) -> Iterator[Backend]:
    """Yield the backends that may go on answering UDP flows: all that serve, also those that get no new connections.

    Neither hints, priorities nor the traffic policy end a flow. A state does, and a group without weight.
    """
    if spec.state in ANSWERS:
        for group in groups(spec):
            yield from (each for each in group.spec.backends if answers(each))


def answers(backend: Backend) -> bool:
    """Return True if a backend answers the connections that it has."""
    return backend.state in ANSWERS and (backend.ready or (backend.serving and backend.terminating))


def may_drain(spec: FarmSpec) -> bool:
    """Return True if a backend of a farm may drain. Cheap: the backends that it refers to need not be resolved."""
    return spec.state == "drain" or any(each.state == "drain" for each in spec.backend_options)


def warning(spec: FarmSpec) -> str | None:
    """Return what part of a valid spec has no effect, or None."""
    names = {backend.name for backend in spec.backends}
    for session in spec.sessions:
        if session.backend not in names:
            return f"the session of {session.client} names the backend {session.backend}, which the farm does not have"
    return None


def _lingers(spec: FarmSpec, backend: Backend) -> bool:
    """Return True if a backend without new connections stays reachable: it drains, or has UDP flows to answer.

    Sessions do not hold clients to a terminating backend.
    """
    if backend.state == "drain":
        return backend.ready
    flows = spec.protocol in ("UDP", "All") and spec.persistence == "none"
    return flows and backend.state == "up" and backend.serving and backend.terminating


def _available(backend: Backend) -> bool:
    return backend.ready and backend.state == "up"
