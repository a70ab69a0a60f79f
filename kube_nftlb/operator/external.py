"""The addresses of a Service that are reached from outside the cluster, and the traffic policies."""

import ipaddress
from typing import Any, NamedTuple

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.farm import SOURCE_RANGES_MAX
from kube_nftlb.api.service import Service, ServicePort
from kube_nftlb.api.values import AddressType, TrafficPolicy
from kube_nftlb.operator.problems import Problem
from kube_nftlb.operator.slices import canonical_ip
from kube_nftlb.settings import IpNetwork

ALL_IPS: tuple[IpNetwork, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))

_OUTSIDE_TYPES = ("NodePort", "LoadBalancer")


class External(NamedTuple):
    """A Service's external IPs and load balancer's IPs per family, and whether it has node ports."""

    ips: dict[Family, tuple[tuple[AddressType, str], ...]]
    node_ports: bool
    source_ranges: dict[Family, tuple[str, ...]]
    problems: tuple[Problem, ...] = ()

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
    return External(
        {family: tuple((kind, ip) for ip, kind in ips.items() if ip not in own) for family, ips in found.items()},
        service.spec.type in _OUTSIDE_TYPES,
        {family: _source_ranges(service, family) for family in FAMILIES},
        tuple(problems),
    )


def _source_ranges(service: Service, family: Family) -> tuple[str, ...]:
    """spec.loadBalancerSourceRanges of a family; nothing where they let everybody in, or none is of this family."""
    found: set[IpNetwork] = set()
    for text in service.spec.load_balancer_source_ranges:
        try:
            network = ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            # The API server takes none that is not a range, and kube-proxy leaves it out as well.
            continue
        if network.version == (6 if family == "ipv6" else 4):
            found.add(network)
    if any(network.prefixlen == 0 for network in found):
        return ()
    return tuple(sorted(str(network) for network in found))[:SOURCE_RANGES_MAX]


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


def _refused(text: str) -> Problem:
    sentence = "is not served: it is no address that can be, or in none of the ranges that the administrator allows"
    return Problem("ExternalIPRefused", f"spec.externalIPs: {text[:64]!r} {sentence}")
