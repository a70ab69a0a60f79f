"""The fields of a farm's spec. The rules about several of them are in ``farm.rules``."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import Annotation, Family, IpAddress, Model, Nftlb
from kube_nftlb.api.farm.address import POLICIES_MAX, Address
from kube_nftlb.api.farm.backends_from import REFERENCES_MAX, BackendsFrom
from kube_nftlb.api.farm.engines import Engine
from kube_nftlb.api.farm.session import SESSIONS_MAX, Session
from kube_nftlb.api.limits import Limits
from kube_nftlb.api.policy import PolicyName
from kube_nftlb.api.values import (
    FarmMark,
    FieldSet,
    Helper,
    Log,
    LogPrefix,
    Masquerade,
    Mode,
    OnGone,
    Persistence,
    Protocol,
    Scheduler,
    State,
    TrafficPolicy,
)

BACKENDS_MAX = 4094
"""nftlb has 12 bits for the marks of a farm's backends, of which 0 and 1 are reserved."""

ENDPOINTS_MAX: Final[Mapping[Engine, int]] = {"nftlb": BACKENDS_MAX, "nftables": 16_384}
"""Maximum number of endpoints that a farm can refer to, by engine: the API server limits those written by hand."""

ADDRESSES_MAX = 32


class FarmFields(Model):
    """The fields of a farm's spec, each validated by itself."""

    family: Annotated[Family, Field(description="IP family of all addresses and backends: a farm has one.")] = "ipv4"
    protocol: Annotated[
        Protocol,
        Annotation("protocol"),
        Field(description="Accepted protocol. All: TCP, UDP and SCTP, on every port. The annotation can only be all."),
    ] = "TCP"
    addresses: Annotated[
        tuple[Address, ...],
        Field(
            description="Where clients connect: the addresses and ports of the farm.",
            min_length=1,
            max_length=ADDRESSES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["ip", "ports"]},
        ),
    ]
    mode: Annotated[
        Mode,
        Nftlb("mode"),
        Annotation(),
        Field(
            description="How connections reach a backend, and which client it sees. "
            "snat: it sees the node's address. "
            "dnat: it sees the client's address, and its replies must pass this node; see masquerade. "
            "dsr: packets reach it unchanged, and it replies to the client directly; for pods on a bridge of the node. "
            "local: a process of the node answers; for limits and policies only. "
            "Services get snat or dnat by the chart's profile. "
            "The documentation of the data plane says what each mode requires (docs/dataplane.md)."
        ),
    ] = "snat"
    engine: Annotated[
        Engine,
        Annotation("engine"),
        Field(
            description="The program that puts the farm into the kernel of each node. "
            "nftlb: the daemon nftlb, which serves every field. "
            "nftables: the agent itself, in milliseconds however many Services there are; for mode snat or dnat, and "
            "persistence none or srcip. Changing it interrupts no connection. Services get it by the chart's profile."
        ),
    ] = "nftlb"
    traffic_policy: Annotated[
        TrafficPolicy,
        Field(
            description="Which backends a node uses. Cluster: those on all nodes. Local: its own, and it drops "
            "connections if it has none. As externalTrafficPolicy and internalTrafficPolicy of a Service."
        ),
    ] = "Cluster"
    masquerade: Annotated[
        Masquerade,
        Field(
            description="With mode dnat: whether a backend sees the node's address in place of the client's. "
            "AsNeeded: only where its replies would not come back to the node otherwise, as with kube-proxy. Farms of "
            "Services have this. Never: it always sees the client's."
        ),
    ] = "Never"
    scheduler: Annotated[
        Scheduler,
        Nftlb("scheduler"),
        Annotation(),
        Field(
            description="How a node chooses the backend of a new connection. rr: round robin, by weight. weight: at "
            "random, by weight. hash: by the packet fields in schedParam. symhash: by a hash of addresses and ports "
            "that is the same in both directions."
        ),
    ] = "rr"
    sched_param: Annotated[
        FieldSet,
        Nftlb("sched-param"),
        Annotation(),
        Field(
            description="With scheduler hash: the packet fields that it hashes; none means srcip. Connections from the "
            "node itself have no MAC address, so a hash of srcmac or dstmac sends all of them to one backend."
        ),
    ] = "none"
    persistence: Annotated[
        Persistence,
        Nftlb("persistence"),
        Annotation(),
        Field(
            description="Session affinity: connections with the same values of these packet fields go to the same "
            "backend for persistTTL seconds. srcip: those of one client. none: each connection is scheduled anew."
        ),
    ] = "none"
    persist_ttl: Annotated[
        int,
        Nftlb("persist-ttl"),
        Annotation(),
        Field(
            description="With persistence: seconds for which a client keeps its backend after its last new connection.",
            alias="persistTTL",
            ge=1,
            le=86400,
        ),
    ] = 60
    sessions: Annotated[
        tuple[Session, ...],
        Annotation("sessions"),
        Field(
            description="Clients with a backend of their own, whatever the scheduler says. If it is neither up nor "
            "draining, or trafficPolicy keeps them from it, they are scheduled like others. Requires persistence.",
            max_length=SESSIONS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["client"]},
        ),
    ] = ()
    helper: Annotated[
        Helper,
        Annotation("helper"),
        Field(
            description="Connection tracking helper of the kernel, for protocols that open further connections, such "
            "as the data connections of ftp. amanda, netbios-ns, snmp and tftp require protocol UDP; ftp, irc, pptp "
            "and sane TCP; h323 and sip either. irc, netbios-ns, pptp and snmp require family ipv4."
        ),
    ] = "none"
    log: Annotated[
        Log,
        Annotation("log"),
        Field(
            description="At which points the kernel of a node logs each new connection. input: as it arrives, with the "
            "address that the client asked for. forward: on its way to the backend. output: as it leaves the node."
        ),
    ] = "none"
    log_prefix: Annotated[
        LogPrefix | None,
        Annotation("log-prefix"),
        Field(description="With log: what follows IN-, FWD- or OUT- in each line. Default: the farm's name."),
    ] = None
    source_address: Annotated[
        IpAddress | None,
        Annotation("source-addr"),
        Field(
            description="With mode snat: the address that backends see. Default: the node's. Replies to it must be "
            "routed to the node that translated the connection."
        ),
    ] = None
    mark: Annotated[
        FarmMark | None,
        Nftlb("mark", unset="0x0"),
        Annotation(),
        Field(
            description="Bits that the kernel sets in the mark of the farm's connections and packets, for routing "
            "rules and firewalls of yours: a hexadecimal number from 0x1000 to 0xffff000 that ends with 000. The last "
            "three digits are the backend's mark. Packets of processes on the node itself get none."
        ),
    ] = None
    priority: Annotated[
        int,
        Annotation("priority"),
        Field(
            description="Backends whose own priority is at most this number are active, others are on standby. For "
            "each active backend that is unavailable, backends of the next number become active too; if none is "
            "available then, those of the next number that has an available one.",
            ge=1,
            le=100,
        ),
    ] = 1
    limits: Annotated[
        Limits, Field(description="Limits for each client address: rates, connections, and invalid packets.")
    ] = Limits()
    queue: Annotated[
        int | None,
        Annotation("queue"),
        Field(
            description="Number of a netfilter queue: packets that open a connection go to the program that reads it, "
            "which decides on them. If no program does, they pass. Absent: no queue.",
            ge=0,
            le=65535,
        ),
    ] = None
    intra_connect: Annotated[
        bool,
        Nftlb("intra-connect"),
        Annotation(),
        Field(description="Whether processes on a node itself can connect to the farm."),
    ] = True
    state: Annotated[
        State,
        Annotation("state"),
        Field(
            description="up: the farm serves. drain: it refuses new connections; open connections and sessions go on. "
            "off: it also forgets sessions; open TCP connections go on. down: it also cuts open connections. The farm "
            "keeps its addresses in every state: no other farm gets them."
        ),
    ] = "up"
    on_gone: Annotated[
        OnGone,
        Annotation("on-gone"),
        Field(
            description="What happens to open TCP connections of a backend that is gone: removed, or neither ready nor "
            "serving. keep: nothing, so a client that waits for data waits until its own timeout. cut: the client gets "
            "a TCP reset after a second; requires mode snat or dnat."
        ),
    ] = "keep"
    policies: Annotated[
        tuple[PolicyName, ...],
        Annotation("policies"),
        Field(
            description="Names of NftlbPolicies in the farm's namespace, which decide which clients may connect. While "
            "one of them does not exist, no client may.",
            max_length=POLICIES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    health_check_node_port: Annotated[
        int | None,
        Field(
            description="Port on which each node answers HTTP health checks of load balancers in front of the nodes: "
            "200 if a ready backend runs on it, else 503. Farms of Services have spec.healthCheckNodePort here.",
            ge=1,
            le=65535,
        ),
    ] = None
    service_creation_timestamp: Annotated[
        AwareDatetime | None,
        Field(
            description="When the Service of the farm was created; set by the operator. Of two Services that want one "
            "address and port, the older one gets it. Ignored in farms written by hand."
        ),
    ] = None
    backends: Annotated[
        tuple[Backend, ...],
        Field(
            description="Where the farm sends connections: written by hand. A backend that is not ready gets none.",
            max_length=BACKENDS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    backends_from: Annotated[
        tuple[BackendsFrom, ...],
        Field(
            description="Where the farm sends connections, in place of backends: to the endpoints of a Service. Agents "
            "follow its EndpointSlices, so the farm does not change when pods come and go. status.backends shows them. "
            "With several entries, each is a group: a new connection goes to one of them by their weights, then to one "
            "of its endpoints as the scheduler says. With a hash or persistence a client stays in its group.",
            max_length=REFERENCES_MAX,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["namespace", "service", "port"],
            },
        ),
    ] = ()
