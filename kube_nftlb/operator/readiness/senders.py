"""The farms that send connections to a gated Pod: those of its Services, and of routes to these. No I/O."""

from collections.abc import Iterable, Iterator
from itertools import chain

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import BackendsFrom
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.model.gated_pods import GatedPod
from kube_nftlb.operator.status.farm_status import accept

Sender = tuple[FarmKey, ServiceKey]
"""A farm that sends connections to a Service: one of a route may do so to several, each with endpoints of its own."""


def senders(
    pod: GatedPod, services: Iterable[ServiceKey], cache: Cache
) -> Iterator[tuple[FarmRecord, ServiceKey, str]]:
    """Yield the farms that send a Pod of these Services connections, with the Service, and the Pod's IP of the family.

    Those of Services come first: routes, perhaps of other namespaces, must not take their places.
    """
    own = ((farm, service) for service in services for farm in cache.farms_of(service))
    routed = ((farm, service) for service in services for farm in cache.farms_of_routes(service))
    for farm, service in chain(own, routed):
        ip = pod.ips.get(farm.reference.family) if farm.reference is not None else None
        if ip is not None and not farm.terminating and shares(farm, service) and _accepted(farm, cache):
            yield farm, service, ip


def shares(farm: FarmRecord, service: ServiceKey) -> list[BackendsFrom]:
    """Return the groups by which a Service has a share of the connections of a farm."""
    return [group for group in farm.groups_of(service) if group.weight]


def shown_name(farm: FarmRecord, service: ServiceKey) -> str:
    """Return the name of a farm for those who see a Service, with its namespace if it is another one."""
    return farm.key.name if farm.key.namespace == service.namespace else "/".join(farm.key)


def _accepted(farm: FarmRecord, cache: Cache) -> bool:
    refused = cache.budgets.refusal_of_farm(farm.key)
    return accept(farm, cache.conflicts.get(farm.key), refused=refused).status == "True"
