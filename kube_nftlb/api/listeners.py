"""Listeners: the addresses, protocols and ports on which farms take connections. No I/O."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import Address, Farm
from kube_nftlb.api.values import Protocol, expand_ports

_NODE_PORTS: Final = frozenset(("nodes (ipv4)", "nodes (ipv6)"))

ALL_PORTS: Final = 0
"""Stands for every port of an address, with the protocol All."""


class Listener(NamedTuple):
    """An address, protocol and port on which a farm takes connections."""

    ip: str
    """An IP address, or ``nodes (<family>)`` for the addresses of all nodes."""
    protocol: Protocol
    port: int

    @property
    def whole_address(self) -> "Listener":
        """The listener on every port and protocol of the same address."""
        return Listener(self.ip, "All", ALL_PORTS)


def node_ports(family: Family) -> str:
    """Return what stands for the addresses of all nodes in the listeners of node ports."""
    return f"nodes ({family})"


def is_node_port(listener: Listener) -> bool:
    """Return True if a listener is on all nodes."""
    return listener.ip in _NODE_PORTS


def listeners_of(farm: Farm) -> Iterator[tuple[Address, Listener]]:
    """Yield all listeners of a farm, in the order of its spec, with the address in the spec."""
    for address in farm.spec.addresses:
        ip = address.ip or node_ports(farm.spec.family)
        for port in expand_ports(address.ports) or (ALL_PORTS,):
            yield address, Listener(ip, farm.spec.protocol, port)
