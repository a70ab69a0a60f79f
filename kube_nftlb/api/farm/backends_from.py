"""Backends by reference: groups of them, each the endpoints of a Service."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from kube_nftlb.api import rules
from kube_nftlb.api.backend import BACKEND_NAME_PATTERN, BackendOptions
from kube_nftlb.api.base import Model

OVERRIDES_MAX = 1024
GATED_IPS_MAX = 256
REFERENCES_MAX = 16
WEIGHT_MAX = 1_000_000
_PORT_NAME_MAX = 63

_Port = Annotated[
    Annotated[int, Field(ge=1, le=65535)] | Annotated[str, Field(max_length=_PORT_NAME_MAX)],
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "maxLength": _PORT_NAME_MAX, **rules.schema(rules.PORT_REFERENCE)}
    ),
]


class _OfPod(Model):
    pod: Annotated[
        str, Field(description="Name of the pod.", min_length=1, max_length=253, pattern=BACKEND_NAME_PATTERN)
    ]


class Override(BackendOptions, _OfPod):
    """Options of the endpoints of one pod."""


class BackendsFrom(Model):
    """A group of backends: the endpoints of a Service, with their share of new connections."""

    model_config = ConfigDict(json_schema_extra=rules.schema(rules.GROUP))

    namespace: Annotated[
        str,
        Field(
            description="Namespace of the Service. Empty: the farm's own. Another one is for farms that the operator "
            "makes of routes of Gateway API, as a ReferenceGrant allows; other farms with one are invalid.",
            max_length=63,
            pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$",
        ),
    ] = ""
    service: Annotated[
        str,
        Field(
            description="Name of a Service. A headless Service, or one that another proxy "
            "serves (service.kubernetes.io/service-proxy-name), gives no endpoints. Required unless refuse is true.",
            max_length=63,
            pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$",
        ),
    ] = ""
    port: Annotated[
        _Port,
        Field(
            description="Name of a port of the Service, or the port number of its endpoints (the targetPort). Empty: "
            "the port without a name."
        ),
    ] = ""
    weight: Annotated[
        int,
        Field(
            description="Share of new connections, relative to the weights of the other entries; 0: none. Without an "
            "endpoint that may be used, its share is refused (TCP, SCTP) or dropped (UDP).",
            ge=0,
            le=WEIGHT_MAX,
        ),
    ] = 1
    refuse: Annotated[
        bool,
        Field(description="If true, its share of new connections is refused as without endpoints; no service then."),
    ] = False
    keep_port: Annotated[
        bool, Field(description="If true, connections keep their destination port. Required with protocol All.")
    ] = False
    overrides: Annotated[
        tuple[Override, ...],
        Field(
            description="Options for individual pods; all others have the defaults.",
            max_length=OVERRIDES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pod"]},
        ),
    ] = ()
    gated_ips: Annotated[
        tuple[Annotated[str, Field(max_length=45)], ...],
        Field(
            alias="gatedIPs",
            description="IPs of pods that get connections although they are not ready yet, because they lack nothing "
            "but the readiness gate kube-nftlb.io/programmed. The operator writes them.",
            max_length=GATED_IPS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules.check([rules.GROUP], (self.service, self.refuse))
        return self

    @property
    def full_name(self) -> str:
        """The Service as people write it: with its namespace, if it has one."""
        return f"{self.namespace}/{self.service}" if self.namespace else self.service
