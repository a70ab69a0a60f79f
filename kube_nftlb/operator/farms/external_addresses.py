"""The external addresses of a Service, and its traffic policies."""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kube_nftlb.api.address_ranges import LEADING_ZEROS, known_ip_of
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.farm import ADDRESSES_MAX, LISTENERS_MAX, SOURCE_RANGES_MAX
from kube_nftlb.api.kubernetes.service import Service, ServicePort
from kube_nftlb.api.rules import CIDR
from kube_nftlb.api.values import AddressType, TrafficPolicy, expand_ports
from kube_nftlb.endpointslices.slices import canonical_ip
from kube_nftlb.environment import IpNetwork
from kube_nftlb.operator.model.permissions import ALL_IPS
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.prose import counted

SOURCE_RANGES_READ_MAX = 4 * SOURCE_RANGES_MAX
"""Merging more takes too long beside other Services."""
ADDRESSES_READ_MAX = 2 * ADDRESSES_MAX
"""The same of external IPs, and of load balancer IPs: there are two families."""

_REFUSED_MAX = 5
"""Maximum number of refused addresses that are named."""

Objection = Callable[[str], str | None]
"""Returns why an IP address cannot be an external IP, or None."""

_OUTSIDE_TYPES = ("NodePort", "LoadBalancer")


class External(NamedTuple):
    """A Service's external IPs and load balancer IPs per family, and if it has node ports."""

    ips: dict[Family, tuple[tuple[AddressType, str], ...]]
    node_ports: bool
    source_ranges: dict[Family, tuple[str, ...]]
    problems: tuple[Rejection, ...] = ()

    def of(self, family: Family, port: ServicePort, ports: str) -> list[dict[str, Any]]:
        """Return the external addresses of a farm of this port (NftlbFarm, spec.addresses).

        ``ports`` are those of the cluster IP; ``""`` means all, without a node port.
        """
        listened: list[dict[str, Any]] = []
        for kind, ip in self.ips[family]:
            ranged = {"sourceRanges": list(ranges)} if (ranges := self.source_ranges[family]) else {}
            own = ranged if kind == "LoadBalancer" else {}
            listened.append({"type": kind, "ip": ip, "ports": ports, **own})
        if self.node_ports and port.node_port and ports:
            listened.append({"type": "NodePort", "ip": "", "ports": str(port.node_port)})
        return listened


def external_ips(service: Service) -> Iterator[str]:
    """Yield the valid addresses in spec.externalIPs that are read, in their canonical form."""
    for text in service.spec.external_ips[:ADDRESSES_READ_MAX]:
        for family in FAMILIES:
            if (ip := canonical_ip(text.strip(), family)) is not None:
                yield ip


def external_addresses(
    service: Service, allowed: tuple[IpNetwork, ...] = ALL_IPS, objection: Objection = lambda _: None
) -> External:
    """Return a Service's external addresses: spec.externalIPs in these ranges, status.loadBalancer, node ports.

    ``objection`` returns why an address cannot be an external IP. What a load balancer has given is not questioned.
    Ingress IPs with ipMode Proxy are left to the load balancer (KEP-1860). A duplicate address counts as a load
    balancer IP rather than an external IP, since that may have source ranges.
    """
    outside = without_source_ranges(service, allowed, objection)
    ranges, unread = _source_ranges(service)
    problems = [*outside.problems, *(_not_understood(text) for text in unread[:1])]
    if len(given := service.spec.load_balancer_source_ranges) > SOURCE_RANGES_READ_MAX:
        problems.append(_unread_ranges(given))
    problems.extend(_too_many_ranges(found) for found in ranges.values() if len(found) > SOURCE_RANGES_MAX)
    admitted = {family: ranges[family][:SOURCE_RANGES_MAX] for family in FAMILIES}
    return outside._replace(source_ranges=admitted, problems=tuple(problems))


def without_source_ranges(
    service: Service, allowed: tuple[IpNetwork, ...] = ALL_IPS, objection: Objection = lambda _: None
) -> External:
    """Return the same without source ranges, which take most of the time: for the names of farms alone."""
    found: dict[Family, dict[str, AddressType]] = {family: {} for family in FAMILIES}
    refused: list[Rejection] = []
    if service.spec.type == "LoadBalancer":
        for ingress in service.status.load_balancer.ingress[:ADDRESSES_READ_MAX]:
            is_ours = ingress.ip and ingress.ip_mode in (None, "VIP")
            if is_ours and not _note(found, "LoadBalancer", _decimal(ingress.ip)):
                refused.append(_refused("status.loadBalancer", ingress.ip, "no node can serve it"))
    own = set(service.spec.cluster_ips)
    known = own | {ip for ips in found.values() for ip in ips}
    for text in filter(None, map(str.strip, service.spec.external_ips[:ADDRESSES_READ_MAX])):
        ip = next((ip for family in FAMILIES if (ip := canonical_ip(text, family)) is not None), "")
        why = _outside(ip, allowed) or objection(ip) if ip not in known else None
        if why is None:
            _note(found, "ExternalIP", text)
        else:
            refused.append(_refused("spec.externalIPs", text, why))
    problems = _first(refused)
    if max(len(service.spec.external_ips), len(service.status.load_balancer.ingress)) > ADDRESSES_READ_MAX:
        problems.append(_unread_addresses())
    return External(
        {family: tuple((kind, ip) for ip, kind in ips.items() if ip not in own) for family, ips in found.items()},
        service.spec.type in _OUTSIDE_TYPES,
        dict.fromkeys(FAMILIES, ()),
        tuple(problems),
    )


def fitting(addresses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the addresses that fit into one farm, in their order: cluster IP and node ports before others."""
    fitting_addresses: list[dict[str, Any]] = []
    room = LISTENERS_MAX
    for address in sorted(addresses, key=lambda each: each["type"] not in ("ClusterIP", "NodePort")):
        ports = len(expand_ports(address["ports"])) or 1
        if len(fitting_addresses) < ADDRESSES_MAX and ports <= room:
            fitting_addresses.append(address)
            room -= ports
    return [address for address in addresses if address in fitting_addresses]


def _source_ranges(service: Service) -> tuple[dict[Family, tuple[str, ...]], list[str]]:
    """Return spec.loadBalancerSourceRanges by family, collapsed, and those that are not understood.

    There is none for a family that is admitted as a whole. One that is not understood, or not read, might have been of
    either family: it admits nobody where there is no other.
    """
    four: set[ipaddress.IPv4Network] = set()
    six: set[ipaddress.IPv6Network] = set()
    unread: list[str] = []
    for text in service.spec.load_balancer_source_ranges[:SOURCE_RANGES_READ_MAX]:
        cidr = LEADING_ZEROS.sub("", text.strip())
        # Not an IPv4 address within an IPv6 address, either: it would leave IPv4 without a range, and so open.
        if not CIDR.holds(cidr):
            unread.append(text)
            continue
        network = ipaddress.ip_network(cidr, strict=False)
        if isinstance(network, ipaddress.IPv6Network):
            six.add(network)
        else:
            four.add(network)
    if unread or len(service.spec.load_balancer_source_ranges) > SOURCE_RANGES_READ_MAX:
        four = four or {ipaddress.IPv4Network("0.0.0.0/32")}
        six = six or {ipaddress.IPv6Network("::/128")}
    joined: dict[Family, list[IpNetwork]] = {
        "ipv4": [*ipaddress.collapse_addresses(four)],
        "ipv6": [*ipaddress.collapse_addresses(six)],
    }
    ranges = {
        family: () if any(network.prefixlen == 0 for network in networks) else tuple(map(str, networks))
        for family, networks in joined.items()
    }
    return ranges, unread


def internal_policy(service: Service) -> TrafficPolicy:
    """Return spec.internalTrafficPolicy."""
    return "Local" if service.spec.internal_traffic_policy == "Local" else "Cluster"


def external_policy(service: Service) -> TrafficPolicy:
    """Return spec.externalTrafficPolicy, which is empty for a Service without external addresses."""
    return "Local" if service.spec.external_traffic_policy == "Local" else "Cluster"


def _note(found: dict[Family, dict[str, AddressType]], kind: AddressType, text: str) -> bool:
    """Note an address; return False for a text that is none, or one that is of no use."""
    for family in FAMILIES:
        if (ip := canonical_ip(text, family)) is not None:
            found[family].setdefault(ip, kind)
            return True
    return False


def _decimal(text: str) -> str:
    """Return an IPv4 address of a status without leading zeros, and not within an IPv6 address; others as they are."""
    try:
        return str(known_ip_of(text))
    except ValueError:
        return text


def _outside(ip: str, allowed: tuple[IpNetwork, ...]) -> str | None:
    if ip and any(ipaddress.ip_address(ip) in network for network in allowed):
        return None
    return "it is invalid, or in none of the ranges that the administrator allows"


def _first(refused: list[Rejection]) -> list[Rejection]:
    more = len(refused) - _REFUSED_MAX
    if more <= 1:
        return refused
    last = refused[_REFUSED_MAX]
    others = counted(more - 1, "more address", "more addresses")
    return [*refused[:_REFUSED_MAX], last._replace(message=f"{last.message} (and {others})")]


def _too_many_ranges(ranges: tuple[str, ...]) -> Rejection:
    message = f"spec.loadBalancerSourceRanges has {len(ranges)} ranges, and the limit is {SOURCE_RANGES_MAX}"
    return Rejection(
        "TooManySourceRanges", f"{message}: clients in {ranges[SOURCE_RANGES_MAX]} and later ones are not admitted"
    )


def _refused(field: str, text: str, why: str) -> Rejection:
    return Rejection("ExternalIPRefused", f"{field}: {text[:64]!r} is not served: {why}")


def _unread_addresses() -> Rejection:
    message = f"it has more than {ADDRESSES_READ_MAX} external IPs, or load balancer IPs"
    return Rejection("TooManyAddresses", f"{message}: later ones are not served")


def _unread_ranges(ranges: Sequence[str]) -> Rejection:
    message = f"spec.loadBalancerSourceRanges has more than {SOURCE_RANGES_READ_MAX} ranges"
    first = ranges[SOURCE_RANGES_READ_MAX][:64]
    return Rejection("TooManySourceRanges", f"{message}: clients in {first} and later ones are not admitted")


def _not_understood(text: str) -> Rejection:
    message = f"spec.loadBalancerSourceRanges has {text[:64]!r}, which is not an address range like 203.0.113.0/24"
    return Rejection("InvalidSourceRange", f"{message}: it admits nobody")
