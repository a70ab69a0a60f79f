"""Backends by reference: the endpoints of a Service."""

from typing import Annotated

from pydantic import Field, WithJsonSchema

from kube_nftlb.api import rules
from kube_nftlb.api.backend import BACKEND_NAME_PATTERN, BackendOptions
from kube_nftlb.api.base import Model

OVERRIDES_MAX = 1024
GATED_IPS_MAX = 256
_PORT_NAME_MAX = 63

_Port = Annotated[
    Annotated[int, Field(ge=1, le=65535)] | Annotated[str, Field(min_length=1, max_length=_PORT_NAME_MAX)],
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
    """A Service in the farm's namespace whose endpoints are the backends."""

    service: Annotated[
        str,
        Field(
            description="Name of a Service in the farm's namespace. A headless Service, or one that another proxy "
            "serves (service.kubernetes.io/service-proxy-name), gives no endpoints.",
            min_length=1,
            max_length=63,
            pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        ),
    ]
    port: Annotated[
        _Port | None,
        Field(
            description="Name of a port of the Service, or the port number of its endpoints (the targetPort). Absent: "
            "the port without a name."
        ),
    ] = None
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
