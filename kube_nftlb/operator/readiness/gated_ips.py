"""The IPs of gated Pods that the farms of a Service list, and those of routes to it. No I/O."""

from collections.abc import Iterator, Set
from itertools import chain

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.farm import GATED_IPS_MAX
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.model.pods import selects

GatedIPs = dict[Family, list[str]]


def counting_nodes(cache: Cache) -> list[NodeRecord]:
    """Return the nodes that count: those whose Node exists and is ready, with an agent that can work."""
    return [node for node in cache.working_nodes() if cache.core_nodes.get(node.name) is not None]


def gated_ips(cache: Cache, service: ServiceKey) -> GatedIPs:
    """Return the IPs that the farms of a Service, and of routes to it, are to list, sorted, by family.

    They are those of the Pods that wait for the gate alone and whose turn it is, and of those that no longer wait,
    until all nodes that count know from the EndpointSlices that they are ready.
    """
    found: GatedIPs = {family: [] for family in FAMILIES}
    if (known := cache.services.get(service)) is None or not cache.gates.pods.keys():
        return found
    selector = known.spec.selector
    listed = dict.fromkeys((family, ip) for family, ips in _lists(cache, service) for ip in ips)
    arrived = _arrived(cache, service, {ip for _, ip in listed})
    for family, ip in listed:
        pod = cache.gates.at(service.namespace, ip)
        held = pod is not None and pod.prepared and pod.programmed and selects(selector, pod.labels)
        if held and ip not in arrived:
            found[family].append(ip)
    for key in cache.gates.turn(service.namespace):
        pod = cache.gates.pods.get(key)
        if pod is not None and selects(selector, pod.labels):
            for family, ip in pod.ips.items():
                found[family].append(ip)
    return {family: sorted(dict.fromkeys(ips[:GATED_IPS_MAX])) for family, ips in found.items()}


def is_listed_as_wanted(cache: Cache, service: ServiceKey) -> bool:
    """Return True if the farms of a Service, and of routes to it, list what they are to list."""
    wanted = gated_ips(cache, service)
    return all(sorted(ips) == wanted[family] for family, ips in _lists(cache, service))


def _lists(cache: Cache, service: ServiceKey) -> Iterator[tuple[Family, tuple[str, ...]]]:
    """Yield the lists of farms with the IPs of a Service's Pods, with their family, also those that are empty."""
    for farm in chain(cache.farms_of(service), cache.farms_of_routes(service)):
        if (reference := farm.reference) is not None:
            for group in farm.groups_of(service):
                yield reference.family, group.gated_ips


def _arrived(cache: Cache, service: ServiceKey, listed: Set[str]) -> Set[str]:
    """Return the listed IPs that all nodes that count know from the EndpointSlices to be ready.

    Later changes of the slices do not count: some may change all the time.
    """
    slices = cache.slices.index.of(service) if listed else ()
    ready = {each.ip for part in slices for each in part.endpoints if each.ready}
    version = cache.slices.changed_at(service)
    ready_at = cache.gates.note_ready(service, ready & listed, version)
    reached = min((node.slice_watermark for node in counting_nodes(cache)), default=version) if ready_at else 0
    return {ip for ip, since in ready_at.items() if since <= reached}
