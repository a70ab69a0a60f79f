"""NftlbNode: what one node's agent reports, and nobody else writes."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Condition, ForeignModel, Metadata, Model

FAILED_FARMS_MAX = 100


class FailedFarm(Model):
    """A farm that this node does not have, or does not have as wanted."""

    namespace: str
    name: str
    generation: Annotated[int, Field(description="The metadata.generation that failed.")] = 0
    reason: Annotated[str, Field(description="One word in CamelCase.", max_length=64)]
    message: Annotated[str, Field(description="What a person can do about it.", max_length=512)] = ""


class NodeVersions(Model):
    """What runs on the node."""

    agent: str = ""
    kernel: str = ""


class NodeStatus(Model):
    """What a node's agent has done."""

    watermark: Annotated[
        str,
        Field(
            description="The resourceVersion up to which all NftlbFarms are in the node's kernel, or failed.",
            max_length=20,
        ),
    ] = ""
    policy_watermark: Annotated[
        str,
        Field(description="The resourceVersion up to which all NftlbPolicies are in the node's kernel."),
    ] = ""
    farms: Annotated[int, Field(description="Farms that nftlb has.", ge=0)] = 0
    backends: Annotated[int, Field(description="Backends that nftlb has, over all farms.", ge=0)] = 0
    failed: Annotated[int, Field(description="Farms that failed; failedFarms lists the first of them.", ge=0)] = 0
    failed_farms: Annotated[
        tuple[FailedFarm, ...], Field(description="The farms that failed, and why.", max_length=FAILED_FARMS_MAX)
    ] = ()
    drift_repaired: Annotated[
        int,
        Field(description="How often the kernel differed, and was repaired, since the agent began.", ge=0),
    ] = 0
    last_error: Annotated[str, Field(description="The last thing that went wrong, with its time.", max_length=1024)] = (
        ""
    )
    versions: NodeVersions = NodeVersions()
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Ready: the agent does its work. NftlbReachable: nftlb answers. InSync: nothing is pending.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class Node(ForeignModel):
    """An NftlbNode object."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()
