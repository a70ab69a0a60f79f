"""The IPs of gated Pods that the farms of a Service list. No I/O."""

from collections.abc import Iterator, Set

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.farm import GATED_IPS_MAX
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.model.pods import selects

GatedIPs = dict[Family, list[str]]


def counting_nodes(cache: Cache) -> list[NodeRecord]:
    """Return the nodes that count: those whose Node exists and is ready, with an agent that can work."""
    return [node for node in cache.working_nodes() if cache.core_nodes.get(node.name) is not None]


def gated_ips(cache: Cache, service: ServiceKey) -> GatedIPs:
    """Return the IPs that the farms of a Service are to list, sorted, by family.

    They are those of the Pods that wait for the gate alone and whose turn it is, and of those that no longer wait,
    until all nodes that count know from the EndpointSlices that they are ready.
    """
    found: GatedIPs = {family: [] for family in FAMILIES}
    if (known := cache.services.get(service)) is None or not cache.gates.pods.keys():
        return found
    selector = known.spec.selector
    listed = dict.fromkeys(each for farm in cache.farms_of(service) for each in listed_ips(farm))
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
    """Return True if the farms of a Service list what they are to list."""
    wanted = gated_ips(cache, service)
    return all(
        farm.reference is None or sorted(farm.reference.gated_ips) == wanted[farm.reference.family]
        for farm in cache.farms_of(service)
    )


def listed_ips(farm: FarmRecord) -> Iterator[tuple[Family, str]]:
    """Yield the IPs that a farm lists, with their family."""
    if farm.reference is not None:
        for ip in farm.reference.gated_ips:
            yield farm.reference.family, ip


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
