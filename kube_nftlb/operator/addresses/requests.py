"""What a Service asks of address pools, and what its status has. Pure."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.address_ranges import Ip, ip_of, known_ip_of
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.kubernetes.service import Service, ServiceCondition
from kube_nftlb.api.listeners import ALL_PORTS
from kube_nftlb.api.values import expand_ports
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.farms.annotations import listen_of
from kube_nftlb.operator.farms.external_addresses import ADDRESSES_READ_MAX
from kube_nftlb.operator.farms.ports import serves

EVERY_PORT: Final = ("All", ALL_PORTS)
"""Stands for every port of every protocol."""

_TEXT_MAX = 253
"""Longer annotations are not read."""


class GatewayKey(NamedTuple):
    """The identity of a Gateway, which is never equal to that of a Service."""

    namespace: str
    name: str
    kind: Literal["Gateway"] = "Gateway"


Holder = ServiceKey | GatewayKey
"""What has addresses."""


class Request(NamedTuple):
    """A Service or Gateway that wants addresses."""

    key: Holder
    rank: tuple[float, Holder]
    """Of two that have an address which they cannot share, the lower one keeps it."""
    labels: tuple[tuple[str, str], ...]
    families: tuple[Family, ...]
    all_families: bool
    """An address of one family is no use without one of the other: ipFamilyPolicy RequireDualStack."""
    with_class: bool
    """The Service names our class; otherwise its addresses may be those of another load balancer."""
    ports: frozenset[tuple[str, int]]
    """The ports that its farms listen on, by protocol."""
    selector: tuple[tuple[str, str], ...]
    local: bool
    """externalTrafficPolicy Local: only nodes with endpoints serve it."""
    pool: str = ""
    """The only pool that it wants; empty for any."""
    addresses: tuple[Ip, ...] = ()
    """The addresses that it wants, at most one of each family."""
    sharing_key: str = ""
    problem: str = ""
    """A sentence about what cannot be read; then it gets nothing."""

    def port_of_both(self, other: "Request") -> tuple[str, int] | None:
        """Return a port that both listen on, EVERY_PORT if one of them listens on every port; None if there is none."""
        if EVERY_PORT in self.ports | other.ports:
            return EVERY_PORT
        return min(self.ports & other.ports, default=None)


class Given(NamedTuple):
    """The load balancer's part of a Service's status, or the addresses in that of a Gateway."""

    ips: tuple[Ip, ...] = ()
    ours: bool = False
    """The addresses come from a pool: the Service has our condition, which we write to no other."""
    others: bool = False
    """It has names, or addresses that cannot come from a pool."""


def condition_of(service: Service) -> ServiceCondition | None:
    """Return the condition AddressAssigned of a Service."""
    return next((each for each in service.status.conditions if each.type == names.ADDRESS_CONDITION), None)


def given(service: Service) -> Given:
    """Return the addresses in the status of a Service of type LoadBalancer; none of others."""
    if service.spec.type != "LoadBalancer":
        return Given()
    ips: dict[Ip, None] = {}
    others = False
    for ingress in service.status.load_balancer.ingress[:ADDRESSES_READ_MAX]:
        try:
            ips[known_ip_of(ingress.ip)] = None
        except ValueError:
            others = True
        others = others or bool(ingress.hostname)
    return Given(tuple(ips), condition_of(service) is not None, others)


def request_of(service: Service, *, without_class: bool) -> Request | None:
    """Return what a Service asks for; None if it is not ours: of another type or class, or served by another proxy.

    ``without_class``: those without a class are ours, too.
    """
    spec, metadata = service.spec, service.metadata
    if spec.type != "LoadBalancer" or not serves(service):
        return None
    if spec.load_balancer_class != names.LOAD_BALANCER_CLASS and (spec.load_balancer_class or not without_class):
        return None
    key = ServiceKey(metadata.namespace, metadata.name)
    request = Request(
        key,
        (metadata.created_s, key),
        tuple(sorted(metadata.labels.items())),
        tuple(_families(service)),
        spec.ip_family_policy == "RequireDualStack",
        spec.load_balancer_class is not None,
        frozenset(_ports(service)),
        tuple(sorted((spec.selector or {}).items())),
        spec.external_traffic_policy == "Local",
    )
    try:
        return request._replace(
            pool=_annotation(service, names.ANNOTATION_ADDRESS_POOL),
            addresses=_addresses(service, request.families),
            sharing_key=_annotation(service, names.ANNOTATION_SHARING_KEY),
        )
    except ValueError as error:
        return request._replace(problem=str(error))


def _ports(service: Service) -> Iterator[tuple[str, int]]:
    listen = listen_of(service)
    if listen.all_ports:
        yield EVERY_PORT
        return
    for port in service.spec.ports:
        yield from ((port.protocol, number) for number in expand_ports(listen.ports) or [port.port])


def _families(service: Service) -> Iterator[Family]:
    found = {"IPv4": FAMILIES[0], "IPv6": FAMILIES[1]}
    return (found[text] for text in dict.fromkeys(service.spec.ip_families) if text in found)


def _annotation(service: Service, key: str) -> str:
    text = service.metadata.annotations.get(key, "").strip()
    if len(text) > _TEXT_MAX:
        raise ValueError(f"the annotation {key} has more than {_TEXT_MAX} characters")
    return text


def _addresses(service: Service, families: tuple[Family, ...]) -> tuple[Ip, ...]:
    annotated = _annotation(service, names.ANNOTATION_ADDRESSES)
    where = names.ANNOTATION_ADDRESSES if annotated else "spec.loadBalancerIP"
    texts = annotated.split(",") if annotated else [service.spec.load_balancer_ip or ""]
    found: dict[Family, Ip] = {}
    for text in filter(None, map(str.strip, texts)):
        try:
            ip = ip_of(text[:_TEXT_MAX])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if ip.family in found:
            raise ValueError(f"{where} has two addresses of one family, and a Service gets one of each")
        if ip.family not in families:
            raise ValueError(f"{where}: {ip} is of no family of the Service (spec.ipFamilies)")
        found[ip.family] = ip
    return tuple(found.values())
