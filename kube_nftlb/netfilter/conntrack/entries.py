"""Entries of the connection tracking table, as a dump or an event has them. Pure.

The parts of a tuple are read at fixed places: the kernel writes them in one order (ctnetlink_dump_tuples), and a
node may have hundreds of thousands of entries. Attributes are named as in linux/netfilter/nfnetlink_conntrack.h, flags
as in nf_conntrack_common.h, states as in nf_conntrack_tcp.h.
"""

import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from kube_nftlb.netfilter import netlink

TCP, UDP, SCTP = 6, 17, 132
"""By their numbers (IANA); entries of other protocols are skipped."""

STATUS: Final = 3
DESTINATION_TRANSLATED: Final = 1 << 5
SEEN_REPLY: Final = 1 << 1

_NEW, _ENDED = 1 << 8 | 0, 1 << 8 | 2
"""NFNL_SUBSYS_CTNETLINK with IPCTNL_MSG_CT_NEW, as in dumps too, and IPCTNL_MSG_CT_DELETE."""
_PROTOCOL_INFO, _MARK, _SENT, _ANSWERED, _NUMBER, _ZONE = 4, 8, 9, 10, 12, 18
_BYTES: Final = 2
_TCP_STATE: Final = slice(8, 9)
"""Position of the state in CTA_PROTOINFO: behind the header of CTA_PROTOINFO_TCP and that of the state."""
_OPEN: Final = range(1, 7)
"""The states SYN_SENT, SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT and LAST_ACK."""
_CONNECTED: Final = range(2, 7)

_LENGTH: Final = struct.Struct("=H")
# Behind the headers of the tuple, of CTA_TUPLE_IP and of each part: source, destination, protocol and the two ports.
_TUPLES: Final = {2: struct.Struct(">12x4s4x4s8xB7xH6xH"), 10: struct.Struct(">12x16s4x16s8xB7xH6xH")}

Endpoint = tuple[bytes, int]
"""An address as the kernel has it, and a port."""


class Entry(NamedTuple):
    """A connection."""

    protocol: int
    client: Endpoint
    server: Endpoint
    """The destination that the client asked for."""
    answerer: Endpoint
    """Who answers there."""
    status: int
    tcp_state: int | None
    mark: int
    sent: int
    """Bytes from the client."""
    answered: int
    """Bytes from who answers."""
    number: bytes
    zone: bytes
    original: bytes
    """The attribute CTA_TUPLE_ORIG."""
    reply: bytes
    ended: bool
    """True if an event tells that it has ended."""

    @property
    def is_translated(self) -> bool:
        """True if its destination is: also where an address of the node itself answers."""
        return bool(self.status & DESTINATION_TRANSLATED)

    @property
    def has_reply(self) -> bool:
        """True once there was a packet from the other side."""
        return bool(self.status & SEEN_REPLY)

    @property
    def is_open(self) -> bool:
        """False for TCP that has ended. Other protocols are open until conntrack forgets them."""
        return self.tcp_state is None or self.tcp_state in _OPEN

    @property
    def is_connected(self) -> bool:
        """True for TCP whose client may be connected: it neither tries to only, nor has it ended."""
        return self.tcp_state is not None and self.tcp_state in _CONNECTED

    @property
    def identity(self) -> int:
        """A number; the kernel's alone, of 32 bits, is not unique among so many."""
        return hash((self.number, self.original))

    @property
    def key(self) -> bytes:
        """The attributes by which the kernel finds this entry and no other.

        By its replies, which a later connection of the same client to another endpoint does not share: its number alone
        does not tell them apart, as the kernel makes it of the addresses and of the memory that it may use again.
        """
        more = ((_ZONE, self.zone), (_NUMBER, self.number))
        return self.reply + b"".join(netlink.attribute(kind, value) for kind, value in more if value)


def entries(data: bytes, to: Collection[bytes] | None = None) -> Iterator[Entry]:
    """Yield the connections in a datagram of a dump or of events; with ``to`` those to these addresses."""
    for kind, _, _, start, end in netlink.parts(data):
        if kind not in (_NEW, _ENDED) or start == end:
            continue
        if (found := entry(data[start], data, start + netlink.NFNETLINK_BYTES, end, to)) is not None:
            yield found._replace(ended=True) if kind == _ENDED else found


def entry(family: int, data: bytes, start: int, end: int, to: Collection[bytes] | None = None) -> Entry | None:
    """Return the connection of a family in these attributes; None if it has no ports, or is not ``to`` an address."""
    layout = _TUPLES.get(family)
    if layout is None or start + layout.size > end:
        return None
    client, server, protocol, client_port, port = layout.unpack_from(data, start)
    if protocol not in (TCP, UDP, SCTP) or (to is not None and server not in to):
        return None
    second = start + _padded(data, start)
    if second + layout.size > end:
        return None
    answerer, _, _, answerer_port, _ = layout.unpack_from(data, second)
    third = second + _padded(data, second)
    attributes = dict(netlink.attributes(data[third:end]))
    state = attributes.get(_PROTOCOL_INFO, b"")[_TCP_STATE] if protocol == TCP else b""
    return Entry(
        protocol,
        (client, client_port),
        (server, port),
        (answerer, answerer_port),
        int.from_bytes(attributes.get(STATUS, b""), "big"),
        state[0] if state else None,
        int.from_bytes(attributes.get(_MARK, b""), "big"),
        _bytes(attributes.get(_SENT, b"")),
        _bytes(attributes.get(_ANSWERED, b"")),
        attributes.get(_NUMBER, b""),
        attributes.get(_ZONE, b""),
        data[start:second],
        data[second:third],
        ended=False,
    )


def _padded(data: bytes, position: int) -> int:
    """Return the bytes that the attribute at a position takes."""
    length: int = _LENGTH.unpack_from(data, position)[0]
    return (length + 3) & ~3


def _bytes(counters: bytes) -> int:
    return int.from_bytes(netlink.find(counters, _BYTES) or b"", "big")
