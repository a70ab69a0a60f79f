"""What kube-proxy's rules serve, and what of it the agent does not serve yet. Pure: no I/O."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener, listeners_of, node_ports
from kube_nftlb.api.values import Protocol
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.netfilter.destinations import Destination

_CHAIN = re.compile(r"(?:service|local|external)-[A-Z2-7]{8}-(?P<namespace>[^/]+)/(?P<name>[^/]+)/")
"""A chain of kube-proxy in nftables mode (pkg/proxy/nftables/proxier.go, servicePortChainNameBase)."""
_COMMENT = re.compile(r"(?P<namespace>[a-z0-9.-]+)/(?P<name>[a-z0-9.-]+)(?:[: ]|$)")
"""The comment of a rule in iptables mode: a Service port, then what the address is (pkg/proxy/iptables/proxier.go)."""


class Served(NamedTuple):
    """An address and port that rules of kube-proxy send to endpoints."""

    family: Family
    ip: str | None
    """None for a node port."""
    protocol: str
    """TCP, UDP or SCTP; empty if the agent cannot read the rule."""
    port: int
    service: ServiceKey | None
    """The Service, if the rule names it."""

    def __str__(self) -> str:
        """Return it as messages have it."""
        if not self.protocol or not self.port:
            return "a rule that the agent cannot read"
        where = f"node port {self.port}" if self.ip is None else f"{self.ip} port {self.port}"
        of = f" of {self.service.namespace}/{self.service.name}" if self.service is not None else ""
        return f"{where} ({self.protocol}){of}"


@dataclass(frozen=True, slots=True)
class Ours:
    """What the agent serves, and knows of Services."""

    has_listener: Callable[[Listener], bool]
    """Tells whether an engine has a listener."""
    node_ips: Mapping[Family, Iterable[str]]
    """The addresses of this node that node ports listen on."""
    slices: Callable[[ServiceKey], Iterable[Slice]]
    """The EndpointSlices of a Service; all of them are known."""
    farms: Callable[[ServiceKey], Iterable[Farm]]
    """The operator's farms of a Service."""


def served(family: Family, destinations: Iterable[Destination]) -> Iterator[Served]:
    """Yield what rules, or elements of maps, serve that lead to the chain of a Service."""
    for each in destinations:
        named = _CHAIN.match(each.chain) or _COMMENT.match(each.comment)
        service = ServiceKey(named["namespace"], named["name"]) if named is not None else None
        yield Served(family, each.ip, each.protocol, each.port, service)


def unserved(all_served: Iterable[Served], ours: Ours) -> list[Served]:
    """Return what connections would lose if kube-proxy's rules went now.

    That is what no engine has a listener for, except where it is known that nobody answers there: its Service has no
    endpoints any more; or it has farms, and none of them asks for this listener, as with an external IP that is not
    allowed, or a port that the Service has no more.
    """
    return [each for each in all_served if not _is_served(each, ours) and not _is_over(each, ours)]


def _is_served(each: Served, ours: Ours) -> bool:
    if not each.protocol or not each.port:
        return False
    ips = [each.ip] if each.ip is not None else list(ours.node_ips.get(each.family, ()))
    protocol = cast("Protocol", each.protocol)
    return bool(ips) and all(ours.has_listener(Listener(ip, protocol, each.port)) for ip in ips)


def _is_over(each: Served, ours: Ours) -> bool:
    if each.service is None:
        return False
    slices = [part for part in ours.slices(each.service) if part.family == each.family]
    endpoints = (endpoint for part in slices for endpoint in part.endpoints)
    if not any(endpoint.ready or (endpoint.serving and endpoint.terminating) for endpoint in endpoints):
        return True
    farms = [farm for farm in ours.farms(each.service) if farm.spec.family == each.family]
    if each.ip is None and not ours.node_ips.get(each.family):
        # Node ports are not on any address of this family here.
        return bool(farms)
    listeners = {listener for farm in farms for _, listener in listeners_of(farm)}
    wanted = Listener(each.ip or node_ports(each.family), cast("Protocol", each.protocol), each.port)
    return bool(farms) and not listeners & {wanted, wanted.whole_address}
