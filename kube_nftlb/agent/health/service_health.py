"""Decide the answers on healthCheckNodePorts: if this node has endpoints of a Service. No I/O."""

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from kube_nftlb.agent.endpoints import selection
from kube_nftlb.api.base import Family
from kube_nftlb.api.conflicts import FarmKey, Rank, farm_key, rank
from kube_nftlb.api.farm import Farm
from kube_nftlb.http_server import Answer
from kube_nftlb.kube.events import Subject
from kube_nftlb.kube.resources import FARMS, SERVICES


class PortRequest(NamedTuple):
    """The healthCheckNodePort of a farm."""

    port: int
    farm: FarmKey
    rank: Rank
    subject: Subject
    """The Service of the farm, or the farm itself if it was written by hand."""
    family: Family
    local_ips: frozenset[str]
    """The addresses of the backends on this node that get new connections."""


class Check(NamedTuple):
    """The health check on a port."""

    subject: Subject
    local_endpoints: int
    farms: frozenset[FarmKey] = frozenset()


class PortConflict(NamedTuple):
    """A port that an object does not get, because another object owns it."""

    subject: Subject
    port: int
    owner: Subject


def port_request(farm: Farm, node: str) -> PortRequest | None:
    """Return the request of a farm on a node; None if the farm has no healthCheckNodePort."""
    if farm.spec.health_check_node_port is None:
        return None
    return PortRequest(
        farm.spec.health_check_node_port,
        farm_key(farm),
        rank(farm),
        _subject(farm),
        farm.spec.family,
        frozenset(
            backend.ip
            for backend in selection.in_use(farm.spec)
            if backend.ready and backend.node_name == node and farm.spec.state == "up"
        ),
    )


def decide(requests: Iterable[PortRequest]) -> tuple[dict[int, Check], list[PortConflict]]:
    """Return the check on each port, for all farms of a Service together, and the conflicts.

    Of two Services the older one gets the port, and any Service before a farm written by hand.
    """
    by_port: defaultdict[int, list[PortRequest]] = defaultdict(list)
    for entry in requests:
        by_port[entry.port].append(entry)
    checks, conflicts = dict[int, Check](), list[PortConflict]()
    for port, wanted in by_port.items():
        owner = min(wanted, key=attrgetter("rank")).subject
        owned = [entry for entry in wanted if entry.subject == owner]
        checks[port] = Check(owner, _count(owned), frozenset(entry.farm for entry in owned))
        losers = {entry.subject for entry in wanted} - {owner}
        conflicts.extend(PortConflict(loser, port, owner) for loser in sorted(losers))
    return checks, conflicts


def answer(check: Check, *, proxy_healthy: bool) -> Answer:
    """Answer 200 if the node has a ready local endpoint and its agent has programmed the Service in time."""
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


def _count(requests: Iterable[PortRequest]) -> int:
    """Return the number of pods; each counts once, whatever its ports and families."""
    ips: defaultdict[Family, set[str]] = defaultdict(set)
    for entry in requests:
        ips[entry.family] |= entry.local_ips
    return max(len(family) for family in ips.values())
