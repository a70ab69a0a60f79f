"""From a Service and its EndpointSlices to the farms that are wanted."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import BACKENDS_MAX
from kube_nftlb.api.service import Service, ServicePort
from kube_nftlb.api.values import Mode
from kube_nftlb.operator.annotations import Options, wishes
from kube_nftlb.operator.backends import join
from kube_nftlb.operator.external import (
    ALL_IPS,
    FAMILIES,
    External,
    IpNetwork,
    external_addresses,
    external_policy,
    internal_policy,
)
from kube_nftlb.operator.problems import Problem
from kube_nftlb.operator.slices import Slice, canonical_ip
from kube_nftlb.operator.specs import Spec, digest


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


class Wanted(NamedTuple):
    """One farm that is wanted."""

    port: PortKey
    spec: Spec
    digest: bytes


class Built(NamedTuple):
    """All farms of a Service, and what of it could not be done as asked."""

    farms: tuple[Wanted, ...]
    problems: tuple[Problem, ...]


def build(service: Service, slices: Iterable[Slice], profile: Profile = Profile()) -> Built:  # noqa: B008 - immutable
    """The farms of a Service: one per port and family; none of a Service that is not ours to serve (``serves``)."""
    addresses = cluster_ips(service)
    if not addresses:
        return Built((), ())
    asked = wishes(service, tuple(addresses), profile.mode)
    outside = external_addresses(service, profile.external_ips)
    problems = [*asked.problems, *outside.problems]
    of_family: dict[Family, list[Slice]] = {family: [] for family in FAMILIES}
    for each in sorted(slices):
        if each.family in addresses:
            of_family[each.family].append(each)
            problems.extend(
                Problem(
                    "InvalidEndpoint",
                    f"EndpointSlice {each.name}: {text!r} is no {each.family} address; it is left out",
                )
                for text in each.invalid
            )
    farms = []
    for key, port, listened in _ports(service, addresses, outside):
        peers = join(of_family[key.family], port.name or "", port.protocol)
        if len(peers) > BACKENDS_MAX:
            sentence = f"port {key.port or port.port} has {len(peers)} {key.family} endpoints; {BACKENDS_MAX} are used"
            problems.append(Problem("TooManyEndpoints", sentence))
            # False sorts before True, and sorted() keeps the order of names among equals.
            peers = sorted(
                sorted(peers, key=lambda peer: not peer["ready"])[:BACKENDS_MAX], key=lambda peer: peer["name"]
            )
        spec = _spec(service, key, port, listened, asked.of(key.family), peers)
        farms.append(Wanted(key, spec, digest(spec)))
    return Built(tuple(farms), tuple(problems))


def port_keys(service: Service) -> tuple[PortKey, ...]:
    """What ``build`` makes farms from, without looking at endpoints."""
    return tuple(key for key, _, _ in _ports(service, cluster_ips(service), external_addresses(service)))


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
    service: Service, addresses: dict[Family, str], outside: External
) -> Iterator[tuple[PortKey, ServicePort, list[Spec]]]:
    """Each farm of a Service: what it is made from, and what it listens on.

    A port has a second farm for the addresses reached from outside where these have a traffic policy of their own.
    """
    namespace, name = service.metadata.namespace, service.metadata.name
    apart = internal_policy(service) != external_policy(service)
    for port in service.spec.ports:
        for family, ip in addresses.items():
            key = PortKey(namespace, name, port.name or "", family)
            inner: Spec = {"type": "ClusterIP", "ip": ip, "ports": str(port.port)}
            outer = outside.of(family, port)
            if outer and apart:
                yield key, port, [inner]
                yield key._replace(external=True), port, outer
            else:
                yield key, port, [inner, *outer]


def _spec(
    service: Service, key: PortKey, port: ServicePort, addresses: list[Spec], options: Options, backends: list[Spec]
) -> Spec:
    return {
        "family": key.family,
        "protocol": port.protocol,
        "addresses": addresses,
        "mode": options.mode,
        "trafficPolicy": external_policy(service) if key.external else internal_policy(service),
        "masquerade": "AsNeeded",
        "scheduler": options.scheduler,
        "schedParam": options.sched_param,
        "persistence": options.persistence,
        "persistTTL": options.persist_ttl,
        "intraConnect": True,
        **_health_check(service, addresses),
        "backends": backends,
    }


def _health_check(service: Service, addresses: list[Spec]) -> Spec:
    """The port is for load balancers, and answers for the farm that has the addresses reached from outside."""
    outside = any(address["type"] != "ClusterIP" for address in addresses)
    wanted = service.spec.type == "LoadBalancer" and external_policy(service) == "Local"
    if outside and wanted and service.spec.health_check_node_port:
        return {"healthCheckNodePort": service.spec.health_check_node_port}
    return {}
