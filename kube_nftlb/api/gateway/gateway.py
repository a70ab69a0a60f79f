"""GatewayClasses, Gateways and ListenerSets."""

from typing import Annotated, Any

from pydantic import Field

from kube_nftlb import names
from kube_nftlb.api.base import ForeignModel, Metadata, OptionalList
from kube_nftlb.api.gateway.selectors import AdmittedNamespaces

LISTENERS_MAX = 64
"""The number of listeners that a Gateway or ListenerSet can have, by their CustomResourceDefinitions."""


class GatewayClassSpec(ForeignModel):
    """spec."""

    controller_name: str
    parameters_ref: dict[str, Any] | None = None


class GatewayClass(ForeignModel):
    """A GatewayClass object."""

    metadata: Metadata
    spec: GatewayClassSpec


class RouteKind(ForeignModel):
    """spec.listeners[].allowedRoutes.kinds[]."""

    group: str | None = names.GATEWAY_API
    kind: str


class AllowedRoutes(ForeignModel):
    """spec.listeners[].allowedRoutes."""

    namespaces: AdmittedNamespaces | None = None
    kinds: OptionalList[RouteKind] = ()


class GatewayListener(ForeignModel):
    """spec.listeners[]."""

    name: str
    port: Annotated[int, Field(ge=1, le=65535)]
    protocol: str
    allowed_routes: AllowedRoutes | None = None


Listeners = Annotated[tuple[GatewayListener, ...], Field(max_length=LISTENERS_MAX)]


class GatewayAddress(ForeignModel):
    """spec.addresses[]."""

    type: str | None = "IPAddress"
    value: str = ""
    routability: str = ""
    """Experimental in Gateway API 1.7: other definitions leave it out."""


class Infrastructure(ForeignModel):
    """spec.infrastructure."""

    parameters_ref: dict[str, Any] | None = None


class AllowedListeners(ForeignModel):
    """spec.allowedListeners."""

    namespaces: AdmittedNamespaces | None = None


class GatewaySpec(ForeignModel):
    """spec."""

    gateway_class_name: str
    listeners: Listeners = ()
    addresses: OptionalList[GatewayAddress] = ()
    infrastructure: Infrastructure | None = None
    allowed_listeners: AllowedListeners | None = None


class Gateway(ForeignModel):
    """A Gateway object."""

    metadata: Metadata
    spec: GatewaySpec


class ParentGateway(ForeignModel):
    """spec.parentRef of a ListenerSet."""

    group: str | None = names.GATEWAY_API
    kind: str | None = "Gateway"
    namespace: str | None = None
    name: str


class ListenerSetSpec(ForeignModel):
    """spec."""

    parent_ref: ParentGateway
    listeners: Listeners = ()


class ListenerSet(ForeignModel):
    """A ListenerSet object."""

    metadata: Metadata
    spec: ListenerSetSpec
