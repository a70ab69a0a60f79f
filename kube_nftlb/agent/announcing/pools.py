"""Which pool has an address, and what it says of its nodes. Pure: no I/O."""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.api.address_pool import AddressPool

_Range = tuple[int, int, int]
"""The version of IP, and the first and last address as numbers."""


class Pools:
    """All pools. Of several that have an address the oldest counts: the operator refuses the others."""

    def __init__(self, pools: Iterable[AddressPool] = ()) -> None:
        self._pools = [_Ranges(pool, _ranges(pool)) for pool in sorted(pools, key=_age)]
        self._found: dict[str, AddressPool | None] = {}

    def of(self, ip: str) -> AddressPool | None:
        """Return the pool that has an address; None if none has."""
        if ip not in self._found:
            self._found[ip] = self._find(ip)
        return self._found[ip]

    def prefix(self, ip: str, length: int) -> str:
        """Return the prefix of a length that has an address; its own if no range of the pool has the whole prefix."""
        aggregate = ipaddress.ip_network(f"{ip}/{length}", strict=False)
        whole = aggregate.version, int(aggregate.network_address), int(aggregate.broadcast_address)
        pool = self.of(ip)
        found = any(each.pool is pool and _has(each.ranges, whole) for each in self._pools)
        return str(aggregate) if found else str(ipaddress.ip_network(ip))

    def _find(self, ip: str) -> AddressPool | None:
        address = ipaddress.ip_address(ip)
        wanted = address.version, int(address), int(address)
        return next((each.pool for each in self._pools if _has(each.ranges, wanted)), None)


class _Ranges(NamedTuple):
    pool: AddressPool
    ranges: tuple[_Range, ...]


def _has(ranges: Iterable[_Range], wanted: _Range) -> bool:
    version, low, high = wanted
    return any(each == version and first <= low and high <= last for each, first, last in ranges)


def _age(pool: AddressPool) -> tuple[float, str]:
    return (pool.metadata.created_s, pool.metadata.name)


def _ranges(pool: AddressPool) -> tuple[_Range, ...]:
    return tuple(_range(text) for text in pool.spec.ranges)


def _range(text: str) -> _Range:
    first, dash, last = text.partition("-")
    if dash:
        return ipaddress.ip_address(first).version, int(ipaddress.ip_address(first)), int(ipaddress.ip_address(last))
    network = ipaddress.ip_network(text)
    return network.version, int(network.network_address), int(network.broadcast_address)
