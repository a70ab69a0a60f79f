"""What decisions need to know of the node that the agent runs on. No I/O."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.environment import IpNetwork

ZONE_LABEL = "topology.kubernetes.io/zone"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The node's name and zone, the addresses that node ports are listened on, and the ranges of its pods."""

    name: str = ""
    zone: str = ""
    port_ips: dict[Family, tuple[str, ...]] = field(default_factory=dict)
    pod_cidrs: dict[Family, tuple[str, ...]] = field(default_factory=dict)


def family_of(ip: IpAddress | IpNetwork) -> Family:
    """The family as a farm has it."""
    return "ipv6" if ip.version == 6 else "ipv4"


def gather(
    name: str,
    node: CoreNode | None,
    *,
    pod_cidrs: Iterable[IpNetwork] = (),
    port_ranges: Iterable[IpNetwork] | None = None,
    local_ips: Iterable[str] = (),
) -> NodeFacts:
    """The facts, out of the Node object (None: not seen yet) and what the administrator has set.

    ``pod_cidrs`` take the place of the Node's own. ``port_ranges`` are kube-proxy's nodePortAddresses: of all that the
    node has, ``local_ips``, those in these ranges; a family without a range has them all. None: the Node's InternalIPs.
    """
    if node is None:
        return NodeFacts(name)
    ranges = tuple(pod_cidrs) or tuple(ipaddress.ip_network(text) for text in node.spec.pod_cidrs)
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
    """Those that somebody else can connect to."""
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
