"""NftlbPolicy: an allow list or deny list of client addresses that farms refer to."""

import ipaddress
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from kube_nftlb.api.base import Cel, Condition, Family, ForeignModel, Metadata, Model

CIDRS_MAX = 16384


class PolicyKey(NamedTuple):
    """The identity of a policy."""

    namespace: str
    name: str


class AddressRange(NamedTuple):
    """All addresses from the first to the last, as numbers."""

    family: Family
    first: int
    last: int


def address_range(cidr: str) -> AddressRange:
    """What a CIDR stands for; bits beyond its prefix are ignored, as in loadBalancerSourceRanges.

    Raises ValueError with a sentence for what is none.
    """
    text, slash, prefix = cidr.partition("/")
    address = ipaddress.ip_address(text)
    if not slash or not (prefix.isascii() and prefix.isdecimal()) or int(prefix) > address.max_prefixlen:
        raise ValueError(f"{cidr!r} must end with the length of its prefix, from /0 to /{address.max_prefixlen}")
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise ValueError(f"{cidr!r} must have neither a zone nor an IPv4 address within the IPv6 address")
    host = (1 << (address.max_prefixlen - int(prefix))) - 1
    return AddressRange("ipv6" if address.version == 6 else "ipv4", int(address) & ~host, int(address) | host)


def _check_cidr(value: str) -> str:
    address_range(value)
    return value


Cidr = Annotated[
    str,
    Field(
        max_length=49,
        json_schema_extra={
            "x-kubernetes-validations": [
                Cel("isCIDR(self)", "must be an address range such as 10.0.0.0/8 or fd00::/64").schema()
            ]
        },
    ),
    AfterValidator(_check_cidr),
]

PolicyName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
"""How farms refer to a policy of their namespace."""


class PolicySpec(Model):
    """What a policy says of clients."""

    type: Annotated[
        Literal["allow", "deny"],
        Field(
            description="allow: nobody gets in but these, and those of the farm's other allow lists. deny: these do "
            "not get in, whatever any allow list says. New connections are meant; open ones go on."
        ),
    ]
    cidrs: Annotated[
        tuple[Cidr, ...],
        Field(
            description="Address ranges, of either family; they may overlap. What is compared is the source address "
            "with which a connection reaches the node.",
            max_length=CIDRS_MAX,
            # As a set, the API server would note the owner of each entry, which makes the object twice as large.
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()


class PolicyStatus(Model):
    """What has become of a policy, written by the operator."""

    observed_generation: Annotated[int, Field(description="The metadata.generation that this status is about.")] = 0
    resource_version: Annotated[
        str,
        Field(description="The resourceVersion at which that generation was first seen; nodes past it have it."),
    ] = ""
    cidrs: Annotated[int, Field(description="How many address ranges there are.", ge=0)] = 0
    farms: Annotated[int, Field(description="How many farms refer to it.", ge=0)] = 0
    programmed_nodes: Annotated[int, Field(description="Nodes whose kernel has this generation.", ge=0)] = 0
    total_nodes: Annotated[int, Field(description="Nodes that run an agent.", ge=0)] = 0
    nodes: Annotated[str, Field(description="programmedNodes/totalNodes, for people.")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Programmed: every node has it.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class Policy(ForeignModel):
    """An NftlbPolicy object."""

    metadata: Metadata
    spec: PolicySpec
    status: PolicyStatus = PolicyStatus()
