"""NftlbPolicy: an allow list or deny list of client addresses that farms refer to."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field

from kube_nftlb.api import rules
from kube_nftlb.api.base import Condition, Model

CIDRS_MAX = 16384


class PolicyKey(NamedTuple):
    """The identity of a policy."""

    namespace: str
    name: str

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        """Return the identity of a policy object."""
        return cls(raw["metadata"]["namespace"], raw["metadata"]["name"])


Cidr = Annotated[
    str,
    Field(max_length=49, json_schema_extra=rules.schema(rules.CIDR)),
    AfterValidator(rules.validator(rules.CIDR)),
]

PolicyName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
"""The name by which farms refer to a policy in their namespace."""


class PolicySpec(Model):
    """The desired state of a policy."""

    type: Annotated[
        Literal["allow", "deny"],
        Field(
            description="allow: only these clients, and those on other allow lists of the farm, may connect. deny: "
            "these clients may not connect, even if on an allow list. Open connections are not affected."
        ),
    ]
    cidrs: Annotated[
        tuple[Cidr, ...],
        Field(
            description="Client address ranges, of both families. They may overlap. They are matched against the "
            "source address with which a connection arrives at the node.",
            max_length=CIDRS_MAX,
            # As a set, the API server would record the owner of each entry, which doubles the size of the object.
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()


class PolicyStatus(Model):
    """The observed state of a policy, written by the operator."""

    observed_generation: Annotated[int, Field(description="The metadata.generation that this status describes.")] = 0
    resource_version: Annotated[
        str,
        Field(
            description="The resourceVersion at which that generation was first seen. Nodes whose policyWatermark has "
            "reached it have processed the policy."
        ),
    ] = ""
    cidrs: Annotated[int, Field(description="Number of address ranges.", ge=0)] = 0
    farms: Annotated[int, Field(description="Number of farms that refer to it.", ge=0)] = 0
    programmed_nodes: Annotated[int, Field(description="Nodes that have programmed this generation.", ge=0)] = 0
    total_nodes: Annotated[int, Field(description="Nodes that run an agent.", ge=0)] = 0
    nodes: Annotated[str, Field(description="programmedNodes/totalNodes, for printing.")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Programmed: every node has programmed this generation. Accepted: it fits the limits of its "
            "namespace.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
