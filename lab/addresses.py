"""The address plan of a lab. Computation only."""

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network

from kube_nftlb import errors

MAX_NODES = 100

SEGMENT_PREFIX = 22
"""Of the IPv4 network of nodes and client, 172.31.0.0: its second half has no hosts, for tests with many addresses."""
API_HOST = "172.31.0.1"
API_PORT = 6443
SERVICE_CIDRS = "10.96.0.0/16,fd00:96::/112"
POD_CIDRS = "10.244.0.0/16,fd00:244::/32"
FIRST_SERVICE_IP = "10.96.0.1"

GATEWAY = (IPv4Interface(f"{API_HOST}/{SEGMENT_PREFIX}"), IPv6Interface("fd00:31::1/64"))
CLIENT = (IPv4Interface(f"172.31.0.200/{SEGMENT_PREFIX}"), IPv6Interface("fd00:31::c8/64"))

FIRST_POD_HOST = 2
LAST_POD_HOST = 254

Interfaces = tuple[IPv4Interface, IPv6Interface]


@dataclass(frozen=True)
class NodePlan:
    """The addresses of one node; nodes are counted from 1."""

    number: int
    zone: str | None = None

    @property
    def name(self) -> str:
        """The name of the Node object, and of the node's network namespace."""
        return f"node-{self.number}"

    @cached_property
    def addresses(self) -> Interfaces:
        """The node's addresses on the network between nodes."""
        host = 10 + self.number
        return IPv4Interface(f"172.31.0.{host}/{SEGMENT_PREFIX}"), IPv6Interface(f"fd00:31::{host:x}/64")

    @cached_property
    def pod_cidrs(self) -> tuple[IPv4Network, IPv6Network]:
        """The node's pod ranges."""
        return IPv4Network(f"10.244.{self.number}.0/24"), IPv6Network(f"fd00:244:{self.number:x}::/64")

    @cached_property
    def gateway(self) -> Interfaces:
        """The node's own addresses on its pod bridge."""
        return self.pod_interfaces(1)

    def pod_interfaces(self, host: int) -> Interfaces:
        """Return the addresses of a pod by its host number, from FIRST_POD_HOST to LAST_POD_HOST."""
        four, six = self.pod_cidrs
        return IPv4Interface((four[host], four.prefixlen)), IPv6Interface((six[host], six.prefixlen))

    def pod_host(self, address: str) -> int:
        """Return the host number in a pod's IPv4 address."""
        return int(address.rpartition(".")[2])


def plan_nodes(count: int, zones: list[str] | None = None) -> list[NodePlan]:
    """Return the nodes of a lab. Zones are assigned round-robin. Raises LabError for an unsupported count."""
    if not 1 <= count <= MAX_NODES:
        raise errors.LabError(f"a lab has 1 to {MAX_NODES} nodes, not {count}")
    return [NodePlan(number, zones[(number - 1) % len(zones)] if zones else None) for number in range(1, count + 1)]


def next_pod_host(used: set[int], last: int) -> int | None:
    """Return the next free host number after ``last``, or None; a released address is reused as late as possible."""
    span = LAST_POD_HOST - FIRST_POD_HOST + 1
    for step in range(span):
        host = FIRST_POD_HOST + (last - FIRST_POD_HOST + 1 + step) % span
        if host not in used:
            return host
    return None
