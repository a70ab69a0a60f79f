"""NftlbAddressPools: what they have, and why one is refused. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from pydantic import ValidationError

from kube_nftlb.api.address_pool import AddressPoolSpec, AddressPoolStatus
from kube_nftlb.api.address_ranges import AddressRange, RangeMap, overlap, range_of, range_of_network, size, without
from kube_nftlb.api.base import Family, Metadata, first_error
from kube_nftlb.api.rules import METADATA_IPS

_MESSAGE_MAX = 500

_UNUSABLE: Final = tuple(
    (range_of_network(ipaddress.ip_network(network)), what)
    for network, what in (
        ("0.0.0.0/8", "an unspecified address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", "an IPv4-mapped address"),
        ("fe80::/10", "a link-local address"),
        ("ff00::/8", "a multicast address"),
        *((ip, "the address of a cloud's metadata service") for ip in sorted(METADATA_IPS)),
    )
)
"""Addresses that no Service can have."""


class Cluster(Protocol):
    """What a pool must not overlap with, beside other pools."""

    def overlapping(self, wanted: AddressRange) -> str | None:
        """Return what of the cluster has an address of a range, as in "the address of the node a"; None for nothing."""


class Pool:
    """A pool, valid or not."""

    def __init__(
        self, metadata: Metadata, spec: AddressPoolSpec | None, problem: str | None, status: AddressPoolStatus
    ) -> None:
        """``spec`` is None, and ``problem`` says why, if the object is not one."""
        self.name = metadata.name
        self.metadata = metadata
        self.rank = (metadata.created_s, self.name)
        """Of two pools that overlap, the lower one is accepted."""
        self.problem = problem
        """Why it is refused for itself, as a sentence; None if it is not."""
        self.ranges: tuple[AddressRange, ...] = ()
        """All of its ranges; none if it has a problem."""
        self.assignable: tuple[AddressRange, ...] = ()
        """Those without what is reserved, in order."""
        self.spec = spec
        self.status = status
        if spec is not None and problem is None:
            try:
                self.ranges = _ranges(spec)
                self.assignable = tuple(sorted(without(self.ranges, map(range_of, spec.reserved))))
            except ValueError as error:
                self.problem = str(error)

    def size(self, family: Family) -> int:
        """Return the number of addresses that Services can get."""
        return size(self.assignable, family)

    def has(self, family: Family) -> bool:
        """Return true if it has addresses of a family."""
        return any(each.family == family for each in self.ranges)

    def admits(self, labels: Mapping[str, str], namespace: Mapping[str, str] | None) -> bool:
        """Return true if a Service may have its addresses. ``namespace`` has labels; None: it is not known yet."""
        if self.spec is None:
            return False
        in_namespace = self.spec.namespace_selector.selects(namespace) if namespace is not None else False
        return in_namespace and self.spec.service_selector.selects(labels)


def parse(raw: dict[str, Any]) -> Pool:
    """Return a pool as the API server has it."""
    metadata = Metadata.model_validate(raw["metadata"])
    status = AddressPoolStatus()
    with suppress(ValidationError):
        # It only says since when; a malformed one is written anew.
        status = AddressPoolStatus.model_validate(raw.get("status") or {})
    try:
        return Pool(metadata, AddressPoolSpec.model_validate(raw.get("spec") or {}), None, status)
    except ValidationError as error:
        return Pool(metadata, None, first_error(error, "spec")[:_MESSAGE_MAX], status)


def problems(pools: Iterable[Pool], cluster: Cluster) -> dict[str, str]:
    """Return why pools are refused, by name. Of pools that overlap, the oldest is accepted."""
    refused: dict[str, str] = {}
    accepted: list[tuple[AddressRange, str]] = []
    for pool in sorted(pools, key=lambda each: each.rank):
        why = pool.problem or _overlap(pool, cluster, RangeMap(accepted))
        if why is not None:
            refused[pool.name] = why
        else:
            accepted.extend((each, pool.name) for each in pool.ranges)
    return refused


def _ranges(spec: AddressPoolSpec) -> tuple[AddressRange, ...]:
    """Return the ranges. Raises ValueError with a sentence if a pool cannot have them."""
    found: list[AddressRange] = []
    for text in spec.ranges:
        each = range_of(text)
        if (unusable := next((what for other, what in _UNUSABLE if overlap(each, other)), None)) is not None:
            raise ValueError(f"spec.ranges: {text} has {unusable}, which no Service can have")
        if (other := next((other for other in found if overlap(each, other)), None)) is not None:
            raise ValueError(f"spec.ranges: {text} overlaps with {spec.ranges[found.index(other)]} of the same pool")
        found.append(each)
    for text in spec.reserved:
        if without([range_of(text)], found):
            raise ValueError(f"spec.reserved: {text} is not within spec.ranges")
    return tuple(found)


def _overlap(pool: Pool, cluster: Cluster, others: RangeMap[str]) -> str | None:
    for text, each in zip(pool.spec.ranges if pool.spec is not None else (), pool.ranges, strict=True):
        if (what := cluster.overlapping(each)) is not None:
            return f"spec.ranges: {text} overlaps with {what}"
        if (other := others.overlapping(each)) is not None:
            return f"spec.ranges: {text} overlaps with the address pool {other}, which is older"
    return None
