"""The names in the table ``inet kube-nftlb-services``, and the keys and data of its elements. Pure: no I/O."""

import functools
import ipaddress
import struct
from typing import Literal, NamedTuple

from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.table_text import FAMILIES as FAMILIES
from kube_nftlb.netfilter.table_text import TableFamily as TableFamily

TABLE = "kube-nftlb-services"

SERVICES = "services"
"""The maps from a listener to the chain that chooses among its endpoints, knows its clients, refuses or drops.

Each map of listeners exists four times: for a protocol and port, or for all of an address (``-all``), in both families.
"""
INSIDE, OUTSIDE = "inside", "outside"
"""The same for listeners that serve clients of this node otherwise than others."""
ENDPOINTS = "endpoints"
"""The maps from a listener and a number to an endpoint; and the chains that send a packet there, by its priority."""
STICKY = "sticky"
"""The maps from a listener to the number of its farm, which remembers clients."""
STICKY_ENDPOINTS = "sticky-endpoints"
"""The maps from a listener and the number of an endpoint, which it keeps for life, to the endpoint.

The chains of this name send a packet there, by its priority.
"""
CHOICES = "choices"
"""The maps from a listener to the chain that chooses for a client that is not remembered."""
PICKS = "picks"
"""The maps from a listener and a number to the number of an endpoint that may be chosen.

The chains of this name replace the former, as the priority of a packet, by the latter, and let the packet come back.
"""
MEMORIES = "memories"
"""The maps from a listener to the chain that remembers the endpoint that was chosen, and sends the connection there."""
SHARES = "shares"
"""The maps from a listener and a number to the group that is drawn with it (``group_code``)."""
AFFINITY = "affinity"
"""The maps of a namespace from the number of a farm and a client to the number of its endpoint; packets fill them."""
SESSIONS = "sessions"
"""The same for the fixed sessions of farms."""
MASQUERADE = "masquerade"
"""The maps from a listener to the chain that decides who is masqueraded."""
HAIRPIN = "hairpin"
"""The sets of a backend's address twice, as client and as backend."""
NOT_FROM_NODE = "not-from-node"
"""The sets of listeners that do not serve the node itself."""
LOCAL_PODS = "local-pods"
"""The sets of the ranges of this node's pods."""

REFUSE = "refuse"
DROP = ""
"""Stands for the verdict, where others name a chain."""
BY_CLIENT = "by-client"
"""The chains that tell clients of this node from others, and let the packet come back."""

_INSIDE_STEP = 1 << 24
"""The difference between the first numbers of the endpoints for clients of this node, where these get others, and for
others.
"""
_GROUP_STEP = 1 << 20
"""The difference between the first numbers of the endpoints of two groups."""
FIRST_MASK = 0xFFFFFFFF ^ (_GROUP_STEP - 1)
"""The bits of the number of an endpoint that are those of the first number of its group."""
_ENDPOINT_BITS = 15
ENDPOINT_MASK = (1 << _ENDPOINT_BITS) - 1
"""The bits of an endpoint's number within its farm, which is at least 1 (``ENDPOINTS_MAX`` is less)."""
NUMBER_MARK = 1 << 31
"""Tells the numbers of farms and of endpoints from what else may be the priority of a packet.

As the major number of a traffic class it would be one of those that tc(8) gives to queueing disciplines by itself.
"""
GROUP_MARK = 3 << _ENDPOINT_BITS - 2
"""Tells groups from endpoints, which have lower numbers."""
FARM_MASK = 0xFFFFFFFF ^ ENDPOINT_MASK
FARMS_MAX = (NUMBER_MARK >> _ENDPOINT_BITS) - 3
"""The maximum number of farms that remember clients."""
FROM_INSIDE, FROM_OUTSIDE = (NUMBER_MARK | FARMS_MAX + each << _ENDPOINT_BITS for each in (1, 2))
"""Stand where the number of a farm would be: the client is one of this node, or not. No farm has them."""

AFFINITY_MAX = 0xFFFF
"""The maximum number of clients that are remembered in each namespace and family: the kernel's, without a size.

With one, it would allocate the table of buckets for all of them at once, 1 MiB for each namespace.
"""

_PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_PROTOCOL_NAMES: dict[int, Literal["TCP", "UDP", "SCTP"]] = {6: "TCP", 17: "UDP", 132: "SCTP"}
_LISTENER = {"ip": struct.Struct(">B3x4sH2x"), "ip6": struct.Struct(">B3x16sH2x")}
_ENDPOINT = {"ip": struct.Struct(">4sH2x"), "ip6": struct.Struct(">16sH2x")}
NUMBER = struct.Struct("=I")
ADDRESS_BYTES = {"ip": 4, "ip6": 16}


class Target(NamedTuple):
    """The address of an endpoint, and its port or 0 if connections keep theirs."""

    ip: bytes
    port: int


def key_bytes(family: TableFamily, *, all_ports: bool) -> int:
    """Return the length of a listener's key."""
    return ADDRESS_BYTES[family] if all_ports else _LISTENER[family].size


@functools.lru_cache(maxsize=65536)
def packed(ip: str) -> bytes:
    """Return an address as the kernel has it."""
    return ipaddress.ip_address(ip).packed


def target(ip: str, port: int | None) -> Target:
    """Return where an endpoint is. Farms with the same endpoints share it."""
    return shared_target(Target(packed(ip), port or 0))


@functools.lru_cache(maxsize=65536)
def shared_target(to: Target) -> Target:
    """Return an endpoint that equals this one, and is the same object for all farms that have it."""
    return to


def listener_key(listener: Listener) -> bytes:
    """Return the key of a listener: protocol, address and port, or the address alone."""
    ip = packed(listener.ip)
    if listener.protocol == "All":
        return ip
    family = "ip" if len(ip) == ADDRESS_BYTES["ip"] else "ip6"
    return _LISTENER[family].pack(_PROTOCOLS[listener.protocol], ip, listener.port)


def listener(family: TableFamily, key: bytes) -> Listener:
    """Return the listener that a key stands for."""
    if len(key) == ADDRESS_BYTES[family]:
        return Listener(str(ipaddress.ip_address(key)), "All", ALL_PORTS)
    protocol, ip, port = _LISTENER[family].unpack(key)
    return Listener(str(ipaddress.ip_address(ip)), _PROTOCOL_NAMES[protocol], port)


def endpoint_value(family: TableFamily, to: Target, port: int) -> bytes:
    """Return the data of an endpoint for a listener on a port, or on all with 0."""
    return messages.value(_ENDPOINT[family].pack(to.ip, to.port or port) if port else to.ip)


def read_endpoint(family: TableFamily, value: bytes) -> Target:
    """Return the endpoint in the data of an element."""
    if len(value) == ADDRESS_BYTES[family]:
        return Target(value, 0)
    return Target(*_ENDPOINT[family].unpack(value))


def farm_number(ordinal: int) -> int:
    """Return the number that packets carry for a farm, from 1 to ``FARMS_MAX``."""
    return NUMBER_MARK | ordinal << _ENDPOINT_BITS


def group_code(farm: int, group: int) -> int:
    """Return what packets carry for a group, in place of the number of an endpoint, of the farm with a number or 0."""
    return farm | GROUP_MARK | group


def group_of(code: int) -> int:
    """Return the group of which ``group_code`` made this number."""
    return code & ENDPOINT_MASK ^ GROUP_MARK


def first_number(group: int = 0, *, inside: bool = False) -> int:
    """Return the first number of the endpoints of a group, or of a farm without groups."""
    return NUMBER_MARK + (_INSIDE_STEP if inside else 0) + group * _GROUP_STEP


def ordinal(farm: int) -> int:
    """Return what ``farm_number`` made this number of."""
    return (farm ^ NUMBER_MARK) >> _ENDPOINT_BITS


def affinity_map(family: TableFamily, namespace: str) -> str:
    """Return the name of the map of the clients that the farms of a namespace remember."""
    return f"{AFFINITY}-{family}/{namespace}"


def name(map_: str, family: TableFamily, *, all_ports: bool = False) -> str:
    """Return the name of a map or set for one family."""
    return f"{map_}-all-{family}" if all_ports else f"{map_}-{family}"
