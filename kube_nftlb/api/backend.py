"""A backend of an NftlbFarm, and the options that it can have."""

from typing import Annotated

from pydantic import Field, PrivateAttr

from kube_nftlb.api.base import Annotation, IpAddress, Model, Nftlb
from kube_nftlb.api.values import LogPrefix, State

BACKEND_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"


class _Destination(Model):
    name: Annotated[
        str,
        Field(
            description="Name of the pod, or any other name that is unique within the farm.",
            min_length=1,
            max_length=253,
            pattern=BACKEND_NAME_PATTERN,
        ),
    ]
    ip: Annotated[IpAddress, Nftlb("ip-addr"), Field(description="IP address, of the farm's family.")]
    port: Annotated[
        int | None,
        Nftlb("port"),
        Field(description="Port. Absent: connections keep their destination port.", ge=1, le=65535),
    ] = None


class BackendOptions(Model):
    """The options of a backend, set by hand or by a Pod's annotations."""

    weight: Annotated[
        int,
        Nftlb("weight"),
        Annotation(),
        Field(description="Share of new connections, relative to the weights of the other backends.", ge=1, le=100),
    ] = 1
    priority: Annotated[
        int,
        Annotation("priority"),
        Field(
            description="1 comes first. A backend with a greater number than the farm's priority is on standby until "
            "others become unavailable.",
            ge=1,
            le=100,
        ),
    ] = 1
    source_address: Annotated[
        IpAddress | None,
        Annotation("source-addr"),
        Field(description="Source address of connections to this backend, with mode snat. Default: the farm's."),
    ] = None
    mark: Annotated[
        int | None,
        Annotation("mark"),
        Field(
            description="The last 12 bits of the mark of its connections, different for each backend of the farm. "
            "Absent: the agent chooses them.",
            ge=2,
            le=4095,
        ),
    ] = None
    established: Annotated[
        int | None,
        Annotation("est-connlimit"),
        Field(description="Maximum number of concurrent connections. Absent: unlimited.", ge=1, le=1000000),
    ] = None
    established_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("est-connlimit-log-prefix"),
        Field(description="Log connections above that limit, with this prefix."),
    ] = None
    state: Annotated[
        State,
        Annotation("state"),
        Field(
            description="up: it gets connections. drain: it gets new connections only of clients with a session; open "
            "ones go on. off: it gets no new connections, and its sessions are forgotten; open TCP connections go on. "
            "down: open connections are cut, too. If no backend is up, the farm refuses new connections."
        ),
    ] = "up"


class Backend(BackendOptions, _Destination):
    """A destination of connections: an endpoint, or a server written by hand."""

    _group: int = PrivateAttr(0)

    ready: Annotated[bool, Field(description="It gets connections: condition ready of an EndpointSlice.")] = True
    serving: Annotated[
        bool, Field(description="It can answer, also while it terminates: condition serving of an EndpointSlice.")
    ] = True
    terminating: Annotated[
        bool, Field(description="It is being deleted: condition terminating of an EndpointSlice.")
    ] = False
    node_name: Annotated[
        str | None,
        Field(description="Name of the node it runs on. Absent: outside the cluster.", max_length=253),
    ] = None
    for_zones: Annotated[
        tuple[Annotated[str, Field(max_length=63)], ...],
        Field(
            description="Zones whose nodes should prefer it (EndpointSlice hints.forZones).",
            max_length=8,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    for_nodes: Annotated[
        tuple[Annotated[str, Field(max_length=253)], ...],
        Field(
            description="Nodes that should prefer it (EndpointSlice hints.forNodes).",
            max_length=8,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()

    @property
    def group(self) -> int:
        """The position of the farm's reference that it comes from; 0 if it is written by hand."""
        return self._group
