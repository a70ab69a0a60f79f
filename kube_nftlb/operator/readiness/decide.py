"""Decide if the nodes that count have programmed a gated Pod. No I/O."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple, Self

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.gates import SERVICES_MAX
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.model.gated_pods import GatedPod
from kube_nftlb.operator.model.pods import PodKey
from kube_nftlb.operator.readiness.senders import Sender, senders, shares, shown_name
from kube_nftlb.operator.status.farm_status import NO_NODES, waiting_for
from kube_nftlb.prose import some_of
from kube_nftlb.reasons import GateReason

_FARMS_MAX = 256
"""Maximum number of farms that a Pod waits for: each costs a look whenever a node reports."""


class Awaited(NamedTuple):
    """What nodes have to have of a farm for a Pod: its generation, and the resourceVersions of it and its endpoints."""

    uid: str
    generation: int
    farm: int
    endpoints: int


class Nodes(NamedTuple):
    """The nodes that count, summed up once for many Pods."""

    all: tuple[NodeRecord, ...]
    watermark: int
    slice_watermark: int
    failed: Mapping[FarmKey, tuple[int, str]]
    """The latest generation of a farm that failed, the first node on which it did, and why."""
    failed_namespaces: frozenset[str]

    @classmethod
    def of(cls, nodes: Iterable[NodeRecord]) -> Self:
        """Sum up nodes."""
        everywhere = tuple(sorted(nodes, key=lambda node: node.name))
        failed: dict[FarmKey, tuple[int, str]] = {}
        for node in everywhere:
            for (key, generation), why in node.failed.items():
                if key not in failed or failed[key][0] < generation:
                    failed[key] = generation, f"node {node.name}: {why.text}"
        return cls(
            everywhere,
            min((node.watermark for node in everywhere), default=0),
            min((node.slice_watermark for node in everywhere), default=0),
            failed,
            frozenset().union(*(node.failed_namespaces for node in everywhere)),
        )

    def lacking(self, awaited: Awaited) -> str | None:
        """Return which nodes have not come so far; None if all have."""
        if self.watermark >= awaited.farm and self.slice_watermark >= awaited.endpoints:
            return None
        missing = [
            node.name for node in self.all if node.watermark < awaited.farm or node.slice_watermark < awaited.endpoints
        ]
        return waiting_for(missing, len(self.all))


class Verdict(NamedTuple):
    """If a Pod may become ready, and why (not)."""

    programmed: bool
    reason: GateReason
    message: str
    unlisted: tuple[ServiceKey, ...] = ()
    """The Services whose farms do not list the Pod yet."""
    awaited: Mapping[Sender, Awaited] = {}
    """The versions it waits for, for the next time: later changes of the farms do not count."""


def decide(
    key: PodKey, pod: GatedPod, cache: Cache, nodes: Nodes, before: Mapping[Sender, Awaited] | None = None
) -> Verdict:
    """Decide on a Pod that waits for the gate alone; ``before`` is what an earlier verdict awaited.

    It waits for the farms of the Services that select it, and for those of routes that send these Services connections:
    not for those that no node programs because they are not accepted, nor for farms that people wrote by hand.
    """
    # Cut only then: Services without farms are no reason not to wait for the others.
    selecting = sorted(cache.service_index.selecting(key.namespace, pod.labels))
    services = [each for each in selecting if cache.is_served(each) or cache.farm_index.routed.get(each)][:SERVICES_MAX]
    if not services:
        return Verdict(True, "NotServed", "no Service with farms selects the pod")
    unlisted: list[ServiceKey] = []
    obstacles: list[str] = []
    awaited: dict[Sender, Awaited] = {}
    shown: dict[ServiceKey, set[str]] = {}
    for service in services:
        if lacking := cache.ports_without_farm(service):
            missing = lacking[0].plain_name
            obstacles.append(f"the farm {missing} does not exist yet; see kubectl describe service {service.name}")
        shown[service] = {endpoint.ip for each in cache.slices.index.of(service) for endpoint in each.endpoints}
    for farm, service, ip in islice(senders(pod, services, cache), _FARMS_MAX):
        name = shown_name(farm, service)
        if not all(ip in group.gated_ips for group in shares(farm, service)):
            unlisted.append(service)
            obstacles.append(f"the farm {name} does not have it yet")
        elif ip not in shown[service]:
            obstacles.append(f"the EndpointSlices of the Service {service.name} do not have {ip} yet")
        else:
            wanted = _awaited(farm, service, cache.slices.changed_at(service), before or {})
            awaited[farm.key, service] = wanted
            if why := _on_nodes(farm, name, wanted, nodes):
                obstacles.append(why)
    if obstacles:
        message = obstacles[0] + (f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else "")
        return Verdict(False, "Pending", message, tuple(dict.fromkeys(unlisted)), awaited)
    return Verdict(True, "AllNodes", f"all nodes that count ({len(nodes.all)}) have it", awaited=awaited)


def _awaited(farm: FarmRecord, service: ServiceKey, endpoints_at: int, before: Mapping[Sender, Awaited]) -> Awaited:
    known = before.get((farm.key, service))
    if known is not None and known.uid == farm.uid:
        return known
    return Awaited(farm.uid, farm.generation, farm.since, endpoints_at)


def _on_nodes(farm: FarmRecord, name: str, awaited: Awaited, nodes: Nodes) -> str | None:
    """Return why the nodes do not have a farm, shown by this name, as a Pod awaits it; None if they do."""
    if not nodes.all:
        return NO_NODES
    failure = nodes.failed.get(farm.key)
    # While a node says so, no later change of the farm has made up for it.
    if failure is not None and failure[0] >= awaited.generation:
        return f"the farm {name} failed on {failure[1]}"
    if farm.key.namespace in nodes.failed_namespaces:
        nodes_ = [node.name for node in nodes.all if farm.key.namespace in node.failed_namespaces]
        where = "the namespace" if name == farm.key.name else f"the namespace {farm.key.namespace}"
        return f"more farms of {where} failed than {some_of(nodes_, 1, 'nodes')} reports"
    if lacking := nodes.lacking(awaited):
        return f"farm {name}: {lacking}"
    return None
