"""Entries of the connection tracking table, as a dump or an event has them. Pure.

The parts of a tuple are read at fixed places: the kernel writes them in one order (ctnetlink_dump_tuples), and a
node may have hundreds of thousands of entries. Attributes are named as in linux/netfilter/nfnetlink_conntrack.h.
"""

import ipaddress
import struct
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.translated import DESTINATION_TRANSLATED, STATUS

NEW: Final = 1 << 8 | 0
"""The type of an event of a new connection, and of an entry in a dump."""
ENDED: Final = 1 << 8 | 2
_TCP: Final = 6
PROTOCOLS: Final = {_TCP: "TCP", 17: "UDP", 132: "SCTP"}
"""By their numbers (IANA)."""

_ORIGINAL, _REPLY, _PROTOCOL_INFO, _SENT, _ANSWERED, _IDENTITY = 1, 2, 4, 9, 10, 12
_BYTES: Final = 2
_TCP_STATE: Final = slice(8, 9)
"""Position of the state in CTA_PROTOINFO: behind the header of CTA_PROTOINFO_TCP and that of the state."""
_TCP_OPEN: Final = range(1, 7)
"""The states SYN_SENT, SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT and LAST_ACK (nf_conntrack_tcp.h)."""
_MESSAGE: Final = struct.Struct("=IHHII")
_NFNETLINK_BYTES: Final = 4


class _Layout(NamedTuple):
    """The positions of the parts of a tuple."""

    source: slice
    destination: slice
    protocol: slice
    source_port: slice
    destination_port: slice


def _layout(ip: int) -> _Layout:
    # Headers of 4 bytes each: CTA_TUPLE_IP, source, destination, CTA_TUPLE_PROTO, number, two ports.
    second = 8 + ip + 4
    number = second + ip + 8
    return _Layout(
        slice(8, 8 + ip),
        slice(second, second + ip),
        slice(number, number + 1),
        slice(number + 8, number + 10),
        slice(number + 16, number + 18),
    )


_LAYOUTS: Final = {20: _layout(4), 44: _layout(16)}
"""By the length of CTA_TUPLE_IP."""


class Entry(NamedTuple):
    """A translated connection."""

    identity: int
    flow: bytes
    """The fields of ``Flow``, packed: it is the key of hundreds of thousands of connections."""
    is_open: bool
    sent: int
    """Bytes from the client."""
    answered: int
    """Bytes from the backend."""


class Flow(NamedTuple):
    """A listener, and the backend that answers there."""

    protocol: str
    ip: str
    port: int
    backend_ip: str
    backend_port: int


def messages(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the type of each message of a datagram, and where its attributes begin and end."""
    position, end = 0, len(data)
    while position + _MESSAGE.size <= end:
        length, kind, _, _, _ = _MESSAGE.unpack_from(data, position)
        if length < _MESSAGE.size:
            return
        yield kind, position + _MESSAGE.size + _NFNETLINK_BYTES, min(position + length, end)
        position += (length + 3) & ~3


def entry(data: bytes, start: int, end: int) -> Entry | None:
    """Return the connection in these attributes; None if it is not translated, or without ports."""
    told = dict(netlink.attributes(data[start:end]))
    original = told.get(_ORIGINAL, b"")
    translated = int.from_bytes(told.get(STATUS, b""), "big") & DESTINATION_TRANSLATED
    if not translated or not (flow := _flow(original, told.get(_REPLY, b""))):
        return None
    state = told.get(_PROTOCOL_INFO, b"")[_TCP_STATE]
    is_open = not state or flow[0] != _TCP or state[0] in _TCP_OPEN
    # The kernel's number alone, of 32 bits, is not unique among so many.
    identity = hash((told.get(_IDENTITY), original))
    return Entry(identity, flow, is_open, _bytes(told.get(_SENT, b"")), _bytes(told.get(_ANSWERED, b"")))


def unpacked(flow: bytes) -> Flow:
    """Return a flow as text and numbers."""
    size = (len(flow) - 5) // 2
    ip, port = flow[1 : 1 + size], flow[1 + size : 3 + size]
    backend, backend_port = flow[3 + size : 3 + 2 * size], flow[3 + 2 * size :]
    return Flow(
        PROTOCOLS[flow[0]],
        str(ipaddress.ip_address(ip)),
        int.from_bytes(port, "big"),
        str(ipaddress.ip_address(backend)),
        int.from_bytes(backend_port, "big"),
    )


def _flow(original: bytes, reply: bytes) -> bytes:
    """Return protocol, destination and who answers; empty if there are no ports."""
    asked, answers = _layout_of(original), _layout_of(reply)
    if asked is None or answers is None:
        return b""
    protocol = original[asked.protocol]
    if protocol[0] not in PROTOCOLS:
        return b""
    listener = protocol + original[asked.destination] + original[asked.destination_port]
    return listener + reply[answers.source] + reply[answers.source_port]


def _layout_of(tuple_: bytes) -> _Layout | None:
    layout = _LAYOUTS.get(int.from_bytes(tuple_[:2], sys.byteorder))
    return layout if layout is not None and len(tuple_) >= layout.destination_port.stop else None


def _bytes(counters: bytes) -> int:
    return int.from_bytes(netlink.find(counters, _BYTES) or b"", "big")
