"""The backends of a farm, for its status. No I/O."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from kube_nftlb.api.farm import BackendsFrom
from kube_nftlb.api.farm.status import BACKENDS_SHOWN_MAX, BackendStatus
from kube_nftlb.endpointslices.backends import ResolvedEndpoint, resolve
from kube_nftlb.kube.events import Lasting
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord, Reference
from kube_nftlb.operator.model.rejections import Rejection

Problem = Rejection | Lasting


class FarmEndpoints(NamedTuple):
    """The backends of a farm."""

    ready: int
    """How many get new connections: they are ready, and in the state up."""
    total: int
    """Of all that the farm can have."""
    shown: tuple[BackendStatus, ...] = ()
    """The first of those that it refers to."""
    changed_at: int = 0
    """The resourceVersion at which the EndpointSlices that it refers to last changed; 0 without any."""
    problems: tuple[Problem, ...] = ()
    unserved: tuple[str, ...] = ()
    """What of new connections is refused though other backends are ready: the groups that have none."""
    terminating: int = 0
    """Of those that are not ready: how many get connections while no other is, as they serve until they are gone."""


def farm_endpoints(farm: FarmRecord, cache: Cache) -> FarmEndpoints:
    """Return the backends of a farm, as its nodes resolve them too."""
    if (reference := farm.reference) is None:
        return FarmEndpoints(farm.ready, farm.total)
    slices = [each for service in reference.services for each in cache.slices.index.of(service)]
    namespace = farm.key.namespace
    resolved = resolve(reference.groups, namespace, reference.family, reference.protocol, slices, reference.most)
    endpoints = resolved.endpoints
    problems: list[Problem] = [
        Rejection("InvalidEndpoint", f"EndpointSlice {each.name}: {text!r} is not a usable {each.family} address")
        for each in sorted(slices)
        if each.family == reference.family
        for text in each.invalid
    ]
    if resolved.total > len(endpoints):
        message = f"{resolved.total} endpoints; only {len(endpoints)} are used, the limit of the farm's engine"
        problems.append(Lasting("TooManyEndpoints", message))
    if any(cache.slices.index.is_cut(service) for service in reference.services):
        message = "the EndpointSlices of its namespace have too many endpoints; some are left out"
        problems.append(Lasting("TooManyEndpoints", message))
    ready = [each.group for each in endpoints if each.endpoint.ready and each.options.state == "up"]
    terminating = [each.group for each in endpoints if _is_last_resort(each, reference)]
    return FarmEndpoints(
        len(ready),
        len(endpoints),
        tuple(_shown(each, reference.groups) for each in endpoints[:BACKENDS_SHOWN_MAX]),
        max((cache.slices.changed_at(service) for service in reference.services), default=0),
        tuple(problems),
        tuple(_unserved(reference.groups, {*ready, *terminating})),
        len(terminating),
    )


def _is_last_resort(each: ResolvedEndpoint, reference: Reference) -> bool:
    """Return True for an endpoint that gets connections if none is ready, as the agents decide it.

    Standbys, which do not take the place of ones that are gone, do not count.
    """
    endpoint, options = each.endpoint, each.options
    serves = not endpoint.ready and endpoint.serving and endpoint.terminating and options.state == "up"
    return serves and options.priority <= reference.priority and reference.groups[each.group].weight > 0


def _unserved(groups: Sequence[BackendsFrom], served: Collection[int]) -> Iterator[str]:
    """Yield a sentence for each group with a share of the connections, but no endpoint that gets them.

    What is refused by ``refuse`` is as its owner wants it.
    """
    total = sum(each.weight for each in groups)
    for number, each in enumerate(groups) if len(groups) > 1 else ():
        if each.weight and each.service and number not in served:
            share = f"{each.weight} of {total} new connections"
            yield f"the Service {each.full_name} has {share}, and no backend that is ready and up: they are refused"


def _shown(each: ResolvedEndpoint, groups: Sequence[BackendsFrom]) -> BackendStatus:
    return BackendStatus(
        name=each.name,
        address=each.ip,
        port=each.port or None,
        pod=each.endpoint.pod or None,
        node=each.endpoint.node or None,
        ready=each.endpoint.ready,
        serving=each.endpoint.serving,
        terminating=each.endpoint.terminating,
        weight=each.options.weight,
        service=groups[each.group].full_name if len(groups) > 1 else None,
    )
