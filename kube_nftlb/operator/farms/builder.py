"""From a Service and its EndpointSlices to the farms that are wanted."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.farm import BACKENDS_MAX
from kube_nftlb.api.kubernetes.service import Service, ServicePort
from kube_nftlb.api.values import Mode
from kube_nftlb.operator.cache.slices import Slice, canonical_ip
from kube_nftlb.operator.farms.annotations import ALL, Listen, Wishes, complaint, wishes
from kube_nftlb.operator.farms.backends import by_port, distinguish, join
from kube_nftlb.operator.farms.external_addresses import (
    ALL_IPS,
    External,
    external_addresses,
    external_policy,
    fitting,
    internal_policy,
)
from kube_nftlb.operator.farms.spec import Spec, complete, digest, fitting_backends
from kube_nftlb.operator.model.annotation_options import Fields, Given, Refusal, fit, instead, problem
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.settings import IpNetwork

Pods = Callable[[str], Given]
"""What a Pod's annotations ask for, by its name; nothing for one without any."""

_NAMED_MAX = 3

BACKENDS_OF_SERVICE_MAX = 100_000
"""How many backends all farms of a Service may have together: while they are made, every other Service waits."""
ENDPOINTS_OF_SERVICE_MAX = 200_000
"""How many endpoints are looked at for them, each once for each port."""


class PortKey(NamedTuple):
    """The identity of what one farm is made from: a Service port ("" where nameless) in one family."""

    namespace: str
    service: str
    port: str
    family: Family
    external: bool = False
    """Whether it is the second farm of its port: that of the addresses reached from outside the cluster."""

    @property
    def plain_name(self) -> str:
        """The name of its farm, unless another has that name."""
        return names.farm_name(self.service, self.port, self.family, external=self.external)


class Profile(NamedTuple):
    """What an administrator has set for all Services."""

    mode: Mode = "snat"
    """The mode of a Service that asks for none; dnat makes the whole as kube-proxy is."""
    external_ips: tuple[IpNetwork, ...] = ALL_IPS
    """Which spec.externalIPs are served."""
    source_addresses: tuple[IpNetwork, ...] = ALL_IPS
    """Which addresses a Service's backends may see as their client because of an annotation."""

    def complaint(self, fields: Fields) -> str | None:
        """What the administrator has against the fields of a farm or of a backend."""
        address = fields.get("sourceAddress")
        if address is None or any(ipaddress.ip_address(address) in network for network in self.source_addresses):
            return None
        return f"{address} is in none of the ranges that the administrator allows for source addresses"


class Wanted(NamedTuple):
    """One farm that is wanted."""

    port: PortKey
    spec: Spec
    digest: bytes


class Built(NamedTuple):
    """All farms of a Service, and what of it could not be done as asked."""

    farms: tuple[Wanted, ...]
    problems: tuple[Rejection, ...]


def build(
    service: Service,
    slices: Iterable[Slice],
    pods: Pods = lambda _: (),
    profile: Profile = Profile(),  # noqa: B008 - immutable
) -> Built:
    """The farms of a Service: one per port and family; none of a Service that is not ours to serve (``serves``).

    ``pods`` tells what the annotations of a pod of the Service's namespace ask for, by its name.
    """
    addresses = cluster_ips(service)
    if not addresses:
        return Built((), ())
    asked = wishes(service, tuple(addresses), profile.mode)
    outside = external_addresses(service, profile.external_ips)
    problems = [*asked.problems, *outside.problems]
    of_family: dict[Family, list[Slice]] = {family: [] for family in addresses}
    for each in sorted(slices):
        if each.family in addresses:
            of_family[each.family].append(each)
            problems.extend(
                Rejection(
                    "InvalidEndpoint",
                    f"EndpointSlice {each.name}: {text!r} is no {each.family} address; it is left out",
                )
                for text in each.invalid
            )
    served = {family: by_port(several) for family, several in of_family.items()}
    kinds: dict[tuple[Family, str], _Kind] = {}
    farms: list[Wanted] = []
    room, looks = BACKENDS_OF_SERVICE_MAX, ENDPOINTS_OF_SERVICE_MAX
    for key, port, named in _ports(service, addresses, outside, asked.listen):
        where = f"port {key.port or port.port}"
        protocol = ALL if asked.listen.all_ports else port.protocol
        kind = kinds.get((key.family, protocol)) or _Kind(key.family, protocol, asked, pods, profile)
        kinds[key.family, protocol] = kind
        kind.farms.append(key.plain_name)
        of_port = served[key.family].get((port.name or "", port.protocol), [])
        endpoints = sum(len(each.peers) for each, _ in of_port)
        looks -= endpoints
        room -= 0 if key.external else min(endpoints, BACKENDS_MAX)
        if looks < 0 or room < 0:
            sentence = f"its ports have too many endpoints together: none from {where} on has a farm"
            problems.append(Rejection("TooManyEndpoints", f"{sentence}; make several Services of it"))
            break
        peers, total = join(of_port, keeps_port=asked.listen.keeps_port, asked=kind.backend_fields)
        listened = fitting(named)
        # Those that are ready are taken first, and may have longer names than the others.
        while (fit := fitting_backends({**kind.fields, "addresses": listened, "backends": peers})) < len(peers):
            peers, _ = join(of_port, keeps_port=asked.listen.keeps_port, asked=kind.backend_fields, most=fit)
        problems.extend(distinguish(peers))
        if total > len(peers):
            sentence = f"{where} has {total} {key.family} endpoints; {len(peers)} are used, as many as a farm can have"
            problems.append(Rejection("TooManyEndpoints", sentence))
        if left_out := [address["ip"] for address in named if address not in listened]:
            sentence = f"{where} has {len(named)} addresses, which with their ports are more than a farm may have"
            problems.append(Rejection("TooManyAddresses", f"{sentence}: not served is {_some(left_out)}"))
        spec = complete(
            {
                **kind.fields,
                "family": key.family,
                "protocol": protocol,
                "addresses": listened,
                "trafficPolicy": external_policy(service) if key.external else internal_policy(service),
                "masquerade": "AsNeeded",
                **_health_check(service, listened),
                "backends": peers,
            }
        )
        farms.append(Wanted(key, spec, digest(spec)))
    problems.extend(_refusals(kinds.values(), asked))
    return Built(tuple(farms), tuple(problems))


def port_keys(service: Service) -> tuple[PortKey, ...]:
    """What ``build`` makes farms from, without looking at endpoints."""
    return tuple(key for key, _, _ in _ports(service, cluster_ips(service), external_addresses(service), Listen()))


def serves(service: Service) -> bool:
    """Whether the Service is ours: it has a cluster IP and no label that gives it to another proxy."""
    labels = service.metadata.labels
    if names.LABEL_PROXY_NAME in labels or names.LABEL_HEADLESS in labels:
        return False
    return service.spec.type != "ExternalName" and service.spec.cluster_ip not in ("", "None")


def cluster_ips(service: Service) -> dict[Family, str]:
    """The Service's cluster IP of each family that it has one of; nothing for a Service that is not ours."""
    if not serves(service):
        return {}
    addresses: dict[Family, str] = {}
    for text in service.spec.cluster_ips or (service.spec.cluster_ip,):
        for family in FAMILIES:
            if (ip := canonical_ip(text, family)) is not None:
                addresses.setdefault(family, ip)
    return addresses


def _ports(
    service: Service, addresses: dict[Family, str], outside: External, listen: Listen
) -> Iterator[tuple[PortKey, ServicePort, list[Spec]]]:
    """Each farm of a Service: what it is made from, and what it listens on.

    A port has a second farm for the addresses reached from outside where a traffic policy is Local: the nodes' own
    clients may be led to other backends there, and sessions of theirs must not count inside. And where one of them is
    an external IP: somebody else may have that, and then a farm is refused as a whole. With session affinity all
    addresses are one farm all the same, as a client's backend is to be the same at each.
    """
    namespace, name = service.metadata.namespace, service.metadata.name
    local = "Local" in (internal_policy(service), external_policy(service))
    sticky = service.spec.session_affinity == "ClientIP"
    for port in service.spec.ports:
        for family, ip in addresses.items():
            key = PortKey(namespace, name, port.name or "", family)
            ports = "" if listen.all_ports else listen.ports or str(port.port)
            inner: Spec = {"type": "ClusterIP", "ip": ip, "ports": ports}
            outer = outside.of(family, port, ports)
            chosen = any(address["type"] == "ExternalIP" for address in outer)
            if outer and (local or (chosen and not sticky)):
                yield key, port, [inner]
                yield key._replace(external=True), port, outer
            else:
                yield key, port, [inner, *outer]


def _health_check(service: Service, addresses: list[Spec]) -> Spec:
    """The port is for load balancers, and answers for the farm that has the addresses reached from outside."""
    outside = any(address["type"] != "ClusterIP" for address in addresses)
    wanted = service.spec.type == "LoadBalancer" and external_policy(service) == "Local"
    if outside and wanted and service.spec.health_check_node_port:
        return {"healthCheckNodePort": service.spec.health_check_node_port}
    return {}


class _Kind:
    """What the farms of one family and protocol have in common."""

    def __init__(self, family: Family, protocol: str, asked: Wishes, pods: Pods, profile: Profile) -> None:
        self.fields, self.refused = asked.of(family, protocol, profile.complaint)
        self.farms: list[str] = []
        self.refused_pods: dict[Refusal, list[str]] = {}
        self._family = family
        self._protocol = protocol
        self._keeps_port = asked.listen.keeps_port
        self._pods = pods
        self._profile = profile
        self._fitted: dict[Given, tuple[Fields, list[Refusal]]] = {}

    def backend_fields(self, pod: str) -> Fields:
        """What a pod's annotations ask of a backend, as far as it goes with the farm."""
        if not (given := self._pods(pod)):
            return {}
        if given not in self._fitted:
            base: Fields = {} if self._keeps_port else {"port": 1}
            self._fitted[given] = fit(
                given,
                self._family,
                base,
                lambda fields: (
                    self._profile.complaint(fields) or complaint(self._family, self._protocol, self.fields, (fields,))
                ),
            )
        fields, refused = self._fitted[given]
        for refusal in refused:
            self.refused_pods.setdefault(refusal, []).append(pod)
        return {name: value for name, value in fields.items() if name != "port"}


def _refusals(kinds: Iterable[_Kind], asked: Wishes) -> Iterator[Rejection]:
    """What does not go together, told once for all farms that have it."""
    farms = [name for kind in kinds for name in kind.farms]
    of: dict[Refusal, list[str]] = {}
    for kind in kinds:
        for refusal in kind.refused:
            of.setdefault(refusal, []).extend(kind.farms)
        for refusal, pods in kind.refused_pods.items():
            where = f"of the Pod {min(pods)}{' and others' if len(set(pods)) > 1 else ''}"
            yield problem(refusal.option.key, f"{where}: {refusal.sentence}; it is left out")
    for refusal, having in of.items():
        where = "" if having == farms else f" by the farm {_some(having)}"
        consequence = instead(refusal.option, asked.affinity)
        yield problem(refusal.option.key, f"{refusal.sentence}; {consequence}{where}")


def _some(having: list[str]) -> str:
    rest = len(having) - _NAMED_MAX
    return ", ".join(having[:_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
