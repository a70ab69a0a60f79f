"""The facts about this node that decisions need. No I/O."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.kubernetes.node import CoreNode, CoreNodeMetadata
from kube_nftlb.environment import IpNetwork

ZONE_LABEL = "topology.kubernetes.io/zone"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The node's name and zone, the addresses that node ports listen on, and the ranges of its pods."""

    name: str = ""
    zone: str = ""
    port_ips: dict[Family, tuple[str, ...]] = field(default_factory=dict)
    pod_cidrs: dict[Family, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_port_ips(self) -> tuple[str, ...]:
        """The addresses that node ports listen on, of both families."""
        return tuple(ip for ips in self.port_ips.values() for ip in ips)


def family_of(ip: IpAddress | IpNetwork) -> Family:
    """Return the family of an address or network."""
    return "ipv6" if ip.version == 6 else "ipv4"


def gather(
    name: str,
    node: CoreNode | None,
    *,
    pod_cidrs: Iterable[IpNetwork] = (),
    port_ranges: Iterable[IpNetwork] | None = None,
    local_ips: Iterable[str] = (),
) -> NodeFacts:
    """Combine the Node object (None: not seen yet) with the settings.

    ``pod_cidrs`` replace the Node's own. ``port_ranges`` are kube-proxy's nodePortAddresses: node ports listen on those
    of ``local_ips`` in these ranges, or on all of a family without a range; None: on the Node's InternalIPs.
    """
    node = node or CoreNode(metadata=CoreNodeMetadata(name=name))
    ranges = tuple(pod_cidrs) or tuple(ipaddress.ip_network(text, strict=False) for text in node.spec.pod_cidrs)
    if port_ranges is None:
        internal = [entry.address for entry in node.status.addresses if entry.type == "InternalIP"]
        ips = _usable(internal)
    else:
        ips = _in_ranges(_usable(local_ips), tuple(port_ranges))
    return NodeFacts(
        name,
        node.metadata.labels.get(ZONE_LABEL, ""),
        {family: tuple(str(ip) for ip in ips if family_of(ip) == family) for family in FAMILIES},
        {family: tuple(str(cidr) for cidr in ranges if family_of(cidr) == family) for family in FAMILIES},
    )


def _usable(texts: Iterable[str]) -> list[IpAddress]:
    """Return the addresses that other hosts can connect to."""
    ips = (_parse(text) for text in texts)
    return [ip for ip in ips if ip is not None and not (ip.is_loopback or ip.is_link_local or ip.is_unspecified)]


def _in_ranges(ips: list[IpAddress], ranges: tuple[IpNetwork, ...]) -> list[IpAddress]:
    families = {network.version for network in ranges}
    return [ip for ip in ips if ip.version not in families or any(ip in network for network in ranges)]


def _parse(text: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
