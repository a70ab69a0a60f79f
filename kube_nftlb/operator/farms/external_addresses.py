"""The addresses of a Service that are reached from outside the cluster, and the traffic policies."""

import ipaddress
from typing import Any, NamedTuple

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.farm import ADDRESSES_MAX, LISTENERS_MAX, SOURCE_RANGES_MAX
from kube_nftlb.api.kubernetes.service import Service, ServicePort
from kube_nftlb.api.values import AddressType, TrafficPolicy, expand_ports
from kube_nftlb.operator.cache.slices import canonical_ip
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.settings import IpNetwork

ALL_IPS: tuple[IpNetwork, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))

_OUTSIDE_TYPES = ("NodePort", "LoadBalancer")


class External(NamedTuple):
    """A Service's external IPs and load balancer's IPs per family, and whether it has node ports."""

    ips: dict[Family, tuple[tuple[AddressType, str], ...]]
    node_ports: bool
    source_ranges: dict[Family, tuple[str, ...]]
    problems: tuple[Rejection, ...] = ()

    def of(self, family: Family, port: ServicePort, ports: str) -> list[dict[str, Any]]:
        """What a farm of this port listens on for clients outside the cluster (NftlbFarm, spec.addresses).

        ``ports`` are those of the cluster IP; with none, which means all, there is no node port among them.
        """
        listened: list[dict[str, Any]] = []
        for kind, ip in self.ips[family]:
            guarded = {"sourceRanges": list(ranges)} if (ranges := self.source_ranges[family]) else {}
            own = guarded if kind == "LoadBalancer" else {}
            listened.append({"type": kind, "ip": ip, "ports": ports, **own})
        if self.node_ports and port.node_port and ports:
            listened.append({"type": "NodePort", "ip": "", "ports": str(port.node_port)})
        return listened


def external_addresses(service: Service, allowed: tuple[IpNetwork, ...] = ALL_IPS) -> External:
    """What a Service is reached by from outside: spec.externalIPs in these ranges, status.loadBalancer, node ports.

    An ingress IP whose ipMode is Proxy is left to the load balancer itself (KEP-1860). An address named twice counts
    once, as what it is first: a load balancer's before an external IP, because that may be guarded by source ranges.
    """
    found: dict[Family, dict[str, AddressType]] = {family: {} for family in FAMILIES}
    if service.spec.type == "LoadBalancer":
        for ingress in service.status.load_balancer.ingress:
            if ingress.ip_mode in (None, "VIP"):
                _note(found, "LoadBalancer", ingress.ip, ALL_IPS)
    named = [text.strip() for text in service.spec.external_ips if text.strip()]
    problems = [_refused(text) for text in named if not _note(found, "ExternalIP", text, allowed)]
    own = set(service.spec.cluster_ips)
    ranges = _source_ranges(service)
    problems.extend(_cut(found) for found in ranges.values() if len(found) > SOURCE_RANGES_MAX)
    return External(
        {family: tuple((kind, ip) for ip, kind in ips.items() if ip not in own) for family, ips in found.items()},
        service.spec.type in _OUTSIDE_TYPES,
        {family: ranges[family][:SOURCE_RANGES_MAX] for family in FAMILIES},
        tuple(problems),
    )


def fitting(addresses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of these as one farm may have, in their order: the cluster IP, node ports, and then the first others."""
    kept: list[dict[str, Any]] = []
    room = LISTENERS_MAX
    for address in sorted(addresses, key=lambda each: each["type"] not in ("ClusterIP", "NodePort")):
        ports = len(expand_ports(address["ports"])) or 1
        if len(kept) < ADDRESSES_MAX and ports <= room:
            kept.append(address)
            room -= ports
    return [address for address in addresses if address in kept]


def _source_ranges(service: Service) -> dict[Family, tuple[str, ...]]:
    """spec.loadBalancerSourceRanges by family, joined where they touch; nothing of a family that they let in whole."""
    four: set[ipaddress.IPv4Network] = set()
    six: set[ipaddress.IPv6Network] = set()
    for text in service.spec.load_balancer_source_ranges:
        try:
            network = ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            # The API server takes none that is not a range, and kube-proxy leaves it out as well.
            continue
        if isinstance(network, ipaddress.IPv6Network):
            six.add(network)
        else:
            four.add(network)
    joined: dict[Family, list[IpNetwork]] = {
        "ipv4": [*ipaddress.collapse_addresses(four)],
        "ipv6": [*ipaddress.collapse_addresses(six)],
    }
    return {
        family: () if any(network.prefixlen == 0 for network in networks) else tuple(map(str, networks))
        for family, networks in joined.items()
    }


def internal_policy(service: Service) -> TrafficPolicy:
    """spec.internalTrafficPolicy."""
    return "Local" if service.spec.internal_traffic_policy == "Local" else "Cluster"


def external_policy(service: Service) -> TrafficPolicy:
    """spec.externalTrafficPolicy, which the API server leaves empty for a Service without addresses of the kind."""
    return "Local" if service.spec.external_traffic_policy == "Local" else "Cluster"


def _note(
    found: dict[Family, dict[str, AddressType]], kind: AddressType, text: str, allowed: tuple[IpNetwork, ...]
) -> bool:
    for family in FAMILIES:
        if (ip := canonical_ip(text, family)) is not None:
            address = ipaddress.ip_address(ip)
            if address.is_loopback or address.is_link_local or not any(address in network for network in allowed):
                return False
            found[family].setdefault(ip, kind)
            return True
    return False


def _cut(ranges: tuple[str, ...]) -> Rejection:
    sentence = (
        f"spec.loadBalancerSourceRanges has {len(ranges)} ranges that do not touch, and {SOURCE_RANGES_MAX} are the"
    )
    return Rejection(
        "TooManySourceRanges", f"{sentence} most: clients of {ranges[SOURCE_RANGES_MAX]} and the rest are kept out"
    )


def _refused(text: str) -> Rejection:
    sentence = "is not served: it is no address that can be, or in none of the ranges that the administrator allows"
    return Rejection("ExternalIPRefused", f"spec.externalIPs: {text[:64]!r} {sentence}")
