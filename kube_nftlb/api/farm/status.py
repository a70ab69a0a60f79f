"""The status of a farm."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Condition, Model


class FarmStatus(Model):
    """The observed state of a farm, written by the operator."""

    observed_generation: Annotated[int, Field(description="The metadata.generation that this status describes.")] = 0
    resource_version: Annotated[
        str,
        Field(
            description="The resourceVersion at which that generation was first seen. Nodes whose watermark has "
            "reached it have processed the farm.",
            max_length=20,
        ),
    ] = ""
    ready_backends: Annotated[int, Field(description="Number of ready backends.", ge=0)] = 0
    total_backends: Annotated[int, Field(description="Number of backends.", ge=0)] = 0
    backends: Annotated[str, Field(description="readyBackends/totalBackends, for printing.")] = ""
    programmed_nodes: Annotated[int, Field(description="Nodes that have programmed this generation.", ge=0)] = 0
    total_nodes: Annotated[int, Field(description="Nodes that run an agent.", ge=0)] = 0
    nodes: Annotated[str, Field(description="programmedNodes/totalNodes, for printing.")] = ""
    reason: Annotated[str, Field(description="The most important problem, as reason and message. Empty: none.")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Accepted: the spec is valid, and no other farm owns one of its listeners. Programmed: every "
            "node has programmed this generation.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
