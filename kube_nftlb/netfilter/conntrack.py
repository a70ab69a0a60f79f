"""Stale entries of the kernel's connection tracking table, found and removed over netlink (see conntrack(8)).

Written by hand upon ``netlink``: pyroute2's conntrack reader decodes every entry into Python objects, and cannot filter
in the kernel by listener and mark. Attributes are named as in linux/netfilter/nfnetlink_conntrack.h, flags as in
nf_conntrack_common.h.
"""

import asyncio
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self

from kube_nftlb import metrics
from kube_nftlb.netfilter import dump, netlink
from kube_nftlb.netfilter.netlink import Change, NetfilterSocket
from kube_nftlb.netfilter.translated import DESTINATION_TRANSLATED, STATUS, TRANSLATED, UNTRANSLATED

_TUPLE_ORIGINAL, _TUPLE_REPLY, _MARK, _ZONE, _MARK_MASK, _FILTER = 1, 2, 8, 18, 21, 25
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_PROTOCOL_NUMBER, _PROTOCOL_FROM_PORT, _PROTOCOL_TO_PORT = 1, 2, 3
_FILTER_ORIGINAL_FLAGS = 1
_FLAG_TO_ADDRESS, _FLAG_PROTOCOL, _FLAG_TO_PORT = 1 << 1, 1 << 3, 1 << 5
_STATUS_REPLIED = 1 << 1

_FROM_ADDRESS = {"ip": 1, "ip6": 3}
_TO_ADDRESS = {"ip": 2, "ip6": 4}
_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}
_NUMBER = struct.Struct(">I")
_PORT = struct.Struct(">H")

_LISTENERS_MAX = 8
"""For more listeners the whole table is read once; for fewer the kernel picks out what concerns each."""
_SEARCHED_MAX = 32
"""Maximum number of addresses that a datagram is searched for: it costs less than to parse it."""
_ANSWER = 1 << 8 | 0  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW
_IPV4_BYTES = 4


class Connection(NamedTuple):
    """An entry of the table: the original destination, who answers at which port, and the mark.

    Addresses are as the kernel has them; ``key`` identifies the connection.
    """

    ip: bytes
    protocol: int
    port: int
    answerer: bytes
    answerer_port: int
    mark: int
    replied: bool
    translated: bool
    """True if its destination is: also where an address of the node itself answers."""
    key: bytes


class Destination(NamedTuple):
    """A destination of clients. The protocol is tcp, udp or sctp; the port is 0 for all."""

    ip: str
    protocol: str
    port: int


_Packed = tuple[bytes, int, int]


class Stale(NamedTuple):
    """What of the connections to some destinations is to be forgotten."""

    to: Collection[Destination]
    kept: Collection[tuple[bytes, int]]
    """Translated UDP flows that others than these addresses and ports answer are; port 0 stands for all."""
    begun: bool = False
    """If True, UDP flows from before anything was served are, too."""
    cut: frozenset[str] = frozenset()
    """So are all connections that these addresses answer."""


class Connections(Protocol):
    """Removes stale connections to destinations of one address family. Each method returns the number removed."""

    async def release(self, to: Collection[Destination], marks: set[int]) -> int:
        """Release connections from backends that are gone, identified by marks.

        A UDP flow is forgotten: a client that keeps its port would be sent to the old backend for ever. Any other
        connection goes on, but without its mark: with it, each packet would renew the session that leads there.
        """

    async def cut(self, to: Collection[Destination], addresses: frozenset[str]) -> int:
        """Forget connections to backends with these addresses. Their next packet is refused or reset."""

    async def forget(self, stale: Sequence[Stale]) -> int:
        """Forget what is stale, of both families. Of two that have a destination, the later counts."""

    async def forget_untranslated(self, to: Collection[Destination]) -> int:
        """Forget UDP flows, and other connections without a reply, from before anything was served.

        The kernel never translates a connection that it once let pass. A mark proves nothing: it may be newer.
        """


class _Wanted(NamedTuple):
    """What is stale of the connections to a destination."""

    kept: Collection[tuple[bytes, int]]
    begun: bool
    cut: Collection[bytes]

    def reason(self, each: Connection) -> str | None:
        """Return why a connection is to be forgotten, or None."""
        if each.answerer in self.cut:
            return "BackendDown"
        if each.protocol != socket.IPPROTO_UDP:
            return None
        if not each.translated:
            return "Untranslated" if self.begun else None
        kept = (each.answerer, each.answerer_port) in self.kept or (each.answerer, 0) in self.kept
        return None if kept else "BackendGone"


class Conntrack:
    """This network namespace's connections. Use ``Conntrack.open``. ``mark_mask`` are the bits that tell backends."""

    def __init__(self, netfilter: NetfilterSocket, mark_mask: int) -> None:
        self._netfilter = netfilter
        self._mark_mask: Final = mark_mask

    @classmethod
    async def open(cls, mark_mask: int) -> Self:
        """Open the socket, in the running event loop."""
        return cls(NetfilterSocket.open(), mark_mask)

    def close(self) -> None:
        """Close the socket."""
        self._netfilter.close()

    async def release(self, to: Collection[Destination], marks: set[int]) -> int:
        """See ``Connections.release``."""
        marked = b""
        if len(marks) == 1:
            (mark,) = marks
            marked = netlink.attribute(_MARK, _NUMBER.pack(mark))
            marked += netlink.attribute(_MARK_MASK, _NUMBER.pack(self._mark_mask))
        released = await self._change(to, lambda each: each.mark & self._mark_mask in marks, _released, marked)
        return _counted("BackendGone", released)

    async def cut(self, to: Collection[Destination], addresses: frozenset[str]) -> int:
        """See ``Connections.cut``."""
        if not addresses:
            return 0
        backends = {_packed(address) for address in addresses}
        ended = await self._change(to, lambda each: each.answerer in backends, _forgotten)
        return _counted("BackendDown", ended)

    async def forget(self, stale: Sequence[Stale]) -> int:
        """See ``Connections.forget``."""
        wanted = {family: dict(_wanted(family, stale)) for family in _TO_ADDRESS}
        return sum([await self._forget(family, each) for family, each in wanted.items() if each])

    async def _forget(self, family: str, wanted: Mapping[_Packed, _Wanted]) -> int:
        def reason(each: Connection) -> str | None:
            of = wanted.get((each.ip, each.protocol, each.port)) or wanted[each.ip, each.protocol, 0]
            return of.reason(each)

        only_translated = not any(each.begun or each.cut for each in wanted.values())
        narrowed = TRANSLATED if only_translated else b""
        found = await asyncio.to_thread(_connections, family, wanted, narrowed, lambda each: reason(each) is not None)
        for why, connections in Counter(map(reason, found)).items():
            _counted(str(why), connections)
        return await self._netfilter.change(family, [_forgotten(each) for each in found])

    async def forget_untranslated(self, to: Collection[Destination]) -> int:
        """See ``Connections.forget_untranslated``."""

        def lost(each: Connection) -> bool:
            return not each.translated and (each.protocol == socket.IPPROTO_UDP or not each.replied)

        return _counted("Untranslated", await self._change(to, lost, _forgotten, UNTRANSLATED))

    async def _change(
        self,
        to: Collection[Destination],
        chosen: Callable[[Connection], bool],
        change: Callable[[Connection], Change],
        narrowed: bytes = b"",
    ) -> int:
        """Change the connections that are chosen.

        ``narrowed`` is a filter that all of them pass. An old kernel may ignore it: ``chosen`` decides.
        """
        family = "ip6" if any(":" in each.ip for each in to) else "ip"
        packed = {ip: _packed(ip) for ip in {each.ip for each in to}}
        listeners = {(packed[each.ip], _PROTOCOLS[each.protocol], each.port) for each in to}
        found = await asyncio.to_thread(_connections, family, listeners, narrowed, chosen)
        return await self._netfilter.change(family, [change(each) for each in found])


def _wanted(family: str, stale: Sequence[Stale]) -> Iterator[tuple[_Packed, _Wanted]]:
    for each in stale:
        wanted = _Wanted(each.kept, each.begun, frozenset(map(_packed, each.cut)))
        for to in each.to:
            if (":" in to.ip) == (family == "ip6") and (each.cut or to.protocol == "udp"):
                yield (_packed(to.ip), _PROTOCOLS[to.protocol], to.port), wanted


def _connections(
    family: str, listeners: Collection[_Packed], narrowed: bytes, chosen: Callable[[Connection], bool]
) -> list[Connection]:
    """Return the connections to listeners that are chosen. For a thread: the kernel may have a million others."""
    ips = {ip for ip, _, _ in listeners}
    found: dict[bytes, Connection] = {}
    for question in questions(family, listeners, narrowed):
        for data in dump.datagrams(family, question):
            if len(ips) <= _SEARCHED_MAX and not any(ip in data for ip in ips):
                continue
            for _, answer in netlink.messages(data, _ANSWER):
                if netlink.find(answer, _TUPLE_ORIGINAL, _TUPLE_IP, _TO_ADDRESS[family]) not in ips:
                    continue
                each = _connection(family, answer)
                if each is not None and _is_to(each, listeners) and chosen(each):
                    found[each.key] = each
    return list(found.values())


def _is_to(each: Connection, listeners: Collection[_Packed]) -> bool:
    return (each.ip, each.protocol, each.port) in listeners or (each.ip, each.protocol, 0) in listeners


def questions(family: str, listeners: Collection[_Packed], narrowed: bytes) -> list[bytes]:
    """Return the filters of requests for connections to listeners; they may find others too, all ``narrowed``.

    The kernel walks its whole table for each request, which takes it a tenth of the time to report all of it.
    """
    if len(listeners) > _LISTENERS_MAX:
        return [narrowed]
    return sorted({_to(family, *listener) + narrowed for listener in listeners})


def _to(family: str, ip: bytes, protocol: int, port: int) -> bytes:
    """Return a filter for connections to a listener; without the address for IPv6, which the kernel cannot filter."""
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
    """Parse a connection; None if it has no ports."""
    told = dict(netlink.attributes(answer))
    asked, answered = told.get(_TUPLE_ORIGINAL, b""), told.get(_TUPLE_REPLY, b"")
    ip = netlink.find(asked, _TUPLE_IP, _TO_ADDRESS[family])
    protocol = netlink.find(asked, _TUPLE_PROTOCOL, _PROTOCOL_NUMBER)
    port = netlink.find(asked, _TUPLE_PROTOCOL, _PROTOCOL_TO_PORT)
    answerer = netlink.find(answered, _TUPLE_IP, _FROM_ADDRESS[family])
    answerer_port = netlink.find(answered, _TUPLE_PROTOCOL, _PROTOCOL_FROM_PORT)
    if not (ip and protocol and port and answerer and answerer_port):
        return None
    key = netlink.attribute(_TUPLE_ORIGINAL, asked, nested=True)
    if (zone := told.get(_ZONE)) is not None:
        key += netlink.attribute(_ZONE, zone)
    mark = int.from_bytes(told.get(_MARK, b""), "big")
    status = int.from_bytes(told.get(STATUS, b""), "big")
    replied, translated = bool(status & _STATUS_REPLIED), bool(status & DESTINATION_TRANSLATED)
    to_port, from_port = int.from_bytes(port, "big"), int.from_bytes(answerer_port, "big")
    return Connection(ip, protocol[0], to_port, answerer, from_port, mark, replied, translated, key)


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
