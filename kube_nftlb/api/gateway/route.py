"""TCPRoutes and UDPRoutes, which have the same fields, and ReferenceGrants."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from kube_nftlb import names
from kube_nftlb.api.base import ForeignModel, Metadata, OptionalList

RouteKindName = Literal["TCPRoute", "UDPRoute"]

PROTOCOLS: Final[Mapping[RouteKindName, str]] = {"TCPRoute": "TCP", "UDPRoute": "UDP"}
"""The protocol of each kind of routes, and of the listeners that admit it."""

PARENTS_MAX = 32
BACKENDS_MAX = 16
"""The numbers of parents and backends that a route can have, by its CustomResourceDefinition."""


class ParentReference(ForeignModel):
    """spec.parentRefs[]."""

    group: str = names.GATEWAY_API
    kind: str = "Gateway"
    namespace: str | None = None
    name: str
    section_name: str | None = None
    port: int | None = None


class BackendReference(ForeignModel):
    """spec.rules[].backendRefs[]."""

    group: str = ""
    kind: str = "Service"
    namespace: str | None = None
    name: str
    port: int | None = None
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = 1


class RouteRule(ForeignModel):
    """spec.rules[]."""

    backend_refs: Annotated[OptionalList[BackendReference], Field(max_length=BACKENDS_MAX)] = ()


class RouteSpec(ForeignModel):
    """spec."""

    parent_refs: Annotated[OptionalList[ParentReference], Field(max_length=PARENTS_MAX)] = ()
    rules: Annotated[OptionalList[RouteRule], Field(max_length=1)] = ()


class Route(ForeignModel):
    """A TCPRoute or UDPRoute object."""

    metadata: Metadata
    spec: RouteSpec


class GrantFrom(ForeignModel):
    """spec.from[] of a ReferenceGrant."""

    group: str
    kind: str
    namespace: str


class GrantTo(ForeignModel):
    """spec.to[] of a ReferenceGrant."""

    group: str = ""
    kind: str
    name: str | None = None


class ReferenceGrantSpec(ForeignModel):
    """spec."""

    sources: Annotated[tuple[GrantFrom, ...], Field(alias="from")] = ()
    targets: Annotated[tuple[GrantTo, ...], Field(alias="to")] = ()


class ReferenceGrant(ForeignModel):
    """A ReferenceGrant object."""

    metadata: Metadata
    spec: ReferenceGrantSpec
