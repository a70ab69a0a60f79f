"""NftlbNode: the status of one node, written by its agent only."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Condition, ForeignModel, Metadata, Model
from kube_nftlb.reasons import FailureReason

FAILED_FARMS_MAX = 100
FAILED_NAMESPACES_MAX = 1000
DRAINING_SHOWN_MAX = 100
ANNOUNCED_SHOWN_MAX = 1000
BLOCKED_SHOWN_MAX = 20
BLOCKED_ADDRESSES_MAX = 10
SESSIONS_SHOWN_MAX = 32


class FarmProblem(Model):
    """The reason that a farm is not programmed on this node, or that a part of it has no effect."""

    namespace: Annotated[str, Field(description="Namespace of the farm.")]
    name: Annotated[str, Field(description="Name of the farm.")]
    generation: Annotated[int, Field(description="The metadata.generation that the problem is of.")] = 0
    reason: Annotated[FailureReason, Field(description="Reason, as a CamelCase word.")]
    message: Annotated[str, Field(description="Explanation, and what to do about it.", max_length=512)] = ""


class NodeVersions(Model):
    """Versions of the software on the node."""

    agent: Annotated[str, Field(description="Version of kube-nftlb's agent.")] = ""
    kernel: Annotated[str, Field(description="Version of the Linux kernel.")] = ""
    nftlb: Annotated[
        str,
        Field(description="Version of nftlb, as it says itself; +kube-nftlb.N at its end: with kube-nftlb's patches."),
    ] = ""


class NodeEngines(Model):
    """Number of farms that each engine serves on the node."""

    nftlb: Annotated[int, Field(description="Number of farms that nftlb serves.", ge=0)] = 0
    nftables: Annotated[int, Field(description="Number of farms that the engine nftables serves.", ge=0)] = 0


class DrainingBackend(Model):
    """A backend that drains and still has connections through this node."""

    ip: Annotated[str, Field(description="IP address.", max_length=45)]
    port: Annotated[int | None, Field(description="Port. Absent: all ports.", ge=1, le=65535)] = None
    connections: Annotated[int, Field(description="Number of open connections.", ge=1)]


class NodeDraining(Model):
    """The open connections to backends that drain, which this node translates."""

    watermark: Annotated[
        str,
        Field(description="The watermark when they were counted. Absent: nothing drains.", max_length=20),
    ] = ""
    backends: Annotated[int, Field(description="Number of backends that drain.", ge=0)] = 0
    connections: Annotated[int, Field(description="Number of open connections to all of them.", ge=0)] = 0
    busiest: Annotated[
        tuple[DrainingBackend, ...],
        Field(description="Those with connections, the busiest first.", max_length=DRAINING_SHOWN_MAX),
    ] = ()


_Ip = Annotated[str, Field(max_length=45)]


class BlockedAddresses(Model):
    """Addresses that a node does not announce for one reason."""

    reason: Annotated[str, Field(description="Reason, as a CamelCase word; docs/conditions.md explains each.")]
    message: Annotated[str, Field(description="Explanation.", max_length=512)] = ""
    number: Annotated[int, Field(description="Number of these addresses.", ge=1)]
    addresses: Annotated[
        tuple[_Ip, ...], Field(description="The first of them.", max_length=BLOCKED_ADDRESSES_MAX)
    ] = ()


class NodeAddresses(Model):
    """The addresses of pools, on this node."""

    number: Annotated[int, Field(description="Number of addresses that the node announces.", ge=0)] = 0
    announced: Annotated[
        tuple[_Ip, ...],
        Field(description="The first of them.", max_length=ANNOUNCED_SHOWN_MAX),
    ] = ()
    blocked: Annotated[
        tuple[BlockedAddresses, ...],
        Field(
            description="Addresses that the node would not announce even if no other node did, and why.",
            max_length=BLOCKED_SHOWN_MAX,
        ),
    ] = ()


class BGPSession(Model):
    """A BGP session of a node with a router."""

    peer: Annotated[str, Field(description="Name of the NftlbBGPPeer.", max_length=253)]
    state: Annotated[str, Field(description="Established, or as BIRD calls what it is on its way to.", max_length=32)]
    prefixes: Annotated[int, Field(description="Number of routes that the router was told of.", ge=0)] = 0
    last_error: Annotated[
        str, Field(description="Why the session last ended, or cannot begin; empty if it never did.", max_length=256)
    ] = ""


class NodeBGP(Model):
    """What a node announces by BGP."""

    prefixes: Annotated[int, Field(description="Number of routes that the agent has written.", ge=0)] = 0
    established: Annotated[int, Field(description="Number of sessions that are established.", ge=0)] = 0
    number: Annotated[int, Field(description="Number of all sessions.", ge=0)] = 0
    sessions: Annotated[
        tuple[BGPSession, ...],
        Field(
            description="The first of them, those that are not established before the others. None without our BIRD.",
            max_length=SESSIONS_SHOWN_MAX,
        ),
    ] = ()
    last_error: Annotated[
        str, Field(description="Why routes cannot be written, or BIRD does not answer.", max_length=512)
    ] = ""


class NodeStatus(Model):
    """The observed state of a node."""

    reported_at: Annotated[
        str,
        Field(
            description="When the agent last reported, as RFC 3339. It does so once a minute at least.", max_length=32
        ),
    ] = ""
    watermark: Annotated[
        str,
        Field(
            description="The resourceVersion up to which the node has programmed all changes of NftlbFarms, except "
            "failed ones.",
            max_length=20,
        ),
    ] = ""
    slice_watermark: Annotated[
        str,
        Field(
            description="The resourceVersion up to which the node has programmed all EndpointSlices that its farms "
            "refer to.",
            max_length=20,
        ),
    ] = ""
    policy_watermark: Annotated[
        str,
        Field(description="The resourceVersion up to which the node has programmed all NftlbPolicies."),
    ] = ""
    farms: Annotated[int, Field(description="Number of programmed farms.", ge=0)] = 0
    backends: Annotated[int, Field(description="Number of programmed backends of all farms.", ge=0)] = 0
    engines: Annotated[NodeEngines, Field(description="Number of programmed farms by engine.")] = NodeEngines()
    failed: Annotated[
        int, Field(description="Number of failed farms, the first of which are in failedFarms.", ge=0)
    ] = 0
    failed_farms: Annotated[
        tuple[FarmProblem, ...],
        Field(
            description="Farms that are not programmed as requested, and why: the first of each namespace in turn.",
            max_length=FAILED_FARMS_MAX,
        ),
    ] = ()
    failed_namespaces: Annotated[
        tuple[Annotated[str, Field(max_length=63)], ...],
        Field(
            description="Namespaces in which more farms failed than failedFarms has room for. None of their farms "
            "counts as programmed on this node.",
            max_length=FAILED_NAMESPACES_MAX,
        ),
    ] = ()
    warnings: Annotated[
        tuple[FarmProblem, ...],
        Field(
            description="Farms that are programmed, but part of which has no effect, and why.",
            max_length=FAILED_FARMS_MAX,
        ),
    ] = ()
    draining: Annotated[
        NodeDraining, Field(description="Connections to backends that drain, counted every few seconds.")
    ] = NodeDraining()
    addresses: Annotated[
        NodeAddresses, Field(description="Addresses of NftlbAddressPools that the node announces, or does not.")
    ] = NodeAddresses()
    bgp: Annotated[
        NodeBGP, Field(description="Routes and sessions, where the chart's addresses.bgp.enabled is set.")
    ] = NodeBGP()
    drift_repaired: Annotated[
        int,
        Field(description="How often drift in the kernel was repaired since the agent started.", ge=0),
    ] = 0
    last_error: Annotated[
        str,
        Field(
            description="The error that the agent meets at the moment; empty if all it does succeeds.", max_length=1024
        ),
    ] = ""
    versions: Annotated[NodeVersions, Field(description="What runs on the node.")] = NodeVersions()
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Ready: the agent works; Unknown: it has not reported for minutes. NftlbReachable: nftlb "
            "responds. InSync: no change is pending. KubeProxyGone: no kube-proxy runs on the node, and none has "
            "left rules.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class Node(ForeignModel):
    """An NftlbNode object."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()
