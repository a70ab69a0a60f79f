"""A backend of an NftlbFarm."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Annotation, IpAddress, Model, Nftlb
from kube_nftlb.api.values import LogPrefix, State

BACKEND_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"


class Backend(Model):
    """An endpoint that connections are sent to."""

    name: Annotated[
        str,
        Field(
            description="The pod's name, or any other name that is unique in the farm.",
            min_length=1,
            max_length=253,
            pattern=BACKEND_NAME_PATTERN,
        ),
    ]
    ip: Annotated[IpAddress, Nftlb("ip-addr"), Field(description="The endpoint's IP address, of the farm's family.")]
    port: Annotated[
        int | None,
        Nftlb("port"),
        Field(description="The endpoint's port; absent: the one that the client asked for.", ge=1, le=65535),
    ] = None
    weight: Annotated[
        int,
        Nftlb("weight"),
        Annotation(),
        Field(description="Its share of the connections, relative to the other backends' weights.", ge=1, le=100),
    ] = 1
    priority: Annotated[
        int,
        Annotation("priority"),
        Field(
            description="1 is used first. A backend of a priority above the farm's is spare: it gets connections when "
            "a backend before it does not, as the farm's priority says.",
            ge=1,
            le=100,
        ),
    ] = 1
    source_address: Annotated[
        IpAddress | None,
        Annotation("source-addr"),
        Field(description="The address that it sees as its client, in the mode snat; absent: the farm's."),
    ] = None
    mark: Annotated[
        int | None,
        Annotation("mark"),
        Field(
            description="The number that its connections carry in the lowest 12 bits of their mark, unique in the "
            "farm; absent: the agent gives one.",
            ge=2,
            le=4095,
        ),
    ] = None
    established: Annotated[
        int | None,
        Annotation("est-connlimit"),
        Field(description="How many connections it may have at once; absent: any number.", ge=1, le=1000000),
    ] = None
    established_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("est-connlimit-log-prefix"),
        Field(description="What a line begins with that the kernel logs where that limit is passed."),
    ] = None
    state: Annotated[
        State,
        Annotation("state"),
        Field(
            description="up: gets connections. drain: gets no new clients; those that a session holds to it still "
            "come, and open connections go on. off: gets no new connections, and its sessions are forgotten; open TCP "
            "connections go on. down: as off, and its open connections are cut. Where no backend is up, all new "
            "connections are refused."
        ),
    ] = "up"
    ready: Annotated[bool, Field(description="Whether it gets connections (EndpointSlice condition ready).")] = True
    serving: Annotated[bool, Field(description="Whether it answers, be it terminating or not (condition serving).")] = (
        True
    )
    terminating: Annotated[bool, Field(description="Whether its pod is being deleted (condition terminating).")] = False
    node_name: Annotated[
        str | None,
        Field(description="The node that it runs on; absent where it is outside the cluster.", max_length=253),
    ] = None
    for_zones: Annotated[
        tuple[Annotated[str, Field(max_length=63)], ...],
        Field(
            description="The zones whose nodes should prefer it (EndpointSlice hints.forZones).",
            max_length=8,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    for_nodes: Annotated[
        tuple[Annotated[str, Field(max_length=253)], ...],
        Field(
            description="The nodes that should prefer it (EndpointSlice hints.forNodes).",
            max_length=8,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
