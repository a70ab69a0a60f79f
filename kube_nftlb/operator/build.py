"""From a Service and its EndpointSlices to the farms that are wanted."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import BACKENDS_MAX
from kube_nftlb.api.service import Service, ServicePort
from kube_nftlb.operator.annotations import Options, wishes
from kube_nftlb.operator.backends import join
from kube_nftlb.operator.problems import Problem
from kube_nftlb.operator.slices import Slice, canonical_ip
from kube_nftlb.operator.specs import Spec, digest

_FAMILIES: tuple[Family, ...] = ("ipv4", "ipv6")


class PortKey(NamedTuple):
    """The identity of what one farm is made from: a Service port ("" where nameless) in one family."""

    namespace: str
    service: str
    port: str
    family: Family

    @property
    def plain_name(self) -> str:
        """The name of its farm, unless another has that name."""
        return names.farm_name(self.service, self.port, self.family)


class Wanted(NamedTuple):
    """One farm that is wanted."""

    port: PortKey
    spec: Spec
    digest: bytes


class Built(NamedTuple):
    """All farms of a Service, and what of it could not be done as asked."""

    farms: tuple[Wanted, ...]
    problems: tuple[Problem, ...]


def build(service: Service, slices: Iterable[Slice]) -> Built:
    """The farms of a Service: one per port and family; none of a Service that is not ours to serve (``serves``)."""
    addresses = cluster_ips(service)
    if not addresses:
        return Built((), ())
    asked = wishes(service, tuple(addresses))
    problems = list(asked.problems)
    of_family: dict[Family, list[Slice]] = {family: [] for family in _FAMILIES}
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
    for key, port, ip in _ports(service, addresses):
        peers = join(of_family[key.family], port.name or "", port.protocol)
        if len(peers) > BACKENDS_MAX:
            sentence = f"port {key.port or port.port} has {len(peers)} {key.family} endpoints; {BACKENDS_MAX} are used"
            problems.append(Problem("TooManyEndpoints", sentence))
            # False sorts before True, and sorted() keeps the order of names among equals.
            peers = sorted(
                sorted(peers, key=lambda peer: not peer["ready"])[:BACKENDS_MAX], key=lambda peer: peer["name"]
            )
        spec = _spec(key.family, port, ip, asked.of(key.family), peers)
        farms.append(Wanted(key, spec, digest(spec)))
    return Built(tuple(farms), tuple(problems))


def port_keys(service: Service) -> tuple[PortKey, ...]:
    """What ``build`` makes farms from, without looking at endpoints."""
    return tuple(key for key, _, _ in _ports(service, cluster_ips(service)))


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
        for family in _FAMILIES:
            if (ip := canonical_ip(text, family)) is not None:
                addresses.setdefault(family, ip)
    return addresses


def _ports(service: Service, addresses: dict[Family, str]) -> Iterator[tuple[PortKey, ServicePort, str]]:
    namespace, name = service.metadata.namespace, service.metadata.name
    for port in service.spec.ports:
        for family, ip in addresses.items():
            yield PortKey(namespace, name, port.name or "", family), port, ip


def _spec(family: Family, port: ServicePort, ip: str, options: Options, backends: list[Spec]) -> Spec:
    return {
        "family": family,
        "protocol": port.protocol,
        "addresses": [{"ip": ip, "ports": str(port.port)}],
        "mode": options.mode,
        "scheduler": options.scheduler,
        "schedParam": options.sched_param,
        "persistence": options.persistence,
        "persistTTL": options.persist_ttl,
        "intraConnect": True,
        "backends": backends,
    }
