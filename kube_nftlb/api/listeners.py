"""Listeners: the addresses, protocols and ports on which farms take connections. No I/O."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kube_nftlb.api.farm import Farm
from kube_nftlb.api.values import Protocol, expand_ports

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


def listeners_of(farm: Farm, node_ips: Iterable[str] = ()) -> tuple[Listener, ...]:
    """Return all listeners of a farm, in the order of its spec.

    ``node_ips``, if known, are the addresses of one node in the farm's family: a node port listens on each of them too.
    """
    node_port_ips = [f"nodes ({farm.spec.family})", *node_ips]
    listeners = (
        Listener(ip, farm.spec.protocol, port)
        for address in farm.spec.addresses
        for ip in ([address.ip] if address.ip else node_port_ips)
        for port in expand_ports(address.ports) or (ALL_PORTS,)
    )
    # A farm may list an address of the node and have a node port of the same number.
    return tuple(dict.fromkeys(listeners))
