"""NftlbBGPPeer: a router with which nodes speak BGP."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from kube_nftlb.api import rules
from kube_nftlb.api.address_pool import Community
from kube_nftlb.api.base import ForeignModel, Metadata, Model
from kube_nftlb.api.selector import Selector

HOLD_TIME_S: Final = 90

RouterAddress = Annotated[
    str,
    Field(max_length=45, json_schema_extra=rules.schema(rules.IP)),
    AfterValidator(rules.validator(rules.IP)),
]
"""The address of a router."""

AsNumber = Annotated[int, Field(ge=1, le=2**32 - 1)]


class BFD(Model):
    """How the loss of the path to a router is found in less than a second (RFC 5880)."""

    interval_ms: Annotated[
        int, Field(description="Interval of control packets in milliseconds, both ways.", ge=50, le=60000)
    ] = 300
    multiplier: Annotated[int, Field(description="So many lost ones end the session.", ge=2, le=50)] = 3


class BGPPeerSpec(Model):
    """A router, and how to speak BGP with it."""

    address: Annotated[
        RouterAddress,
        Field(
            description="Address of the router, in a subnet of the nodes. Routes to addresses of its family are "
            "announced: a router of both families needs two peers."
        ),
    ]
    asn: Annotated[AsNumber, Field(description="AS number of the router.")]
    my_asn: Annotated[AsNumber, Field(description="AS number of the nodes. The same as asn: internal BGP.")]
    port: Annotated[int, Field(description="TCP port of the router.", ge=1, le=65535)] = 179
    hold_time: Annotated[
        int,
        Field(description="Time in seconds without a message after which the session ends.", ge=3, le=65535),
    ] = HOLD_TIME_S
    bfd: Annotated[
        BFD | None, Field(description="Absent: no BFD, so that a node that is dead is noticed after holdTime.")
    ] = None
    password_key: Annotated[
        str,
        Field(
            description="Key with the password of the session (TCP MD5, RFC 2385) in the Secret of the chart's "
            "addresses.bgp.bird.passwordSecret. Empty: none.",
            max_length=63,
            pattern=r"^[A-Za-z0-9._-]*$",
        ),
    ] = ""
    node_selector: Annotated[Selector, Field(description="Nodes that speak with it. Absent: all.")] = Selector()
    communities: Annotated[
        tuple[Community, ...],
        Field(
            description="BGP communities of all routes to this router, beside those of their pools.",
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()


class BGPPeer(ForeignModel):
    """An NftlbBGPPeer object."""

    metadata: Metadata
    spec: BGPPeerSpec
