"""Which pool has an address, and what it says of its nodes. Pure: no I/O."""

import ipaddress
import math
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

    def _find(self, ip: str) -> AddressPool | None:
        address = ipaddress.ip_address(ip)
        wanted = address.version, int(address)
        found = (
            each.pool
            for each in self._pools
            if any(wanted[0] == version and first <= wanted[1] <= last for version, first, last in each.ranges)
        )
        return next(found, None)


class _Ranges(NamedTuple):
    pool: AddressPool
    ranges: tuple[_Range, ...]


def _age(pool: AddressPool) -> tuple[float, str]:
    created = pool.metadata.creation_timestamp
    return (created.timestamp() if created is not None else math.inf, pool.metadata.name)


def _ranges(pool: AddressPool) -> tuple[_Range, ...]:
    return tuple(_range(text) for text in pool.spec.ranges)


def _range(text: str) -> _Range:
    first, dash, last = text.partition("-")
    if dash:
        return ipaddress.ip_address(first).version, int(ipaddress.ip_address(first)), int(ipaddress.ip_address(last))
    network = ipaddress.ip_network(text)
    return network.version, int(network.network_address), int(network.broadcast_address)
