"""The status of a farm."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Condition, Model

BACKENDS_SHOWN_MAX = 100
ADDRESSES_SHOWN_MAX = 32


class BackendStatus(Model):
    """A backend that a farm has by reference."""

    name: Annotated[str, Field(description="Name of the pod, or the address; with a suffix if it is not unique.")]
    address: Annotated[str, Field(description="IP address.")]
    port: Annotated[int | None, Field(description="Port. Absent: connections keep their destination port.")] = None
    pod: Annotated[str | None, Field(description="Name of the pod. Absent: no pod.")] = None
    node: Annotated[str | None, Field(description="Name of the node it runs on.")] = None
    ready: Annotated[bool, Field(description="It gets connections, if its state is up.")]
    serving: Annotated[bool, Field(description="It can answer, also while it terminates.")]
    terminating: Annotated[bool, Field(description="It is being deleted.")]
    weight: Annotated[int, Field(description="Share of new connections, from the overrides.")]
    service: Annotated[
        str | None, Field(description="The Service of its group. Absent if spec.backendsFrom has one entry.")
    ] = None


class AddressStatus(Model):
    """A load balancer address that a node announces."""

    ip: Annotated[str, Field(description="IP address.", max_length=45)]
    announced_by: Annotated[str, Field(description="Name of a node that announces it.", max_length=253)]


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
    ready_backends: Annotated[int, Field(description="Number of backends that are ready and up.", ge=0)] = 0
    total_backends: Annotated[int, Field(description="Number of backends.", ge=0)] = 0
    backends_ready: Annotated[str, Field(description="readyBackends/totalBackends, for printing.")] = ""
    backends: Annotated[
        tuple[BackendStatus, ...],
        Field(
            description=f"With spec.backendsFrom: the first {BACKENDS_SHOWN_MAX} backends, by group and name. Absent "
            "while endpoints change all the time: the numbers follow them, and EndpointSlices list them.",
            max_length=BACKENDS_SHOWN_MAX,
        ),
    ] = ()
    omitted_backends: Annotated[int, Field(description="Number of further backends.", ge=0)] = 0
    addresses: Annotated[
        tuple[AddressStatus, ...],
        Field(
            description="The load balancer addresses that a node announces.",
            max_length=ADDRESSES_SHOWN_MAX,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    programmed_nodes: Annotated[int, Field(description="Nodes that have programmed this generation.", ge=0)] = 0
    total_nodes: Annotated[int, Field(description="Nodes that run an agent.", ge=0)] = 0
    nodes: Annotated[str, Field(description="Nodes with this generation and these backends/totalNodes.")] = ""
    reason: Annotated[str, Field(description="The most important problem, as reason and message. Empty: none.")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Accepted: the spec is valid, and other farms do not own all of its listeners; the message "
            "names those that they own, and external IPs that are refused. Programmed: every "
            "node has programmed this generation. EndpointsProgrammed: every node has programmed the backends that "
            "this status counts. Conditions and numbers are always of the same state.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
