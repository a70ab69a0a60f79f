"""The kernel's table of connections, where nftlb leaves something behind in it (netlink, conntrack(8)).

Attributes are named as in linux/netfilter/nfnetlink_conntrack.h, flags as in nf_conntrack_common.h.
"""

import ipaddress
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple, Self

from kube_nftlb import metrics
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import Change, NetfilterSocket
from kube_nftlb.nftlb import objects

_TUPLE_ORIGINAL, _TUPLE_REPLY, _MARK, _ZONE, _MARK_MASK, _FILTER, _STATUS_MASK = 1, 2, 8, 18, 21, 25, 26
_STATUS = 3
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_PROTOCOL_NUMBER, _PROTOCOL_TO_PORT = 1, 3
_FILTER_ORIGINAL_FLAGS = 1
_FLAG_TO_ADDRESS, _FLAG_PROTOCOL, _FLAG_TO_PORT = 1 << 1, 1 << 3, 1 << 5
_STATUS_DESTINATION_TRANSLATED = 1 << 5

_FROM_ADDRESS = {"ip": 1, "ip6": 3}
_TO_ADDRESS = {"ip": 2, "ip6": 4}
_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}
_NUMBER = struct.Struct(">I")
_PORT = struct.Struct(">H")

_LISTENERS_MAX = 8


class Connection(NamedTuple):
    """An entry of the table: what the client asked for, who answers it, and the backend's part of its mark.

    Addresses are as the kernel has them; ``key`` is what it knows the connection by.
    """

    ip: bytes
    protocol: int
    port: int
    answerer: bytes
    mark: int
    key: bytes


_Listener = tuple[bytes, int, int]
"""Address, protocol and port, which is 0 for all."""


class Conntrack:
    """This network namespace's connections. Use ``Conntrack.open``."""

    def __init__(self, netfilter: NetfilterSocket) -> None:
        self._netfilter = netfilter

    @classmethod
    async def open(cls) -> Self:
        """Open the socket, in the running event loop."""
        return cls(NetfilterSocket.open())

    def close(self) -> None:
        """Close the socket."""
        self._netfilter.close()

    async def release(self, farm: objects.Farm, marks: set[int]) -> int:
        """Part a farm's connections from backends that are gone, known by their marks; how many that were.

        A UDP flow is forgotten: a client that keeps its port would be sent to the old backend for ever. Any other
        connection goes on, but without its mark: with it, each packet would renew the session that leads there.
        """
        marked = b""
        if len(marks) == 1:
            (mark,) = marks
            marked = netlink.attribute(_MARK, _NUMBER.pack(mark))
            marked += netlink.attribute(_MARK_MASK, _NUMBER.pack(objects.MARK_LAST))
        released = await self._change(farm, lambda each: each.mark in marks, _released, marked)
        return _counted("BackendGone", released)

    async def cut(self, farm: objects.Farm, addresses: frozenset[str]) -> int:
        """Forget a farm's connections to these addresses; how many that were. Their next packet is refused or reset."""
        if not addresses:
            return 0
        backends = {_packed(address) for address in addresses}
        ended = await self._change(farm, lambda each: each.answerer in backends, _forgotten)
        return _counted("BackendDown", ended)

    async def forget_untranslated(self, farm: objects.Farm) -> int:
        """Forget connections to a farm from before it was there; how many that were.

        What the kernel once let pass as it was it never translates. Marks prove nothing: it may have got one since.
        """
        ips = {_packed(address.ip) for address in farm.addresses.values()}
        untranslated = netlink.attribute(_STATUS, _NUMBER.pack(0)) + netlink.attribute(
            _STATUS_MASK, _NUMBER.pack(_STATUS_DESTINATION_TRANSLATED)
        )
        forgotten = await self._change(farm, lambda each: each.answerer in ips, _forgotten, untranslated)
        return _counted("Untranslated", forgotten)

    async def _change(
        self,
        farm: objects.Farm,
        chosen: Callable[[Connection], bool],
        change: Callable[[Connection], Change],
        narrowed: bytes = b"",
    ) -> int:
        """Change those of a farm's connections that are chosen; how many that were.

        ``narrowed`` is a filter that lets all of them through. An old kernel may not know it: ``chosen`` has the last
        word.
        """
        family = "ip6" if farm.ipv6 else "ip"
        ips = {address.ip: _packed(address.ip) for address in farm.addresses.values()}
        listeners: set[_Listener] = {
            (ips[claim.ip], _PROTOCOLS[protocol], claim.port)
            for claim in farm.claims()
            for protocol in objects.PROTOCOLS[claim.protocol]
        }
        found = [
            each
            for answer in await self._netfilter.ask(
                family, netlink.GET_CONNECTIONS, _question(family, listeners, narrowed), dump=True
            )
            if (each := _connection(family, answer))
            and chosen(each)
            and not listeners.isdisjoint((each.ip, each.protocol, port) for port in (each.port, 0))
        ]
        return await self._netfilter.change(family, [change(each) for each in found])


def _question(family: str, listeners: set[_Listener], narrowed: bytes) -> bytes:
    """What the kernel is asked. It walks through its whole table for each question, so there is but one."""
    asked = {_to(family, *listener) for listener in listeners} if len(listeners) <= _LISTENERS_MAX else set()
    return (asked.pop() if len(asked) == 1 else b"") + narrowed


def _to(family: str, ip: bytes, protocol: int, port: int) -> bytes:
    """A filter for connections to a listener; without its address with IPv6, of which the kernel would tell nothing."""
    parts, flags = b"", _FLAG_PROTOCOL
    if family == "ip":
        parts = netlink.attribute(_TUPLE_IP, netlink.attribute(_TO_ADDRESS[family], ip), nested=True)
        flags |= _FLAG_TO_ADDRESS
    asked = netlink.attribute(_PROTOCOL_NUMBER, bytes([protocol]))
    if port:
        asked += netlink.attribute(_PROTOCOL_TO_PORT, _PORT.pack(port))
        flags |= _FLAG_TO_PORT
    parts += netlink.attribute(_TUPLE_PROTOCOL, asked, nested=True)
    flagged = netlink.attribute(_FILTER_ORIGINAL_FLAGS, struct.pack("=I", flags))
    return netlink.attribute(_TUPLE_ORIGINAL, parts, nested=True) + netlink.attribute(_FILTER, flagged, nested=True)


def _connection(family: str, answer: bytes) -> Connection | None:
    """A connection with ports, as the kernel tells it."""
    told = dict(netlink.attributes(answer))
    asked, answered = told.get(_TUPLE_ORIGINAL, b""), told.get(_TUPLE_REPLY, b"")
    ip = netlink.find(asked, _TUPLE_IP, _TO_ADDRESS[family])
    protocol = netlink.find(asked, _TUPLE_PROTOCOL, _PROTOCOL_NUMBER)
    port = netlink.find(asked, _TUPLE_PROTOCOL, _PROTOCOL_TO_PORT)
    answerer = netlink.find(answered, _TUPLE_IP, _FROM_ADDRESS[family])
    if not (ip and protocol and port and answerer):
        return None
    key = netlink.attribute(_TUPLE_ORIGINAL, asked, nested=True)
    if (zone := told.get(_ZONE)) is not None:
        key += netlink.attribute(_ZONE, zone)
    mark = int.from_bytes(told.get(_MARK, b""), "big") & objects.MARK_LAST
    return Connection(ip, protocol[0], int.from_bytes(port, "big"), answerer, mark, key)


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def _released(connection: Connection) -> Change:
    if connection.protocol == socket.IPPROTO_UDP:
        return _forgotten(connection)
    unmarked = netlink.attribute(_MARK, _NUMBER.pack(0))
    return Change(netlink.SET_CONNECTION, connection.key + unmarked)


def _forgotten(connection: Connection) -> Change:
    return Change(netlink.DELETE_CONNECTION, connection.key)


def _counted(reason: str, connections: int) -> int:
    metrics.STALE_CONNECTIONS_REMOVED.labels(reason).inc(connections)
    return connections
