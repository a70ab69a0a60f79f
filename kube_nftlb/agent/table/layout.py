"""The names in the agent table, ``inet kube-nftlb``, and the elements that farms add to its maps and sets. No I/O."""

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kube_nftlb.api.base import Family
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.netfilter.table_text import Contents, Element, TableFamily

TABLE = "kube-nftlb"

TABLE_FAMILY: Final[Mapping[Family, TableFamily]] = {"ipv4": "ip", "ipv6": "ip6"}
"""The nftables family of a farm."""

_PROTOCOLS: Final[Mapping[str, Protocol]] = {"tcp": "TCP", "udp": "UDP", "sctp": "SCTP"}

NO_ENDPOINTS = "no-endpoints"
"""The maps from a listener to the verdict on its new connections; each exists once per family, see ``listener``."""

GIVEN_UP = "given-up"
"""The sets of listeners at which nftlb may have a farm that it is not to serve there; see ``unserved``."""

POLICY = "policy"
"""The maps from a listener to the chain that admits clients of new connections, or not (``policies``)."""
DENIED, ALLOWED = "denied", "allowed"
"""The sets of the clients that a policy denies, and that it allows."""
NOT_ALLOWED = "not-allowed"
"""The chains for the others."""
ALONE = "alone"
"""The chains for the clients of farms that have one policy."""

REFUSE = "goto refuse"
"""The verdict for a connection that nobody would answer: a TCP reset, or ICMP port unreachable."""

DROP = "drop"
"""The verdict for a connection that clients should retry elsewhere."""

SOURCE_RANGES = "source-ranges"
"""The maps from a listener to the chain that admits connections from some ranges."""

MASQUERADE = "masquerade"
"""The maps from a listener to the clients to masquerade: ALWAYS, FROM_OUTSIDE or FROM_ITSELF."""
ALWAYS = "masquerade-always"
FROM_OUTSIDE = "masquerade-from-outside"
"""All but this node's pods: those whose answers would take another route."""
FROM_ITSELF = "masquerade-from-itself"
"""The node's own processes."""

HAIRPIN = "hairpin"
"""The sets of a backend's address twice, as client and as backend: it would never see an answer to itself."""
LOCAL_PODS = "local-pods"
"""The sets of the ranges of this node's pods."""
SERVICE_RANGES = "service-ranges"
"""The sets of the cluster's ranges for Services."""

CUT = "cut"
"""The maps from a listener to the verdict on TCP connections that the node does not know, as it has cut them."""

LISTENERS = "listeners"
"""The sets of all listeners but those that are endpoints of their own farms, where nothing is translated."""
SERVED_ADDRESSES = "served-addresses"
"""The sets of the addresses of farms that may be those of pools."""
ANSWERED_HERE = "answered-here"
"""The sets of those whose connections the node itself answers, untranslated."""
NOT_FROM_NODE = "not-from-node"
"""The sets of those at which the node's own processes are not served, or not translated."""

CONNECTIONS = "connections"
"""The maps from a listener to the chain for each new incoming connection."""
RESETS = "resets"
"""The same for each TCP reset of a client."""
INVALIDS = "invalids"
"""The same for each packet that belongs to no connection and opens none."""
FORWARDED = "forwarded"
"""The same for each new connection that is forwarded."""
QUEUES = "queues"
"""The maps from a listener to the netfilter queue that inspects what opens a connection."""
LEAVING = "leaving"
"""The same for each new connection as it leaves the node."""
SOURCES = "sources"
"""The maps from a listener to the address that its connections' source is translated to."""
BACKEND_SOURCES = "backend-sources"
"""The same for a listener and the address of a backend."""

MARKS = "marks"
"""The maps from a listener to the mark of its connections, for engines that do not set it."""
BACKEND_MARKS = "backend-marks"
"""The same for a listener and the address of a backend."""
MARKED = "marked"
"""The sets of listeners whose packets get the mark of their connection."""

ENVIRONMENT = "environment:"
"""The owner of the sets about the node and the cluster; no farm's name has a colon."""
POOL_RANGES = "pool-ranges"
"""The sets of the addresses of pools, which only Services can have."""
POOLS = "pools:"
"""The owner of these."""
EARLIER = "earlier:rules"
"""The owner of the listeners that are given up, and of whose farms only nftlb knows, while it is away."""


def table_family(ip: str) -> str:
    """Return the name of an address's family in nft(8)."""
    return "ip6" if ipaddress.ip_address(ip).version == 6 else "ip"


def listener(name: str, to: Listener, value: str = "") -> Element:
    """Return an element of a map keyed by protocol, address and port, or by the address alone."""
    family = table_family(to.ip)
    if to.protocol == "All":
        return Element(f"{name}-all-{family}", to.ip, value)
    return Element(f"{name}-{family}", f"{to.protocol.lower()} . {to.ip} . {to.port}", value)


def of_listener(entry: Element) -> Listener | None:
    """Return the listener that an element is for, or None: the inverse of ``listener``."""
    parts = entry.key.split(" . ")
    if entry.set.rpartition("-")[0].endswith("-all"):
        return Listener(parts[0], "All", ALL_PORTS)
    if (protocol := _PROTOCOLS.get(parts[0])) is None:
        return None
    return Listener(parts[1], protocol, int(parts[2]))


def listeners(contents: Contents) -> frozenset[Listener]:
    """Return the listeners that contents have elements for."""
    return frozenset(of for each in contents.elements if (of := of_listener(each)) is not None)


def without(contents: Contents, is_taken: Callable[[Listener], bool]) -> Contents:
    """Return contents without the elements for the listeners that are taken, unless these are given up."""
    elements = (
        each
        for each in contents.elements
        if each.set.startswith(GIVEN_UP) or (of := of_listener(each)) is None or not is_taken(of)
    )
    return Contents(frozenset(elements), contents.chains, contents.sets)


def served_address(ip: str) -> Element:
    """Return the element for an address that a farm has."""
    return Element(f"{SERVED_ADDRESSES}-{table_family(ip)}", ip)


def hairpin(ip: str) -> Element:
    """Return the element that masquerades a backend when it is its own client."""
    return Element(f"{HAIRPIN}-{table_family(ip)}", f"{ip} . {ip}")


def from_local_pods(family: TableFamily) -> str:
    """Return the match for packets from this node's pods."""
    return f"{family} saddr @{LOCAL_PODS}-{family}"


def refused(listeners: Iterable[Listener]) -> Contents:
    """Return what refuses new connections to these listeners."""
    return Contents(frozenset(listener(NO_ENDPOINTS, each, REFUSE) for each in listeners))


def given_up(listeners: Iterable[Listener]) -> Contents:
    """Return what refuses new connections to these listeners unless the engine nftables serves them."""
    return Contents(frozenset(listener(GIVEN_UP, each) for each in listeners))
