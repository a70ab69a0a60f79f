"""Which ports answer whether this node has endpoints of a Service (healthCheckNodePort), and what. No I/O."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import Farm
from kube_nftlb.http_server import Answer
from kube_nftlb.kube.events import Subject
from kube_nftlb.kube.resources import FARMS, SERVICES


class Claim(NamedTuple):
    """One farm's wish to have a port answered."""

    port: int
    created: float
    subject: Subject
    """The Service that the farm was made from; the farm itself where somebody wrote it by hand."""
    family: Family
    local_ips: frozenset[str]
    """The addresses of the backends on this node that get new connections."""


class Check(NamedTuple):
    """What is answered on a port."""

    subject: Subject
    local_endpoints: int


class Refused(NamedTuple):
    """A port that an object does not get, because it is another one's."""

    subject: Subject
    port: int
    holder: Subject


def claim(farm: Farm, node: str) -> Claim | None:
    """A farm's claim on the node of that name; None where it has no healthCheckNodePort."""
    if farm.spec.health_check_node_port is None:
        return None
    created = farm.metadata.creation_timestamp
    return Claim(
        farm.spec.health_check_node_port,
        created.timestamp() if created is not None else 0,
        _subject(farm),
        farm.spec.family,
        frozenset(
            backend.ip
            for backend in farm.spec.backends
            if backend.ready and backend.state == "up" and farm.spec.state == "up" and backend.node_name == node
        ),
    )


def decide(claims: Iterable[Claim]) -> tuple[dict[int, Check], list[Refused]]:
    """What is answered on each port: for all farms of a Service together.

    Of two Services the older one has it, and any Service before a farm that somebody wrote by hand.
    """
    by_port: defaultdict[int, list[Claim]] = defaultdict(list)
    for entry in claims:
        by_port[entry.port].append(entry)
    checks, refused = dict[int, Check](), list[Refused]()
    for port, wanted in by_port.items():
        holder = min(wanted, key=_rank).subject
        checks[port] = Check(holder, _count(entry for entry in wanted if entry.subject == holder))
        losers = {entry.subject for entry in wanted} - {holder}
        refused.extend(Refused(loser, port, holder) for loser in sorted(losers))
    return checks, refused


def answer(check: Check, *, proxy_healthy: bool) -> Answer:
    """200 where the node has a ready endpoint of its own, and its agent is healthy."""
    return Answer(
        200 if check.local_endpoints and proxy_healthy else 503,
        {
            "service": {"namespace": check.subject.namespace, "name": check.subject.name},
            "localEndpoints": check.local_endpoints,
            "serviceProxyHealthy": proxy_healthy,
        },
        (("X-Load-Balancing-Endpoint-Weight", str(check.local_endpoints)),),
    )


def _subject(farm: Farm) -> Subject:
    metadata = farm.metadata
    if (owner := metadata.service) is not None:
        return Subject(SERVICES, metadata.namespace, owner.name, owner.uid)
    return Subject(FARMS, metadata.namespace, metadata.name, metadata.uid)


def _rank(entry: Claim) -> tuple[bool, float, Subject]:
    return entry.subject.resource != SERVICES, entry.created, entry.subject


def _count(claims: Iterable[Claim]) -> int:
    """A pod counts once, however many ports and families it serves."""
    ips: defaultdict[Family, set[str]] = defaultdict(set)
    for entry in claims:
        ips[entry.family] |= entry.local_ips
    return max(len(family) for family in ips.values())
