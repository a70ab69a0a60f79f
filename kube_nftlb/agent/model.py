"""The desired and the actual state of a node, independent of any engine. Pure: no I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

from kube_nftlb import names
from kube_nftlb.agent.endpoints.selection import NodeBackend
from kube_nftlb.agent.endpoints.topology import Endpoints
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.farm.engines import Engine
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import AddressType, Protocol, expand_ports
from kube_nftlb.reasons import FailureReason


class Version(NamedTuple):
    """The spec that a farm has: another object of the same name has another uid."""

    uid: str
    generation: int

    @classmethod
    def of(cls, farm: Farm) -> Self:
        """Return the version of a farm's spec."""
        return cls(farm.metadata.uid, farm.metadata.generation)


class NodeAddress(NamedTuple):
    """One IP and one part of the list of ports of an address in a farm's spec, resolved for this node.

    ``ports`` is a port or a range, and empty with the protocol All. ``source_ranges`` are the admitted clients, as
    CIDRs without overlaps; empty if all are.
    """

    type: AddressType
    ip: str
    protocol: Protocol
    ports: str
    source_ranges: tuple[str, ...] = ()

    def listeners(self) -> Iterator[Listener]:
        """Yield the listener of each port."""
        return (Listener(self.ip, self.protocol, port) for port in expand_ports(self.ports) or (ALL_PORTS,))


class DirectRouting(NamedTuple):
    """The route of packets in the mode dsr to pods of this node, which are all on one bridge."""

    bridge: str
    macs: Mapping[str, str]
    """The MAC addresses of the pods, by IP address."""
    inlets: Mapping[str, str]
    """The interfaces on which clients' packets arrive, with their MAC addresses."""


class Blocker(NamedTuple):
    """The reason that a farm cannot be served as requested on this node.

    With ``refuse_clients`` the farm is programmed without endpoints, so that connections are refused. Otherwise it
    stays as it was.
    """

    reason: FailureReason
    message: str
    refuse_clients: bool = False
    retry_after_s: float | None = None
    """Time in seconds after which the farm is tried again though nothing has changed; None: never."""


class NodeGroup(NamedTuple):
    """Endpoints among which a connection is scheduled once this group was drawn for it, by weight."""

    number: int
    """The position of the reference that they come from."""
    weight: int
    endpoints: tuple[NodeBackend, ...]
    candidates: Endpoints

    @property
    def refuses(self) -> bool:
        """True if nobody could answer its share of the connections, on any node."""
        return not (self.candidates.cluster or any(each.schedulable for each in self.endpoints))


@dataclass(frozen=True)
class NodeFarm:
    """A farm as this node should serve it."""

    key: FarmKey
    version: Version
    spec: FarmSpec
    addresses: tuple[NodeAddress, ...]
    endpoints: tuple[NodeBackend, ...]
    candidates: Endpoints
    """The backends for connections that may leave the node, and the node's own (see ``endpoints.topology``)."""
    local_ips: tuple[str, ...]
    """The addresses of backends on this node that are ready, or used all the same, sorted."""
    direct: DirectRouting | None = None
    suspended: bool = False
    """True if clients must be refused although the mode does without endpoints."""
    groups: tuple[NodeGroup, ...] = ()
    """The groups of its endpoints among which connections are drawn; none if there are not at least two."""

    @cached_property
    def name(self) -> str:
        """The farm's name on the node: in the engine, and as an owner in the agent table."""
        return names.node_farm_name(*self.key)

    @property
    def listeners(self) -> Iterator[Listener]:
        """All listeners of the farm."""
        return (listener for address in self.addresses for listener in address.listeners())

    @cached_property
    def own_endpoints(self) -> frozenset[Listener]:
        """Those of its listeners that are endpoints of it: the kernel calls nothing translated that it sends there."""
        ips = {address.ip for address in self.addresses}
        present = {(backend.ip, backend.port) for backend, _ in self.endpoints if backend.ip in ips}
        listeners = self.listeners if present else ()
        return frozenset(each for each in listeners if present & {(each.ip, each.port), (each.ip, None)})

    @property
    def has_outside(self) -> bool:
        """True if it has addresses for clients outside of the cluster."""
        return any(address.type != "ClusterIP" for address in self.addresses)

    @cached_property
    def inside(self) -> frozenset[str]:
        """The backends that the traffic policy keeps for clients of this node: replies to others do not come back."""
        if self.spec.traffic_policy == "Cluster":
            return frozenset()
        lists = [each.candidates for each in self.groups or (self,)]
        own = {each.name for both in lists for each in both.local}
        return frozenset(each.name for both in lists for each in both.cluster) - own

    @property
    def drops(self) -> bool:
        """True if connections are dropped because the traffic policy is Local, and no backend is on this node."""
        lists = self.candidates
        return self.spec.traffic_policy == "Local" and bool(lists.cluster) and not (lists.local or self.refuses)

    @property
    def fixed_sessions(self) -> Iterator[tuple[str, str]]:
        """Yield clients with a backend of their own, and its name, unless they may not be sent there."""
        remote = self.inside if self.has_outside else frozenset()
        return ((each.client, each.backend) for each in self.spec.sessions if each.backend not in remote)

    @property
    def refuses(self) -> bool:
        """True if new connections must be refused. In the mode local the node itself answers."""
        if self.spec.mode == "local" and not self.suspended:
            return False
        return not any(endpoint.schedulable for endpoint in self.endpoints)


class SentFarm(NamedTuple):
    """A farm as an engine has sent it to its data plane: the kernel may not have it, until that is verified."""

    engine: Engine
    listeners: frozenset[Listener]
    endpoints: int
    scheduled: int
    """The number of endpoints that get new connections."""
    answers_itself: bool = False
    """True in the mode local: no endpoint is needed."""

    @property
    def refuses(self) -> bool:
        """True if nobody answers new connections."""
        return not (self.scheduled or self.answers_itself)
