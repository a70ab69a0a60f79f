"""NftlbFarm: one load-balanced Service port in one address family, independent of any node."""

import re
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from kube_nftlb.api import clients
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import (
    Annotation,
    Cel,
    Condition,
    Family,
    ForeignModel,
    IpAddress,
    IpAddressOrEmpty,
    Metadata,
    Model,
    Nftlb,
    validation,
)
from kube_nftlb.api.limits import Limits
from kube_nftlb.api.policy import PolicyName
from kube_nftlb.api.values import (
    IPV4_HELPERS,
    KERNEL_HELPERS,
    AddressType,
    FarmMark,
    FieldSet,
    Helper,
    Log,
    LogPrefix,
    Masquerade,
    Mode,
    Persistence,
    Ports,
    Protocol,
    Scheduler,
    SourceRange,
    State,
    TrafficPolicy,
    expand_ports,
)

BACKENDS_MAX = 4094
"""nftlb has 12 bits for the marks of a farm's backends, and 0 and 1 are not ours to give."""

ADDRESSES_MAX = 32
LISTENERS_MAX = 4096
"""How many pairs of an address and a port a farm may have; nftlb makes four map elements for each."""
POLICIES_MAX = 16
SESSIONS_MAX = 1024
SOURCE_RANGES_MAX = 256


class Address(Model):
    """An address that the farm listens on."""

    type: Annotated[
        AddressType,
        Field(
            description="ClusterIP: reached from inside the cluster. ExternalIP, LoadBalancer: reached from outside. "
            "NodePort: the addresses of each node, and no IP here. What differs: with the traffic policy Local, "
            "connections from the node itself and its pods to addresses of the last three go to any backend."
        ),
    ] = "ClusterIP"
    ip: Annotated[
        IpAddressOrEmpty, Field(description="The IP address, of the farm's family; empty with the type NodePort alone.")
    ] = ""
    ports: Annotated[
        Ports,
        Field(description="A port, a list or a range: 80, or 80,443, or 8000-8003. Empty with the protocol All alone."),
    ] = ""
    source_ranges: Annotated[
        tuple[SourceRange, ...],
        Field(
            description="The ranges whose clients get in at this address; empty: all "
            "(Service, spec.loadBalancerSourceRanges).",
            max_length=SOURCE_RANGES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    policies: Annotated[
        tuple[PolicyName, ...],
        Field(
            description="Names of NftlbPolicies that count for this address alone, besides the farm's own.",
            max_length=POLICIES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()


class Session(Model):
    """A client that always gets the same backend."""

    client: Annotated[
        str,
        Field(
            description="The client as the farm's persistence knows it: an IP address for srcip, a MAC address for "
            "srcmac, a port for srcport, in lower case; for several fields their values in the same order, as in "
            "'10.0.0.1 . 4000'.",
            min_length=1,
            max_length=80,
            pattern=r"^[0-9a-f.:]+( \. [0-9a-f.:]+)*$",
        ),
    ]
    backend: Annotated[str, Field(description="The name of its backend.", min_length=1, max_length=253)]


class FarmSpec(Model):
    """What is wanted of a farm."""

    model_config = ConfigDict(
        json_schema_extra=validation(
            Cel(
                "self.addresses.all(a, (a.ip == '') == (a.type == 'NodePort'))",
                "every address must have an ip, except those of the type NodePort, which are the nodes' own",
            ),
            Cel(
                "self.addresses.all(a, !isIP(a.ip) || ip(a.ip).family() == (self.family == 'ipv6' ? 6 : 4))",
                "every address must be of the farm's family (ipv4 or ipv6)",
            ),
            Cel(
                "self.family == 'ipv6' ? self.addresses.all(a, a.sourceRanges.all(r, r.contains(':'))) "
                ": self.addresses.all(a, a.sourceRanges.all(r, !r.contains(':')))",
                "every source range must be of the farm's family (ipv4 or ipv6)",
            ),
            # There may be a thousand, and for each field that a rule asks for the API server lists all that the schema
            # has: so one field of each backend, and nothing of the farm for each backend.
            Cel(
                "self.family == 'ipv6' ? self.backends.all(b, b.ip.contains(':')) "
                ": self.backends.all(b, !b.ip.contains(':'))",
                "every backend must be of the farm's family (ipv4 or ipv6)",
            ),
            Cel(
                "self.addresses.all(a, (a.ports == '') == (self.protocol == 'All'))",
                "every address must name its ports, except with the protocol All, which has none",
            ),
            Cel(
                "(self.protocol != 'All' && self.backends.all(b, has(b.port))) || self.backends.all(b, !has(b.port))",
                "either every backend has a port, or none has: then the port that the client asked for is kept, "
                "as it always is with the protocol All",
            ),
            Cel(
                "self.schedParam == 'none' || self.scheduler == 'hash'",
                "schedParam is for the scheduler hash; with any other it must be none",
            ),
            Cel(
                "self.family == 'ipv4' || !self.persistence.contains(' ') || !self.persistence.contains('ip')",
                "with ipv6 a persistence by an address is by that address alone: nftlb ends at a longer key",
            ),
            Cel(
                "self.family == 'ipv4' || !(self.schedParam.startsWith('srcip dstip ')"
                " && self.schedParam.contains('port') && self.schedParam.endsWith('srcmac dstmac'))",
                "with ipv6 nftlb ends at a schedParam of both addresses, both MAC addresses and a port",
            ),
            Cel(
                "self.protocol != 'All' || !(self.schedParam + self.persistence).contains('port')",
                "with the protocol All schedParam and persistence cannot have ports: nftlb would look at TCP's alone",
            ),
            Cel(
                "!has(self.sourceAddress) || self.mode == 'snat'",
                "sourceAddress is for the mode snat; in all others backends see the client's address",
            ),
            Cel(
                "self.backends.all(b, !has(b.sourceAddress) || !isIP(b.sourceAddress) || (self.mode == 'snat' && "
                "ip(b.sourceAddress).family() == (self.family == 'ipv6' ? 6 : 4)))",
                "a backend's sourceAddress is for the mode snat, and of the farm's family",
            ),
            Cel(
                "!has(self.sourceAddress) || !isIP(self.sourceAddress) || "
                "ip(self.sourceAddress).family() == (self.family == 'ipv6' ? 6 : 4)",
                "sourceAddress must be of the farm's family (ipv4 or ipv6)",
            ),
            Cel(
                "self.protocol != 'All' || (self.helper == 'none' && self.log == 'none' && !has(self.sourceAddress) && "
                "!has(self.limits.new) && !has(self.limits.reset) && !has(self.limits.established) && "
                "!self.limits.tcpStrict)",
                "the protocol All goes without helper, log, sourceAddress and limits",
            ),
            Cel(
                "self.mode in ['snat', 'dnat'] || (self.helper == 'none' && self.log == 'none' && !has(self.mark))",
                "helper, log and mark are for the modes snat and dnat",
            ),
            Cel(
                "self.mode in ['snat', 'dnat', 'local'] || (!has(self.limits.new) && !has(self.limits.reset) && "
                "!has(self.limits.established) && !self.limits.tcpStrict)",
                "limits are for the modes snat, dnat and local",
            ),
            Cel(
                "!(self.helper in ['amanda', 'netbios-ns', 'snmp', 'tftp']) || self.protocol == 'UDP'",
                "the helpers amanda, netbios-ns, snmp and tftp are for the protocol UDP",
            ),
            Cel(
                "!(self.helper in ['ftp', 'irc', 'pptp', 'sane']) || self.protocol == 'TCP'",
                "the helpers ftp, irc, pptp and sane are for the protocol TCP",
            ),
            Cel(
                "!(self.helper in ['h323', 'sip']) || self.protocol in ['TCP', 'UDP']",
                "the helpers h323 and sip are for the protocols TCP and UDP",
            ),
            Cel(
                "!(self.helper in ['irc', 'netbios-ns', 'pptp', 'snmp']) || self.family == 'ipv4'",
                "the helpers irc, netbios-ns, pptp and snmp are for ipv4",
            ),
            Cel(
                "size(self.sessions) == 0 || self.persistence != 'none'",
                "sessions are for farms with a persistence, which says what a client is known by",
            ),
            Cel(
                "self.mode in ['snat', 'dnat', 'local'] || (size(self.policies) == 0 && "
                "self.addresses.all(a, size(a.policies) == 0))",
                "policies are for the modes snat, dnat and local; in the others packets pass before they are looked at",
            ),
        )
    )

    family: Annotated[Family, Field(description="The family of all addresses and backends.")] = "ipv4"
    protocol: Annotated[
        Protocol,
        Annotation("protocol"),
        Field(description="The protocol of all addresses. All: TCP, UDP and SCTP, on every port."),
    ] = "TCP"
    addresses: Annotated[
        tuple[Address, ...],
        Field(
            description="What is listened on.",
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
            description="snat: backends see the node's address, and may be anywhere. dnat: backends see the client's "
            "address, and must answer through the node. stlsdnat: as dnat, without connection tracking; nftlb 1.0.7 "
            "cannot load it for pods, which the condition Programmed says. dsr: backends get the packets as they are, "
            "and answer the client directly; for IPv4. They are pods on a bridge of the node that the client asks, and "
            "listen on the farm's own port; the agent puts its addresses on their loopbacks. Packets go by a hash of "
            "what persistence or schedParam names, else of the client's address and port, so that a change of backends "
            "moves some connections. local: a process on the node itself answers, at an address that the node has; "
            "nothing is translated, and backends are of no use: it is for limits and policies."
        ),
    ] = "snat"
    traffic_policy: Annotated[
        TrafficPolicy,
        Field(
            description="Cluster: a node sends connections to backends on any node. Local: to its own alone; with none "
            "there it drops them."
        ),
    ] = "Cluster"
    masquerade: Annotated[
        Masquerade,
        Field(
            description="In the mode dnat, AsNeeded: the node takes the client's place where the answer would not come "
            "back through it otherwise, which is where kube-proxy does so. Never: clients are always seen as they are."
        ),
    ] = "Never"
    scheduler: Annotated[
        Scheduler,
        Nftlb("scheduler"),
        Annotation(),
        Field(
            description="How a new connection gets its backend. rr: in turn, by weight. weight: at random, by weight. "
            "hash: by a hash of schedParam. symhash: by a hash that is the same in both directions."
        ),
    ] = "rr"
    sched_param: Annotated[
        FieldSet,
        Nftlb("sched-param"),
        Annotation(),
        Field(
            description="What the scheduler hash hashes; none means srcip. Connections of the node itself have no MAC "
            "address, so a hash of one does not schedule them."
        ),
    ] = "none"
    persistence: Annotated[
        Persistence,
        Nftlb("persistence"),
        Annotation(),
        Field(
            description="What a client is known by, so that all it opens goes to one backend; none: each is scheduled."
        ),
    ] = "none"
    persist_ttl: Annotated[
        int,
        Nftlb("persist-ttl"),
        Annotation(),
        Field(description="Seconds for which a silent client is remembered.", alias="persistTTL", ge=1, le=86400),
    ] = 60
    sessions: Annotated[
        tuple[Session, ...],
        Annotation("sessions"),
        Field(
            description="Clients that always get the same backend, whatever the scheduler says, as long as it is up "
            "or draining; else they are scheduled.",
            max_length=SESSIONS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["client"]},
        ),
    ] = ()
    helper: Annotated[
        Helper,
        Annotation("helper"),
        Field(
            description="The protocol whose further connections the kernel is to recognise and translate (a conntrack "
            "helper), such as the data connections of ftp. amanda, netbios-ns, snmp and tftp are for UDP; ftp, irc, "
            "pptp and sane for TCP; h323 and sip for either. irc, netbios-ns, pptp and snmp are for ipv4."
        ),
    ] = "none"
    log: Annotated[
        Log,
        Annotation("log"),
        Field(
            description="Where the kernel logs each new connection: input, as it comes in, before its address is "
            "translated; forward, as it is forwarded to its backend; output, as it leaves the node."
        ),
    ] = "none"
    log_prefix: Annotated[
        LogPrefix | None,
        Annotation("log-prefix"),
        Field(description="What a line of that log begins with, behind IN-, FWD- or OUT-; absent: the farm's name."),
    ] = None
    source_address: Annotated[
        IpAddress | None,
        Annotation("source-addr"),
        Field(
            description="The address that backends see as their client, in the mode snat; absent: the node's. Answers "
            "to it must come back to the node."
        ),
    ] = None
    mark: Annotated[
        FarmMark | None,
        Nftlb("mark", unset="0x0"),
        Annotation(),
        Field(
            description="Bits that the marks of the farm's connections and their packets carry besides the backend's "
            "mark, for routing rules and the like: a hexadecimal number from 0x1000 to 0xffff000 whose last three "
            "digits are 0. Packets of processes on the node itself carry none."
        ),
    ] = None
    priority: Annotated[
        int,
        Annotation("priority"),
        Field(
            description="Backends up to this priority get connections; those above it are spare. For each one that "
            "cannot, one further priority is used, and where none of those has a backend that can, the next that has.",
            ge=1,
            le=100,
        ),
    ] = 1
    limits: Annotated[Limits, Field(description="What one client, or all, may do at most.")] = Limits()
    queue: Annotated[
        int | None,
        Annotation("queue"),
        Field(
            description="The netfilter queue that the packets which open a connection are sent to for inspection; they "
            "go on where no program asks for them. Absent: none.",
            ge=0,
            le=65535,
        ),
    ] = None
    flow_offload: Annotated[
        bool,
        Nftlb("flow-offload", unset="off"),
        Annotation(),
        Field(
            description="Whether established connections take the kernel's short cut (a flow table). With nftlb 1.0.7 "
            "a farm cannot."
        ),
    ] = False
    intra_connect: Annotated[
        bool,
        Nftlb("intra-connect"),
        Annotation(),
        Field(description="Whether processes on the node itself reach the farm."),
    ] = True
    state: Annotated[
        State,
        Annotation("state"),
        Field(
            description="up: serves. drain: new connections are refused, open ones go on, and clients are remembered. "
            "off: new connections are refused, open TCP connections go on, and clients are forgotten. down: as off, "
            "and open connections are cut. In all of them the addresses stay the farm's."
        ),
    ] = "up"
    policies: Annotated[
        tuple[PolicyName, ...],
        Annotation("policies"),
        Field(
            description="Names of NftlbPolicies of the same namespace that say which clients get in. While one of them "
            "does not exist, nobody gets in.",
            max_length=POLICIES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    health_check_node_port: Annotated[
        int | None,
        Field(
            description="A port on which every node answers over HTTP whether it has a ready backend itself: 200 or "
            "503; for load balancers in front of the nodes (a Service's spec.healthCheckNodePort).",
            ge=1,
            le=65535,
        ),
    ] = None
    backends: Annotated[
        tuple[Backend, ...],
        Field(
            description="Where connections go; one that is not ready gets none.",
            max_length=BACKENDS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        """The CEL rules once more, for farms that reach an agent past the API server's checks (an older CRD)."""
        self._check_families()
        self._check_ports()
        self._check_protocol()
        self._check_choices()
        self._check_sessions()
        return self

    def _source_addresses(self) -> list[str]:
        every = (self.source_address, *(backend.source_address for backend in self.backends))
        return [ip for ip in every if ip is not None]

    def _check_families(self) -> None:
        version = ":" if self.family == "ipv6" else "."
        named = [
            *(("address", address.ip) for address in self.addresses if address.ip),
            *(("source range", cidr) for address in self.addresses for cidr in address.source_ranges),
            *(("backend", backend.ip) for backend in self.backends),
            *(("sourceAddress", ip) for ip in self._source_addresses()),
        ]
        for what, ip in named:
            if version not in ip or (version == "." and ":" in ip):
                raise ValueError(f"the {what} {ip} is not of the farm's family {self.family}")

    def _check_ports(self) -> None:
        for address in self.addresses:
            if (address.ip == "") != (address.type == "NodePort"):
                raise ValueError("every address must have an ip, except those of the type NodePort")
            if (address.ports == "") != (self.protocol == "All"):
                raise ValueError(
                    f"the address {address.ip} must name its ports, except with the protocol All, which has none"
                )
        listened = [(address.ip, port) for address in self.addresses for port in expand_ports(address.ports) or [0]]
        if len(set(listened)) != len(listened):
            raise ValueError("two addresses name the same IP and port")
        if len(listened) > LISTENERS_MAX:
            raise ValueError(f"its addresses and ports are {len(listened)} pairs, and {LISTENERS_MAX} are the most")
        if len({backend.port is None for backend in self.backends}) > 1:
            raise ValueError("either every backend has a port, or none has")
        if self.protocol == "All" and any(backend.port is not None for backend in self.backends):
            raise ValueError("with the protocol All no backend has a port: the one that the client asked for is kept")

    def _check_protocol(self) -> None:
        if self.helper != "none" and (self.helper, self.protocol) not in KERNEL_HELPERS:
            raise ValueError(f"the helper {self.helper} is not for the protocol {self.protocol}")
        if self.helper in IPV4_HELPERS and self.family != "ipv4":
            raise ValueError(f"the helper {self.helper} is for ipv4")
        limits = self.limits
        limited = limits.new or limits.reset or limits.established or limits.tcp_strict
        if self.protocol == "All" and (self.log != "none" or self._source_addresses() or limited):
            raise ValueError("the protocol All goes without helper, log, sourceAddress and limits")
        if limited and self.mode not in ("snat", "dnat", "local"):
            raise ValueError(f"limits are for the modes snat, dnat and local, not {self.mode}")

    def _check_choices(self) -> None:
        if self.sched_param != "none" and self.scheduler != "hash":
            raise ValueError(f"schedParam {self.sched_param!r} is for the scheduler hash, not {self.scheduler}")
        fields = self.persistence.split()
        if self.family == "ipv6" and len(fields) > 1 and not {"srcip", "dstip"}.isdisjoint(fields):
            raise ValueError(f"persistence {self.persistence!r} is for the family ipv4")
        hashed = set(self.sched_param.split())
        if self.family == "ipv6" and hashed >= {"srcip", "dstip", "srcmac", "dstmac"} and len(hashed) > 4:
            raise ValueError(f"schedParam {self.sched_param!r} is for the family ipv4")
        if self.protocol == "All" and not {"srcport", "dstport"}.isdisjoint((*fields, *hashed)):
            raise ValueError("schedParam and persistence cannot have ports with the protocol All")
        if self.mode != "snat" and self._source_addresses():
            raise ValueError(f"sourceAddress is for the mode snat, not {self.mode}")
        if self.mode not in ("snat", "dnat") and (self.helper != "none" or self.log != "none" or self.mark):
            raise ValueError(f"helper, log and mark are for the modes snat and dnat, not {self.mode}")
        guarded = self.policies or any(address.policies for address in self.addresses)
        if guarded and self.mode not in ("snat", "dnat", "local"):
            raise ValueError(f"policies are for the modes snat, dnat and local, not {self.mode}")
        names = [backend.name for backend in self.backends]
        if len(set(names)) != len(names):
            raise ValueError("two backends have one name")
        marks = [backend.mark for backend in self.backends if backend.mark is not None]
        if len(set(marks)) != len(marks):
            twice = next(mark for mark in marks if marks.count(mark) > 1)
            raise ValueError(f"two backends have the mark {twice}")

    def _check_sessions(self) -> None:
        if self.sessions and self.persistence == "none":
            raise ValueError("sessions are for farms with a persistence")
        for session in self.sessions:
            clients.check(session.client, self.persistence, self.family)
        named = [session.client for session in self.sessions]
        if len(set(named)) != len(named):
            raise ValueError("two sessions have one client")


class FarmStatus(Model):
    """What has become of a farm, written by the operator."""

    observed_generation: Annotated[int, Field(description="The metadata.generation that this status is about.")] = 0
    resource_version: Annotated[
        str,
        Field(
            description="The resourceVersion at which that generation was first seen; nodes past it have the farm.",
            max_length=20,
        ),
    ] = ""
    ready_backends: Annotated[int, Field(description="Backends that are ready.", ge=0)] = 0
    total_backends: Annotated[int, Field(description="All backends.", ge=0)] = 0
    backends: Annotated[str, Field(description="readyBackends/totalBackends, for people.")] = ""
    programmed_nodes: Annotated[int, Field(description="Nodes whose kernel has this generation.", ge=0)] = 0
    total_nodes: Annotated[int, Field(description="Nodes that run an agent.", ge=0)] = 0
    nodes: Annotated[str, Field(description="programmedNodes/totalNodes, for people.")] = ""
    reason: Annotated[str, Field(description="The first reason for trouble, empty where there is none.")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Accepted: the spec is valid and conflicts with no other farm. Programmed: every node has it.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class Farm(ForeignModel):
    """An NftlbFarm object."""

    metadata: Metadata
    spec: FarmSpec
    status: FarmStatus = FarmStatus()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Both become part of names in nftlb, where the dot stands between them."""
        for what, name in (("name", self.metadata.name), ("namespace", self.metadata.namespace)):
            if not _OBJECT_NAME.fullmatch(name):
                raise ValueError(
                    f"the {what} {name[:63]!r} must be of lower-case letters, digits and dashes, without a dot"
                )
        return self
