"""Build the farms of a Service. Their backends are references to its EndpointSlices."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import OVERRIDES_MAX, engines
from kube_nftlb.api.farm.engines import Engine
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.values import Mode
from kube_nftlb.environment import IpNetwork
from kube_nftlb.kube import timestamps
from kube_nftlb.operator.farms.annotations import ALL, ServiceOptions, invalid, service_options
from kube_nftlb.operator.farms.external_addresses import (
    Objection,
    external_addresses,
    external_policy,
    fitting,
    internal_policy,
)
from kube_nftlb.operator.farms.ports import PortKey, cluster_ips, farm_ports
from kube_nftlb.operator.farms.spec import Spec, complete, digest
from kube_nftlb.operator.model.annotation_options import Fields, Given, Incompatible, fit, instead, problem
from kube_nftlb.operator.model.permissions import ALL_IPS, Permissions
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.prose import some_of
from kube_nftlb.settings import DefaultEngine

Pods = Callable[[str], Given]
"""Returns the options in a Pod's annotations, by the Pod's name."""

_PROBLEMS_MAX = 5
_SWITCHED_OFF = "the administrator has switched external IPs off; use a Service of type LoadBalancer"


class Profile(NamedTuple):
    """The administrator's settings for all Services."""

    mode: Mode = "snat"
    """The default mode of Services; dnat behaves as kube-proxy does."""
    engine: DefaultEngine = "nftlb"
    """The default engine; auto: nftables for what it can serve, nftlb for the rest."""
    external_ips: tuple[IpNetwork, ...] | None = ALL_IPS
    """The ranges of spec.externalIPs that are served; None if none are, whatever their range."""
    permissions: Permissions = Permissions()
    """The values that annotations may ask for."""
    ports_max: int = 1024
    """The number of ports of a Service that are served, each of which is a farm or more."""

    def engine_of(self, fields: Fields) -> Engine:
        """Return the engine of a farm with these fields."""
        if chosen := fields.get("engine"):
            return "nftables" if chosen == "nftables" else "nftlb"
        if self.engine == "auto":
            return "nftables" if engines.lacking(fields) is None else "nftlb"
        return self.engine


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
    pods: Iterable[str] = (),
    options_of_pod: Pods = lambda _: (),
    profile: Profile = Profile(),  # noqa: B008 - immutable
    objection: Objection = lambda _: None,
    gated_ips: Mapping[Family, list[str]] = MappingProxyType({}),
) -> Built:
    """Build the farms of a Service: one per port and family; none if it is not ours (``serves``).

    ``objection`` returns why an address cannot be an external IP.
    ``pods`` are its endpoints with annotations, sorted by name; ``options_of_pod`` returns the options of each.
    ``gated_ips`` are those of its Pods that wait for the readiness gate alone.
    """
    addresses = cluster_ips(service)
    if not addresses:
        return Built((), ())
    options = service_options(service, tuple(addresses), profile.mode)
    if profile.external_ips is None:
        objection = lambda _: _SWITCHED_OFF  # noqa: E731 - it replaces the given one
    outside = external_addresses(service, profile.external_ips or ALL_IPS, objection)
    problems = [*options.problems, *outside.problems]
    pods = list(pods)
    if len(pods) > OVERRIDES_MAX:
        message = f"{len(pods)} of its Pods have annotations; those of {pods[OVERRIDES_MAX]} and later ones"
        problems.append(Rejection("TooManyOverrides", f"{message} are ignored, the limit is {OVERRIDES_MAX}"))
    if len(service.spec.ports) > profile.ports_max:
        problems.append(_too_many_ports(service, profile.ports_max))
    kinds: dict[tuple[Family, str], _Kind] = {}
    farms: list[Wanted] = []
    ports = list(farm_ports(service, addresses, outside, options.listen, profile.ports_max))
    inner = {key._replace(external=False) for key, _, _ in ports if key.external}
    for key, port, named in ports:
        protocol = ALL if options.listen.all_ports else port.protocol
        if (kind := kinds.get((key.family, protocol))) is None:
            kind = _Kind(key.family, protocol, options, options_of_pod, profile, pods[:OVERRIDES_MAX])
            kinds[key.family, protocol] = kind
            problems.extend(problem for problem in distinguish(kind.overrides) if problem not in problems)
        kind.farms.append(key.plain_name)
        listened = fitting(named)
        if left_out := [address["ip"] for address in named if address not in listened]:
            message = f"port {key.port or port.port} has {len(named)} addresses, with their ports more than the limit"
            problems.append(Rejection("TooManyAddresses", f"{message} of a farm: {some_of(left_out)} not served"))
        spec = complete(
            {
                **kind.fields,
                "engine": profile.engine_of({**kind.fields, "protocol": protocol}),
                "family": key.family,
                "protocol": protocol,
                "addresses": listened,
                "trafficPolicy": external_policy(service) if key.external else internal_policy(service),
                "masquerade": "AsNeeded",
                **(_health_check(service) if key not in inner else {}),
                **_age(service),
                "backendsFrom": [
                    {
                        "service": service.metadata.name,
                        "port": port.name or "",
                        "weight": 1,
                        "refuse": False,
                        "keepPort": options.listen.keeps_port,
                        "overrides": kind.overrides,
                        **({"gatedIPs": gated} if (gated := gated_ips.get(key.family)) else {}),
                    }
                ],
            }
        )
        farms.append(Wanted(key, spec, digest(spec)))
    problems.extend(_refusals(kinds.values(), options))
    return Built(tuple(farms), tuple(problems))


def _too_many_ports(service: Service, most: int) -> Rejection:
    first = service.spec.ports[most]
    message = f"spec.ports has more ports than the {most} that the administrator allows"
    return Rejection("TooManyPorts", f"{message}: port {first.name or first.port} and later ones are not served")


def distinguish(overrides: list[Spec]) -> list[Rejection]:
    """Remove duplicate marks from all but the first override: to the kernel, both backends would be one.

    They may be of one Pod, which is a backend of each group that has it.
    """
    having: dict[int, str] = {}
    problems = []
    for override in overrides:
        if (mark := override.get("mark")) is None:
            continue
        if (first := having.get(mark)) is None:
            having[mark] = override["pod"]
            continue
        del override["mark"]
        message = f"backends {first} and {override['pod']} both ask for {mark}; {first} gets it"
        problems.append(problem("mark", message))
    return problems[:_PROBLEMS_MAX]


def _health_check(service: Service) -> Spec:
    """Return the healthCheckNodePort of the farms of a Service, but for those whose external addresses another has.

    It is there before the Service has any: a load balancer may wait for it.
    """
    wanted = service.spec.type == "LoadBalancer" and external_policy(service) == "Local"
    port = service.spec.health_check_node_port
    return {"healthCheckNodePort": port} if wanted and port else {}


def _age(service: Service) -> Spec:
    """Return the serviceCreationTimestamp of a farm."""
    created = service.metadata.creation_timestamp
    return {"serviceCreationTimestamp": timestamps.seconds(created)} if created is not None else {}


class _Kind:
    """The common part of farms of one family and protocol."""

    def __init__(
        self,
        family: Family,
        protocol: str,
        options: ServiceOptions,
        pods: Pods,
        profile: Profile,
        annotated: Iterable[str],
    ) -> None:
        """``annotated`` are the names of Pods with annotations."""
        self.fields, self.refused = options.of(family, protocol, profile.permissions.objection)
        self.farms: list[str] = []
        self.refused_pods: dict[Incompatible, list[str]] = {}
        self._family = family
        self._protocol = protocol
        self._keeps_port = options.listen.keeps_port
        self._pods = pods
        self._permissions = profile.permissions
        self._fitted: dict[Given, tuple[Fields, list[Incompatible]]] = {}
        self.overrides = [{"pod": pod, **fields} for pod in annotated if (fields := self._backend_fields(pod))]
        """What annotations of Pods say, the same list for all farms: there may be a million otherwise."""

    def _backend_fields(self, pod: str) -> Fields:
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
                    self._permissions.objection(fields) or invalid(self._family, self._protocol, self.fields, (fields,))
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
            yield problem(refusal.option.key, f"{where}: {refusal.message}; it is ignored")
    for refusal, having in of.items():
        where = "" if having == farms else f" by the farm {some_of(having)}"
        consequence = instead(refusal.option, options.affinity)
        yield problem(refusal.option.key, f"{refusal.message}; {consequence}{where}")
