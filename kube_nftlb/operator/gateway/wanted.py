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
class ClusterRequest:
    """The cluster IPs that a Gateway wants: its addresses with the routability Cluster."""

    static: tuple[str, ...] = ()
    """Those with a value, as written."""
    families: tuple[Family | None, ...] = ()
    """The families of the others; None: the one that ServiceCIDRs have, IPv4 rather than IPv6."""
    only_kept: bool = False
    """See ``AddressRequest``."""

    def __bool__(self) -> bool:
        """Return False if it wants none, and keeps none."""
        return bool(self.static or self.families or self.only_kept)


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """The addresses that a Gateway wants: those of pools, and cluster IPs."""

    static: tuple[str, ...] = ()
    """Those with a value, as written."""
    families: tuple[Family | None, ...] = (None,)
    """The families of the others; None: the one that pools have, IPv4 rather than IPv6."""
    pool: str = ""
    """The only pool to take from; empty: any."""
    only_kept: bool = False
    """It keeps what it has, and gets nothing: what it asks for cannot be understood, or does not exist."""
    sentinels: int = 0
    """So many of the last ones without a value have the routability that is there for tests."""
    cluster: ClusterRequest = ClusterRequest()


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
    routability: Mapping[str, str] | None = None
    """That of the addresses that have one, by address; None: no address can have any."""


@dataclass(frozen=True, slots=True)
class ReleasedStatus:
    """What to take back from the status of a Gateway or ListenerSet that is not ours any more."""

    conditions: tuple[WantedCondition, ...]
    addresses: tuple[str, ...] | None
    """Those that it had from us; None: the object is a ListenerSet."""
    generation: int
    """metadata.generation when it was ours last: a condition of a newer one is another controller's."""
    accepted: WantedCondition | None = None
    """Accepted of a Gateway as we wrote it last: a status with another one is another controller's."""


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
    released: dict[ObjectKey, ReleasedStatus] = field(default_factory=dict)
    """Of Gateways that exist, but are not ours any more."""
