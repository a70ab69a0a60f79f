"""Base classes and small types that the models share."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kube_nftlb import names
from kube_nftlb.api import rules

Family = Literal["ipv4", "ipv6"]
FAMILIES: tuple[Family, ...] = ("ipv4", "ipv6")
ROUTE_KINDS = ("TCPRoute", "UDPRoute")
"""The kinds of routes of Gateway API that become farms."""


def is_route(api_version: str, kind: object) -> bool:
    """Return true for the routes of Gateway API that become farms, of any version; a group alone is no version."""
    return kind in ROUTE_KINDS and api_version.startswith(f"{names.GATEWAY_API}/")


class Model(BaseModel):
    """A part of one of our objects: camelCase in JSON, immutable.

    Unknown fields are ignored: the API server rejects them, unless its CRD is newer than this program.
    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, frozen=True, extra="ignore")


class ForeignModel(BaseModel):
    """A part of an object that Kubernetes defines; fields that we do not read are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, frozen=True, extra="ignore")


class OwnerReference(ForeignModel):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str
    name: str
    uid: str
    controller: bool | None = None

    @property
    def controls_as_service(self) -> bool:
        """Return true if a Service of the core API controls the object, not another kind of that name."""
        return self.controller is True and self.kind == "Service" and self.api_version == "v1"

    @property
    def controls_as_route(self) -> bool:
        """Return true if a route of Gateway API controls the object, of a kind that becomes farms."""
        return self.controller is True and is_route(self.api_version, self.kind)


class Metadata(ForeignModel):
    """The part of an object's metadata that we read."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def created_s(self) -> float:
        """When the object was created, in seconds since 1970; one without a date is younger than all others."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp is not None else float("inf")

    @property
    def service(self) -> OwnerReference | None:
        """Return the Service that controls the object, or None.

        An object that is being deleted has no controller: edits are no longer reverted, and a finalizer may keep it.
        """
        if self.deletion_timestamp is not None:
            return None
        return next((owner for owner in self.owner_references if owner.controls_as_service), None)

    @property
    def route(self) -> OwnerReference | None:
        """Return the route of Gateway API that controls the object, or None; see ``service``."""
        if self.deletion_timestamp is not None:
            return None
        return next((owner for owner in self.owner_references if owner.controls_as_route), None)

    @property
    def has_source(self) -> bool:
        """Return true if the object is made of a Service or of a route: such farms come before hand-written ones."""
        return self.service is not None or self.route is not None

    @property
    def made_of_route(self) -> bool:
        """Return true if the operator made the object of a route, by its label and its controller.

        One that is being deleted is nobody's: a finalizer may keep it when its route and ReferenceGrants are gone.
        """
        return self.labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY_OPERATOR and self.route is not None


class Condition(Model):
    """An entry of status.conditions, like metav1.Condition."""

    type: Annotated[str, Field(description="What the condition is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Whether it is so.")]
    reason: Annotated[str, Field(description="Why, as one CamelCase word; docs/conditions.md has what to do.")]
    message: Annotated[str, Field(description="Why, as a sentence.")] = ""
    observed_generation: Annotated[int, Field(description="The metadata.generation that the condition describes.")] = 0
    last_transition_time: Annotated[str, Field(description="When the status of the condition last changed.")]

    @staticmethod
    def since(before: Iterable["Condition"], kind: str, status: str, now: str) -> str:
        """Return the time of the last transition: that of the condition of this type before, if it has this status."""
        return next((each.last_transition_time for each in before if (each.type, each.status) == (kind, status)), now)


class Nftlb:
    """Marks a field of a farm or backend with nftlb's name for it (nftlb's README, section API).

    ``unset`` is nftlb's default, which stands for a field without a value.
    """

    def __init__(self, key: str, unset: str = "") -> None:
        self.key = key
        self.unset = unset


class Annotation:
    """Marks a field that an annotation can set: of a Service for a farm, of a Pod for a backend.

    ``key`` follows names.ANNOTATION_PREFIX; the default is nftlb's name for the field.
    """

    def __init__(self, key: str = "") -> None:
        self.key = key


def nftlb_field(model: type[BaseModel], field: str) -> Nftlb | None:
    """Return nftlb's name for a field, or None if it has none."""
    return next((entry for entry in model.model_fields[field].metadata if isinstance(entry, Nftlb)), None)


def annotation_key(model: type[BaseModel], field: str) -> str | None:
    """Return the annotation that sets a field, without its prefix, or None if there is none."""
    for entry in model.model_fields[field].metadata:
        if isinstance(entry, Annotation):
            nftlb = nftlb_field(model, field)
            return entry.key or (nftlb.key if nftlb is not None else None)
    return None


IpAddress = Annotated[
    str,
    Field(min_length=2, max_length=45, json_schema_extra=rules.schema(rules.IP)),
    AfterValidator(rules.validator(rules.IP)),
]

IpAddressOrEmpty = Annotated[
    str,
    Field(max_length=45, json_schema_extra=rules.schema(rules.IP_OR_EMPTY)),
    AfterValidator(rules.validator(rules.IP_OR_EMPTY)),
]


def _none_as_empty(value: object) -> object:
    return () if value is None else value


_T = TypeVar("_T")

OptionalList = Annotated[tuple[_T, ...], BeforeValidator(_none_as_empty)]
"""A list that Kubernetes writes as null, or omits, if it is empty."""


def first_error(error: ValidationError, *outer: str) -> str:
    """Return the first error as ``<path>: <message>``; ``outer`` is where the validated part is in its object."""
    path = ".".join(str(part) for part in (*outer, *error.errors(include_url=False, include_input=False)[0]["loc"]))
    return f"{path}: {first_message(error)}" if path else first_message(error)


def first_message(error: ValidationError) -> str:
    """Return the message of the first error, without its path."""
    return str(error.errors(include_url=False, include_input=False)[0]["msg"]).removeprefix("Value error, ")
