"""NftlbFarm: one load-balanced Service port in one address family, independent of any node."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from kube_nftlb.api.base import Cel, Condition, Family, ForeignModel, IpAddress, Metadata, Model, Nftlb, validation

Protocol = Literal["TCP", "UDP", "SCTP"]
Mode = Literal["snat", "dnat"]
Scheduler = Literal["rr", "weight", "hash", "symhash"]
SchedParam = Literal["none", "srcip", "srcport", "srcip srcport"]
Persistence = Literal["none", "srcip", "srcport", "srcmac", "srcip srcport", "srcip dstport"]

COMBINED_PERSISTENCE: tuple[Persistence, ...] = ("srcip srcport", "srcip dstport")

BACKENDS_MAX = 4094
"""nftlb has 12 bits for the marks of a farm's backends, and 0 and 1 are not ours to give."""

ADDRESSES_MAX = 32
PORTS_MAX = 1024
"""How many ports one address may name: nftlb makes four map elements for each."""

_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_PORTS_PATTERN = rf"^{_PORT}(-{_PORT})?(,{_PORT}(-{_PORT})?)*$"

BACKEND_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"


def expand_ports(ports: str) -> list[int]:
    """Every port that a list such as ``80,443,8000-8003`` names, in order.

    Raises ValueError with a sentence that says what is wrong: no number, out of 1-65535, backwards, twice, too many.
    """
    if not re.fullmatch(_PORTS_PATTERN, ports):
        raise ValueError(f"{ports!r} is not a list of ports from 1 to 65535 and ranges, such as 80 or 80,443,8000-8003")
    expanded: list[int] = []
    for part in ports.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if low > high:
            raise ValueError(f"{part!r}: a range goes from its lower end to its upper, such as 8000-8003")
        if len(expanded) + high - low + 1 > PORTS_MAX:
            raise ValueError(f"{ports!r} names more than {PORTS_MAX} ports")
        expanded.extend(range(low, high + 1))
    if len(set(expanded)) != len(expanded):
        raise ValueError(f"{ports!r} names a port twice")
    return expanded


def _checked_ports(ports: str) -> str:
    expand_ports(ports)
    return ports


class Address(Model):
    """An address that the farm listens on."""

    ip: Annotated[IpAddress, Field(description="The IP address, of the farm's family.")]
    ports: Annotated[
        str,
        Field(
            description="A port, a list or a range: 80, or 80,443, or 8000-8003; all lead to the backends' port.",
            min_length=1,
            max_length=100,
            pattern=_PORTS_PATTERN,
            json_schema_extra=validation(
                Cel(
                    "self.split(',').all(p, !p.contains('-') || int(p.split('-')[0]) <= int(p.split('-')[1]))",
                    "a range goes from its lower end to its upper, such as 8000-8003",
                )
            ),
        ),
        AfterValidator(_checked_ports),
    ]


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
    port: Annotated[int, Nftlb("port"), Field(description="The endpoint's port.", ge=1, le=65535)]
    weight: Annotated[
        int,
        Nftlb("weight"),
        Field(description="Its share of the connections, relative to the other backends' weights.", ge=1, le=100),
    ] = 1
    ready: Annotated[bool, Field(description="Whether it gets connections (EndpointSlice condition ready).")] = True
    serving: Annotated[bool, Field(description="Whether it answers, be it terminating or not (condition serving).")] = (
        True
    )
    terminating: Annotated[bool, Field(description="Whether its pod is being deleted (condition terminating).")] = False
    node_name: Annotated[
        str | None,
        Field(description="The node that it runs on; absent where it is outside the cluster.", max_length=253),
    ] = None


class FarmSpec(Model):
    """What is wanted of a farm."""

    model_config = ConfigDict(
        json_schema_extra=validation(
            Cel(
                "self.addresses.all(a, !isIP(a.ip) || ip(a.ip).family() == (self.family == 'ipv6' ? 6 : 4))",
                "every address must be of the farm's family (ipv4 or ipv6)",
            ),
            Cel(
                "self.backends.all(b, !isIP(b.ip) || ip(b.ip).family() == (self.family == 'ipv6' ? 6 : 4))",
                "every backend must be of the farm's family (ipv4 or ipv6)",
            ),
            Cel(
                "self.schedParam == 'none' || self.scheduler == 'hash'",
                "schedParam is for the scheduler hash; with any other it must be none",
            ),
            Cel(
                "!(self.persistence in ['srcip srcport', 'srcip dstport']) || self.scheduler in ['hash', 'symhash']",
                "the persistence 'srcip srcport' and 'srcip dstport' need the scheduler hash or symhash",
            ),
            Cel(
                "!(self.persistence in ['srcip srcport', 'srcip dstport']) || self.family == 'ipv4'",
                "the persistence 'srcip srcport' and 'srcip dstport' is for ipv4: nftlb dies of it with ipv6",
            ),
        )
    )

    family: Annotated[Family, Field(description="The family of all addresses and backends.")] = "ipv4"
    protocol: Annotated[Protocol, Field(description="The protocol of all addresses.")] = "TCP"
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
        Field(
            description="snat: backends see the node's address, and may be anywhere. dnat: backends see the client's "
            "address, and must answer through the node."
        ),
    ] = "snat"
    scheduler: Annotated[
        Scheduler,
        Nftlb("scheduler"),
        Field(
            description="How a new connection gets its backend. rr: in turn, by weight. weight: at random, by weight. "
            "hash: by a hash of schedParam. symhash: by a hash that is the same in both directions."
        ),
    ] = "rr"
    sched_param: Annotated[
        SchedParam, Nftlb("sched-param"), Field(description="What the scheduler hash hashes; none means srcip.")
    ] = "none"
    persistence: Annotated[
        Persistence,
        Nftlb("persistence"),
        Field(
            description="What a client is known by, so that all it opens goes to one backend; none: each is scheduled."
        ),
    ] = "none"
    persist_ttl: Annotated[
        int,
        Nftlb("persist-ttl"),
        Field(description="Seconds for which a silent client is remembered.", alias="persistTTL", ge=1, le=86400),
    ] = 60
    intra_connect: Annotated[
        bool, Nftlb("intra-connect"), Field(description="Whether processes on the node itself reach the farm.")
    ] = True
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
        version = ":" if self.family == "ipv6" else "."
        for what, ip in [*(("address", a.ip) for a in self.addresses), *(("backend", b.ip) for b in self.backends)]:
            if version not in ip or (version == "." and ":" in ip):
                raise ValueError(f"the {what} {ip} is not of the farm's family {self.family}")
        if self.sched_param != "none" and self.scheduler != "hash":
            raise ValueError(f"schedParam {self.sched_param!r} is for the scheduler hash, not {self.scheduler}")
        if self.persistence in COMBINED_PERSISTENCE:
            if self.scheduler not in ("hash", "symhash"):
                raise ValueError(
                    f"persistence {self.persistence!r} needs the scheduler hash or symhash, not {self.scheduler}"
                )
            if self.family != "ipv4":
                raise ValueError(f"persistence {self.persistence!r} is for the family ipv4")
        names = [backend.name for backend in self.backends]
        if len(set(names)) != len(names):
            raise ValueError("two backends have one name")
        listened = [(a.ip, port) for a in self.addresses for port in expand_ports(a.ports)]
        if len(set(listened)) != len(listened):
            raise ValueError("two addresses name the same IP and port")
        return self


class FarmStatus(Model):
    """What has become of a farm, written by the operator."""

    observed_generation: Annotated[int, Field(description="The metadata.generation that this status is about.")] = 0
    resource_version: Annotated[
        str,
        Field(description="The resourceVersion at which that generation was first seen; nodes past it have the farm."),
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


class Farm(ForeignModel):
    """An NftlbFarm object."""

    metadata: Metadata
    spec: FarmSpec
    status: FarmStatus = FarmStatus()
