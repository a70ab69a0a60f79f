"""What the decisions are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route, RouteKindName
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.values import Mode
from kube_nftlb.settings import DefaultEngine

CONTROLLER: Final = f"{names.GROUP}/gateway"
"""spec.controllerName of the GatewayClasses that are ours."""


CLUSTER: Final = "Cluster"
"""The routability of addresses that are cluster IPs."""
SENTINEL: Final = "testing.x-k8s.io/sentinel"
"""A routability without a meaning, which Gateway API has its implementations know."""


AddressProblem = Literal["", "AddressNotAssigned", "AddressNotUsable"]


class ObjectKey(NamedTuple):
    """The identity of an object of a known kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``{namespace}/{name}``, by which Gateway API orders objects of the same age."""
        return f"{self.namespace}/{self.name}"


class RouteKey(NamedTuple):
    """The identity of a route."""

    kind: RouteKindName
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class AddressState:
    """What became of the address request of a Gateway."""

    addresses: tuple[str, ...] = ()
    """The addresses that it has, in canonical form; also with a problem, if it has some of those that it wants."""
    problem: AddressProblem = ""
    """Empty: it has all that it wants. AddressNotUsable: one of ``spec.addresses`` cannot be had."""
    message: str = ""
    """Says why, as a sentence."""
    routability: tuple[tuple[str, str], ...] = ()
    """That of the addresses that have one, by address: those with Cluster are cluster IPs."""
    unasked: int = 0
    """So many of them it does not ask for: it keeps them until it has others."""

    @property
    def inside(self) -> frozenset[str]:
        """The addresses that are cluster IPs."""
        return frozenset(ip for ip, routability in self.routability if routability == CLUSTER)


@dataclass(frozen=True, slots=True)
class FarmState:
    """What the status of a farm says about the generation that the API server has, perhaps not the one decided last."""

    programmed: int
    total: int
    """The nodes that have programmed it, of so many."""
    problem: str = ""
    """Why it is not accepted, or failed on nodes, as a sentence; empty: neither."""
    digest: bytes = b""
    """Of the spec of that generation, as ``WantedFarm`` has it; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Options:
    """The administrator's settings for the farms of routes."""

    engine: DefaultEngine = "nftables"
    mode: Mode = "dnat"


@dataclass(frozen=True, slots=True)
class GatewayObjects:
    """All that is read. The mappings may change between two decisions; ``Planner.update`` is told what did."""

    classes: Mapping[str, GatewayClass] = field(default_factory=dict)
    gateways: Mapping[ObjectKey, Gateway] = field(default_factory=dict)
    listener_sets: Mapping[ObjectKey, ListenerSet] = field(default_factory=dict)
    routes: Mapping[RouteKey, Route] = field(default_factory=dict)
    grants: Mapping[ObjectKey, ReferenceGrant] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels of each namespace."""
    services: Mapping[tuple[str, str], Service] = field(default_factory=dict)
    """By namespace and name."""
    addresses: Mapping[ObjectKey, AddressState] = field(default_factory=dict)
    """By Gateway. Absent: not decided yet."""
    farms: Mapping[ObjectKey, FarmState] = field(default_factory=dict)
    """The farms of routes that exist. Absent: not there yet."""
    versions: frozenset[str] = frozenset()
    """gateway.networking.k8s.io/bundle-version of the CustomResourceDefinitions that we read; "" for one without."""
    routability: bool = False
    """The CustomResourceDefinition of Gateways has the routability of addresses."""
    options: Options = Options()
