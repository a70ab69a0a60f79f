"""The fields of a farm's spec. The rules about several of them are in ``farm.rules``."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import Annotation, Family, IpAddress, Model, Nftlb
from kube_nftlb.api.farm.address import POLICIES_MAX, Address
from kube_nftlb.api.farm.backends_from import BackendsFrom
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

    family: Annotated[Family, Field(description="Address family of all addresses and backends.")] = "ipv4"
    protocol: Annotated[
        Protocol,
        Annotation("protocol"),
        Field(description="Protocol of all addresses. All: TCP, UDP and SCTP, on every port."),
    ] = "TCP"
    addresses: Annotated[
        tuple[Address, ...],
        Field(
            description="Addresses on which the farm takes connections.",
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
            description="How packets reach a backend. "
            "snat: backends see the node's address, and may be anywhere. "
            "dnat: backends see the client's address, and must reply through the node. "
            "stlsdnat: like dnat, but stateless, without connection tracking; nftlb 1.0.7 cannot load it for pods, "
            "which the condition Programmed reports. "
            "dsr (direct server return, IPv4 only): backends receive packets unmodified and reply to the client "
            "directly. They must be pods on a bridge of the node that receives the connection, and listen on the "
            "farm's port; the agent adds the farm's addresses to their loopback interfaces. Packets are distributed by "
            "a hash of the fields in persistence or schedParam, or else of the client's address and port, so some "
            "connections move when backends change. "
            "local: a process on the node itself answers, on an address of the node. Nothing is translated and "
            "backends are ignored; use it for limits and policies."
        ),
    ] = "snat"
    engine: Annotated[
        Engine,
        Annotation("engine"),
        Field(
            description="What programs the farm on every node. nftlb: the daemon nftlb, for all that a farm can have. "
            "nftables: elements of nftables maps, which change in milliseconds with any number of Services; for the "
            "modes snat and dnat, and persistence none or srcip. A farm can change its engine while it serves."
        ),
    ] = "nftlb"
    traffic_policy: Annotated[
        TrafficPolicy,
        Field(
            description="Cluster: nodes send connections to backends on any node. Local: only to backends on the same "
            "node; without any, connections are dropped."
        ),
    ] = "Cluster"
    masquerade: Annotated[
        Masquerade,
        Field(
            description="With mode dnat, whether to masquerade the client's address. AsNeeded: if replies would not "
            "return through the node otherwise, as kube-proxy does. Never: backends always see the client's address."
        ),
    ] = "Never"
    scheduler: Annotated[
        Scheduler,
        Nftlb("scheduler"),
        Annotation(),
        Field(
            description="How a backend is chosen for a new connection. rr: weighted round robin. weight: at random, "
            "by weight. hash: by a hash of the fields in schedParam. symhash: by a hash that is the same in both "
            "directions."
        ),
    ] = "rr"
    sched_param: Annotated[
        FieldSet,
        Nftlb("sched-param"),
        Annotation(),
        Field(
            description="Packet fields that scheduler hash uses; none means srcip. Connections from the node itself "
            "have no MAC address, so a hash of one does not distribute them."
        ),
    ] = "none"
    persistence: Annotated[
        Persistence,
        Nftlb("persistence"),
        Annotation(),
        Field(
            description="Session affinity: packet fields that identify a client, whose connections all go to the same "
            "backend. none: every connection is scheduled."
        ),
    ] = "none"
    persist_ttl: Annotated[
        int,
        Nftlb("persist-ttl"),
        Annotation(),
        Field(
            description="Seconds after its last new connection for which a client keeps its backend, with persistence.",
            alias="persistTTL",
            ge=1,
            le=86400,
        ),
    ] = 60
    sessions: Annotated[
        tuple[Session, ...],
        Annotation("sessions"),
        Field(
            description="Clients that always go to the same backend, regardless of the scheduler, while that backend "
            "is up or draining; otherwise they are scheduled. Requires persistence.",
            max_length=SESSIONS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["client"]},
        ),
    ] = ()
    helper: Annotated[
        Helper,
        Annotation("helper"),
        Field(
            description="Connection tracking helper: the protocol whose related connections the kernel recognizes and "
            "translates, such as the data connections of ftp. amanda, netbios-ns, snmp and tftp require protocol UDP; "
            "ftp, irc, pptp and sane TCP; h323 and sip either. irc, netbios-ns, pptp and snmp require family ipv4."
        ),
    ] = "none"
    log: Annotated[
        Log,
        Annotation("log"),
        Field(
            description="Where the kernel logs new connections. input: when they arrive, before translation. forward: "
            "when they are forwarded to the backend. output: when they leave the node."
        ),
    ] = "none"
    log_prefix: Annotated[
        LogPrefix | None,
        Annotation("log-prefix"),
        Field(description="Prefix of these log lines, after IN-, FWD- or OUT-. Default: the farm's name."),
    ] = None
    source_address: Annotated[
        IpAddress | None,
        Annotation("source-addr"),
        Field(
            description="Source address of connections to backends, with mode snat. Default: the node's address. "
            "Replies to it must be routed to the node."
        ),
    ] = None
    mark: Annotated[
        FarmMark | None,
        Nftlb("mark", unset="0x0"),
        Annotation(),
        Field(
            description="Bits to set in the mark of the farm's connections and their packets, in addition to the "
            "backend's mark, for routing rules and the like: a hexadecimal number from 0x1000 to 0xffff000 whose last "
            "three digits are 0. Packets from processes on the node itself are not marked."
        ),
    ] = None
    priority: Annotated[
        int,
        Annotation("priority"),
        Field(
            description="Backends with a priority up to this value are active, the rest are on standby. For each "
            "active backend that is unavailable, the next priority is activated too. If no backend of these is "
            "available, the next priority that has an available backend is.",
            ge=1,
            le=100,
        ),
    ] = 1
    limits: Annotated[Limits, Field(description="Rate and connection limits per client address.")] = Limits()
    queue: Annotated[
        int | None,
        Annotation("queue"),
        Field(
            description="Number of the netfilter queue to which packets that open a connection are sent for "
            "inspection. If no program listens to it, packets pass. Absent: none.",
            ge=0,
            le=65535,
        ),
    ] = None
    flow_offload: Annotated[
        bool,
        Nftlb("flow-offload", unset="off"),
        Annotation(),
        Field(
            description="Forward established connections through a flow table. Not supported by nftlb 1.0.7: the farm "
            "is not programmed."
        ),
    ] = False
    intra_connect: Annotated[
        bool,
        Nftlb("intra-connect"),
        Annotation(),
        Field(description="Allow processes on the node itself to connect to the farm."),
    ] = True
    state: Annotated[
        State,
        Annotation("state"),
        Field(
            description="up: in service. drain: new connections are refused; open ones and sessions are kept. off: new "
            "connections are refused and sessions removed; open TCP connections are kept. down: like off, and open "
            "connections are terminated. The farm keeps its addresses in every state."
        ),
    ] = "up"
    on_gone: Annotated[
        OnGone,
        Annotation("on-gone"),
        Field(
            description="What becomes of open TCP connections to a backend that is gone: no longer one of the farm, or "
            "neither ready nor serving. keep: they stay, and a client that waits for data waits until its own timeout. "
            "cut: after a second the client gets a TCP reset, whether it sends or waits. A backend that is terminating "
            "and still serving is not gone. cut requires mode snat or dnat."
        ),
    ] = "keep"
    policies: Annotated[
        tuple[PolicyName, ...],
        Annotation("policies"),
        Field(
            description="Names of NftlbPolicies in the same namespace that decide which clients may connect. While one "
            "of them does not exist, no client may.",
            max_length=POLICIES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    health_check_node_port: Annotated[
        int | None,
        Field(
            description="Port on which every node answers HTTP health checks of external load balancers: 200 if it has "
            "a ready backend of its own, 503 if not. Set from spec.healthCheckNodePort of a Service.",
            ge=1,
            le=65535,
        ),
    ] = None
    service_creation_timestamp: Annotated[
        AwareDatetime | None,
        Field(
            description="When the Service of the farm was created. Set by the operator: of two Services that want one "
            "listener, the older one gets it. Ignored in farms written by hand."
        ),
    ] = None
    backends: Annotated[
        tuple[Backend, ...],
        Field(
            description="Where connections are sent, written by hand. Backends that are not ready receive none.",
            max_length=BACKENDS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    backends_from: Annotated[
        BackendsFrom | None,
        Field(
            description="Where connections are sent, instead of backends: to the endpoints of a Service. Agents follow "
            "its EndpointSlices, so the farm does not change when endpoints do. status.backends shows them."
        ),
    ] = None
