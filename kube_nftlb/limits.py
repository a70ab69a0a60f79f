"""The number and size of objects that one namespace may have."""

from typing import NamedTuple


class NamespaceLimits(NamedTuple):
    """The limits of one namespace."""

    service_ports: int = 1024
    """Of each Service."""
    farms: int = 10_000
    policies: int = 256
    policy_ranges: int = 65_536
    farm_elements: int = 262_144
    """Of each farm, in the nftables of a node."""
    elements: int = 1_000_000
    """In the nftables of a node."""
    node_elements: int = 8_000_000
    """In the nftables of a node, of all namespaces together: each has a fair share where they want more."""
