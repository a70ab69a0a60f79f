"""The existence of the objects that Events are about. No I/O."""

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.events import Part, Subject
from kube_nftlb.kube.resources import FARMS, NFTLB_NODES, PODS, POLICIES, SERVICES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.model.gated_pods import EVENT_PART
from kube_nftlb.operator.model.pods import PodKey

ADDRESS_PART = "#addresses"
"""Stands for the addresses of a Service where a farm would be named: no farm has such a name."""


def exists(cache: Cache, part: Part) -> bool:
    """Return True if the operator knows an object, and the farm that is meant of a Service if one is."""
    subject, farm = part
    known = _uid(cache, subject) == subject.uid
    return known and (
        farm in ("", EVENT_PART, ADDRESS_PART) or cache.farms.get(FarmKey(subject.namespace, farm)) is not None
    )


def _uid(cache: Cache, subject: Subject) -> str | None:
    resource, namespace, name, _ = subject
    if resource == SERVICES:
        service = cache.services.get(ServiceKey(namespace, name))
        return service.metadata.uid if service is not None else None
    if resource == FARMS:
        farm = cache.farms.get(FarmKey(namespace, name))
        return farm.uid if farm is not None else None
    if resource == PODS:
        key = PodKey(namespace, name)
        pod = cache.pods.get(key) or cache.gates.pods.get(key)
        return pod.uid if pod is not None else None
    if resource == POLICIES:
        policy = cache.policies.get(PolicyKey(namespace, name))
        return policy.uid if policy is not None else None
    if resource == NFTLB_NODES:
        # Its uid is not cached; only Events of the current one are reported.
        return subject.uid if cache.nodes.get(name) is not None else None
    return None
