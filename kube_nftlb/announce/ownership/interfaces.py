"""On which link an address is announced: the one whose subnet has it. Pure.

So it is never a pod's interface: pools that overlap with the addresses of pods are refused. Nor is it one without a
subnet, such as a tunnel's, where nobody asks by ARP or NDP.
"""

import ipaddress
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple


class Interface(NamedTuple):
    """A network interface of this node."""

    name: str
    mac: str
    """Its Ethernet address; empty if it has none, or cannot be used: then its addresses are the node's all the same."""
    addresses: tuple[str, ...]
    """Its addresses with their prefix lengths, as in ``192.0.2.1/24``."""


def interface_of(ip: str, interfaces: Iterable[Interface], allowed: Collection[str] = ()) -> Interface | None:
    """Return the interface with the smallest subnet that has the address, the first by name of several; None if none.

    ``allowed`` has patterns of names, such as ``eth*``; all are if it is empty.
    """
    wanted = ipaddress.ip_address(ip)
    found = [
        (-network.prefixlen, each.name, each)
        for each in interfaces
        if each.mac and (not allowed or any(fnmatchcase(each.name, pattern) for pattern in allowed))
        for network in _networks(each.addresses)
        if network.version == wanted.version and network.num_addresses > 1 and wanted in network
    ]
    return min(found)[2] if found else None


@lru_cache(maxsize=1 << 10)
def _networks(addresses: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the subnets of an interface, for which every address of a Service is looked up."""
    return tuple(ipaddress.ip_network(address, strict=False) for address in addresses)
