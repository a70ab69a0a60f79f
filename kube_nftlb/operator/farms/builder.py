"""Build the farms of a Service from it and its EndpointSlices."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import BACKENDS_MAX
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.values import Mode
from kube_nftlb.environment import IpNetwork
from kube_nftlb.operator.cache.slices import Slice
from kube_nftlb.operator.farms.annotations import ALL, ServiceOptions, invalid, service_options
from kube_nftlb.operator.farms.backends import by_port, distinguish, join
from kube_nftlb.operator.farms.external_addresses import (
    ALL_IPS,
    external_addresses,
    external_policy,
    fitting,
    internal_policy,
)
from kube_nftlb.operator.farms.ports import PortKey, cluster_ips, farm_ports
from kube_nftlb.operator.farms.spec import Spec, complete, digest, fitting_backends
from kube_nftlb.operator.model.annotation_options import Fields, Given, Incompatible, fit, instead, problem
from kube_nftlb.operator.model.rejections import Rejection

Pods = Callable[[str], Given]
"""Returns the options in a Pod's annotations, by the Pod's name."""

_NAMED_MAX = 3

BACKENDS_OF_SERVICE_MAX = 100_000
"""The limit of backends in all farms of a Service: every other Service waits while they are built."""
ENDPOINTS_OF_SERVICE_MAX = 200_000
"""The limit of endpoints to examine for them, each counted once per port."""


class Profile(NamedTuple):
    """The administrator's settings for all Services."""

    mode: Mode = "snat"
    """The default mode of Services; dnat behaves as kube-proxy does."""
    external_ips: tuple[IpNetwork, ...] = ALL_IPS
    """The ranges of spec.externalIPs that are served."""
    source_addresses: tuple[IpNetwork, ...] = ALL_IPS
    """The ranges that annotations may choose source addresses from."""

    def objection(self, fields: Fields) -> str | None:
        """Return why the settings forbid fields of a farm or a backend, or None."""
        address = fields.get("sourceAddress")
        if address is None or any(ipaddress.ip_address(address) in network for network in self.source_addresses):
            return None
        return f"{address} is in none of the ranges that the administrator allows for source addresses"


class Wanted(NamedTuple):
    """A farm that a Service needs."""

    port: PortKey
    spec: Spec
    digest: bytes


class Built(NamedTuple):
    """All farms of a Service, and what of it was rejected."""

    farms: tuple[Wanted, ...]
    problems: tuple[Rejection, ...]


def build(
    service: Service,
    slices: Iterable[Slice],
    pods: Pods = lambda _: (),
    profile: Profile = Profile(),  # noqa: B008 - immutable
    backends_max: int = BACKENDS_OF_SERVICE_MAX,
) -> Built:
    """Build the farms of a Service: one per port and family; none if it is not ours (``serves``).

    ``pods`` returns the options of a pod in the Service's namespace, by its name. ``backends_max`` limits the backends
    of all farms together.
    """
    addresses = cluster_ips(service)
    if not addresses:
        return Built((), ())
    options = service_options(service, tuple(addresses), profile.mode)
    outside = external_addresses(service, profile.external_ips)
    problems = [*options.problems, *outside.problems]
    of_family: dict[Family, list[Slice]] = {family: [] for family in addresses}
    for each in sorted(slices):
        if each.family in addresses:
            of_family[each.family].append(each)
            problems.extend(
                Rejection(
                    "InvalidEndpoint",
                    f"EndpointSlice {each.name}: {text!r} is not a usable {each.family} address; it is ignored",
                )
                for text in each.invalid
            )
    served = {family: by_port(several) for family, several in of_family.items()}
    kinds: dict[tuple[Family, str], _Kind] = {}
    farms: list[Wanted] = []
    room, looks = backends_max, ENDPOINTS_OF_SERVICE_MAX
    for key, port, named in farm_ports(service, addresses, outside, options.listen):
        where = f"port {key.port or port.port}"
        protocol = ALL if options.listen.all_ports else port.protocol
        kind = kinds.get((key.family, protocol)) or _Kind(key.family, protocol, options, pods, profile)
        kinds[key.family, protocol] = kind
        kind.farms.append(key.plain_name)
        of_port = served[key.family].get((port.name or "", port.protocol), [])
        endpoints = sum(len(each.peers) for each, _ in of_port)
        looks -= endpoints
        room -= 0 if key.external else min(endpoints, BACKENDS_MAX)
        if looks < 0 or room < 0:
            sentence = f"its ports have too many endpoints in total: {where} and later ones have no farm"
            problems.append(Rejection("TooManyEndpoints", f"{sentence}; split it into several Services"))
            break
        peers, total = join(of_port, keeps_port=options.listen.keeps_port, options=kind.backend_fields)
        listened = fitting(named)
        # The ready ones come first, and may have longer names than the others.
        while (fit := fitting_backends({**kind.fields, "addresses": listened, "backends": peers})) < len(peers):
            peers, _ = join(of_port, keeps_port=options.listen.keeps_port, options=kind.backend_fields, most=fit)
        problems.extend(distinguish(peers))
        if total > len(peers):
            sentence = f"{where} has {total} {key.family} endpoints; only {len(peers)} are used, the limit of a farm"
            problems.append(Rejection("TooManyEndpoints", sentence))
        if left_out := [address["ip"] for address in named if address not in listened]:
            sentence = f"{where} has {len(named)} addresses, with their ports more than the limit of a farm"
            problems.append(Rejection("TooManyAddresses", f"{sentence}: {_some(left_out)} not served"))
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
    problems.extend(_refusals(kinds.values(), options))
    return Built(tuple(farms), tuple(problems))


def _health_check(service: Service, addresses: list[Spec]) -> Spec:
    """Return the healthCheckNodePort of a farm, which only the farm with the external addresses has."""
    outside = any(address["type"] != "ClusterIP" for address in addresses)
    wanted = service.spec.type == "LoadBalancer" and external_policy(service) == "Local"
    if outside and wanted and service.spec.health_check_node_port:
        return {"healthCheckNodePort": service.spec.health_check_node_port}
    return {}


class _Kind:
    """The common part of farms of one family and protocol."""

    def __init__(self, family: Family, protocol: str, options: ServiceOptions, pods: Pods, profile: Profile) -> None:
        self.fields, self.refused = options.of(family, protocol, profile.objection)
        self.farms: list[str] = []
        self.refused_pods: dict[Incompatible, list[str]] = {}
        self._family = family
        self._protocol = protocol
        self._keeps_port = options.listen.keeps_port
        self._pods = pods
        self._profile = profile
        self._fitted: dict[Given, tuple[Fields, list[Incompatible]]] = {}

    def backend_fields(self, pod: str) -> Fields:
        """Return the fields that a pod's annotations set on a backend, except those that the farm cannot have."""
        if not (given := self._pods(pod)):
            return {}
        if given not in self._fitted:
            base: Fields = {} if self._keeps_port else {"port": 1}
            self._fitted[given] = fit(
                given,
                self._family,
                base,
                lambda fields: (
                    self._profile.objection(fields) or invalid(self._family, self._protocol, self.fields, (fields,))
                ),
            )
        fields, refused = self._fitted[given]
        for refusal in refused:
            self.refused_pods.setdefault(refusal, []).append(pod)
        return {name: value for name, value in fields.items() if name != "port"}


def _refusals(kinds: Iterable[_Kind], options: ServiceOptions) -> Iterator[Rejection]:
    """Yield the options that farms cannot have, one problem for all farms with it."""
    farms = [name for kind in kinds for name in kind.farms]
    of: dict[Incompatible, list[str]] = {}
    for kind in kinds:
        for refusal in kind.refused:
            of.setdefault(refusal, []).extend(kind.farms)
        for refusal, pods in kind.refused_pods.items():
            where = f"of the Pod {min(pods)}{' and others' if len(set(pods)) > 1 else ''}"
            yield problem(refusal.option.key, f"{where}: {refusal.sentence}; it is ignored")
    for refusal, having in of.items():
        where = "" if having == farms else f" by the farm {_some(having)}"
        consequence = instead(refusal.option, options.affinity)
        yield problem(refusal.option.key, f"{refusal.sentence}; {consequence}{where}")


def _some(having: list[str]) -> str:
    rest = len(having) - _NAMED_MAX
    return ", ".join(having[:_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
