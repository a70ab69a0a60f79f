"""Which pool has an address, and what it says of its nodes. Pure: no I/O."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from kube_nftlb.api.address_pool import AddressPool, PoolRanges
from kube_nftlb.api.address_ranges import AddressRange, Ip, RangeMap, RangeSet, range_of_network, valid_ranges, without

_Key = tuple[str, str]
"""The name and uid of a pool."""


class Pools:
    """All pools. Of several that have an address an accepted one counts, else the oldest."""

    def __init__(self, pools: Iterable[AddressPool] = (), before: "Pools | None" = None) -> None:
        """``before`` are the pools as they were, of which some may have changed since the operator judged them."""
        by_rank = sorted(pools, key=_rank)
        known = before.assignable_of if before is not None else {}
        assignable = {_key(each): _assignable(each, known) for each in by_rank if each.was_accepted}
        self.assignable_of: Mapping[_Key, Sequence[AddressRange]] = assignable
        """The addresses of each pool that only Services can have, by the pool's name and uid."""
        apart, self._by_ip = _apart(by_rank)
        self.all: Sequence[PoolRanges] = apart
        """All pools, each with the addresses for which it counts."""
        self._found: dict[str, AddressPool | None] = {}

    def of(self, ip: str) -> AddressPool | None:
        """Return the pool that has an address; None if none has."""
        if ip not in self._found:
            self._found[ip] = self._find(ip)
        return self._found[ip]

    def prefix(self, ip: str, length: int) -> str:
        """Return the prefix of a length that has an address; its own if no range of the pool has the whole prefix."""
        aggregate = ipaddress.ip_network(f"{ip}/{length}", strict=False)
        whole = range_of_network(aggregate)
        pool = self.of(ip)
        found = any(each.pool is pool and _has(each.ranges, whole) for each in self.all)
        return str(aggregate) if found else str(ipaddress.ip_network(ip))

    @property
    def assignable(self) -> tuple[AddressRange, ...]:
        """Return the addresses that only Services can have: those that are not reserved, of pools that are accepted."""
        return tuple(part for parts in self.assignable_of.values() for part in parts)

    def _find(self, ip: str) -> AddressPool | None:
        family, number, _ = range_of_network(ipaddress.ip_network(ip))
        return self._by_ip.find(Ip(family, number))


def _apart(pools: Iterable[AddressPool]) -> tuple[list[PoolRanges], RangeMap[AddressPool]]:
    """Return pools with their ranges, without the addresses of those before; and the pool that each address counts to.

    The ranges of one pool may overlap: nobody has checked those that the operator has not accepted.
    """
    found, taken, parts = [], RangeSet(), []
    for pool in pools:
        ranges = tuple(part for each in valid_ranges(pool.spec.ranges) for part in taken.rest(each))
        found.append(PoolRanges(pool, ranges))
        parts += [(part, pool) for each in ranges for part in taken.add(each)]
    return found, RangeMap(parts)


def _assignable(pool: AddressPool, before: Mapping[_Key, Sequence[AddressRange]]) -> list[AddressRange]:
    """Return the addresses that only Services can have; of a pool not judged yet those that it had ``before``, too."""
    ranges = without(valid_ranges(pool.spec.ranges), valid_ranges(pool.spec.reserved))
    if pool.is_accepted:
        return ranges
    # Nobody has checked the ranges of the pool, but these do not overlap.
    had = before.get(_key(pool), ())
    return without(had, without(had, ranges))


def _has(ranges: Iterable[AddressRange], wanted: AddressRange) -> bool:
    same = (each for each in ranges if each.family == wanted.family)
    return any(each.first <= wanted.first and wanted.last <= each.last for each in same)


def _key(pool: AddressPool) -> _Key:
    return pool.metadata.name, pool.metadata.uid


def _rank(pool: AddressPool) -> tuple[bool, float, str]:
    # The operator accepts a pool that overlaps with an older one, if it refuses that.
    return (not pool.was_accepted, pool.metadata.created_s, pool.metadata.name)
