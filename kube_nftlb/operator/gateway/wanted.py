"""What is decided: farms, address requests, and statuses without what others write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from kube_nftlb.api.base import Family
from kube_nftlb.operator.farms.spec import Spec
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey
from kube_nftlb.reasons import GatewayReason


@dataclass(frozen=True, slots=True)
class WantedCondition:
    """A condition that we write, but for the time of its last transition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: GatewayReason
    message: str
    generation: int
    """metadata.generation of the object that it describes."""


@dataclass(frozen=True, slots=True)
class WantedFarm:
    """A farm that a route needs for one listener and family."""

    metadata: Mapping[str, Any]
    """Name, namespace, labels and the owner reference, as the API server takes them."""
    spec: Spec
    digest: bytes
    """Of the spec, as ``operator.farms.spec.digest`` has it."""
    gateway: ObjectKey
    route_created: datetime | None = None
    """Of the farms of a namespace, those of older routes come first."""


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """The addresses that a Gateway wants."""

    static: tuple[str, ...] = ()
    """Those of spec.addresses with a value, as written: it wants all of them and no others."""
    families: tuple[Family, ...] = ()
    """Without static ones: a family each; empty: one address of the family that pools have, IPv4 rather than IPv6."""
    pool: str = ""
    """The only pool to take from; empty: any."""


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """An entry of status.listeners of a Gateway or ListenerSet."""

    name: str
    kinds: tuple[str, ...]
    """The kinds of supportedKinds, all of Gateway API's group."""
    attached: int
    conditions: tuple[WantedCondition, ...]


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The status of a Gateway or ListenerSet."""

    conditions: tuple[WantedCondition, ...]
    listeners: tuple[ListenerStatus, ...]
    addresses: tuple[str, ...] = ()
    listener_sets: int | None = None
    """attachedListenerSets; None: the object is a ListenerSet."""


@dataclass(frozen=True, slots=True)
class ParentStatus:
    """An entry of status.parents of a route that is ours."""

    reference: Mapping[str, Any]
    """The parentRef, as the API server has it."""
    conditions: tuple[WantedCondition, ...]


@dataclass(frozen=True, slots=True)
class ClassStatus:
    """The status of a GatewayClass of ours."""

    conditions: tuple[WantedCondition, ...]
    features: tuple[str, ...]
    """Names of supportedFeatures, sorted."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """What is decided about all objects, or, if an update returned it, about those that it affected.

    None says that there is nothing any more: the farm is to be deleted, nothing is requested, or the object is gone or
    not ours. A route without parents of ours has none.
    """

    farms: dict[ObjectKey, WantedFarm | None] = field(default_factory=dict)
    requests: dict[ObjectKey, AddressRequest | None] = field(default_factory=dict)
    classes: dict[str, ClassStatus | None] = field(default_factory=dict)
    gateways: dict[ObjectKey, GatewayStatus | None] = field(default_factory=dict)
    listener_sets: dict[ObjectKey, GatewayStatus | None] = field(default_factory=dict)
    routes: dict[RouteKey, tuple[ParentStatus, ...]] = field(default_factory=dict)
