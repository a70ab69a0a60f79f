"""Packets that make a TCP client acknowledge what it has received, whatever that is.

A client that is connected answers a SYN with a challenge ACK, whatever its sequence number (RFC 5961, 4.2). Whoever
resets the connection by that ACK has the number that the client accepts. The packet is the second of a handshake (SYN
and ACK): it opens no connection anywhere, conntrack makes no entry for it, and on a node that masquerades the client it
passes as a reply.
"""

import secrets
import socket
import struct
from typing import Final

from kube_nftlb.netfilter.conntrack.entries import Endpoint

_IPV4_BYTES: Final = 4
_HOP_LIMIT: Final = 64
_SYN_ACK: Final = 0x12
_WORDS: Final = 5
"""Of the header, which has no options."""
_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_IPV6 = struct.Struct(">IHBB16s16s")
_TCP = struct.Struct(">HHIIHHHH")


class Challenger:
    """Sends from this network namespace, with raw sockets that are opened when they are first needed (CAP_NET_RAW)."""

    def __init__(self) -> None:
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}

    def close(self) -> None:
        """Close the sockets."""
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def challenge(self, client: Endpoint, server: Endpoint) -> None:
        """Challenge a client that is connected to a server. Raises OSError."""
        family = socket.AF_INET if len(client[0]) == _IPV4_BYTES else socket.AF_INET6
        if (opened := self._sockets.get(family)) is None:
            # It receives nothing, and takes whole packets, with any source (raw(7)).
            opened = socket.socket(family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW)
            opened.setblocking(False)
            self._sockets[family] = opened
        numbers = secrets.randbits(32), secrets.randbits(32)
        opened.sendto(packet(server, client, *numbers), (socket.inet_ntop(family, client[0]), 0))


def packet(source: Endpoint, destination: Endpoint, sequence: int, acknowledged: int) -> bytes:
    """Return a packet with SYN and ACK, and without data."""
    (from_ip, from_port), (to_ip, to_port) = source, destination

    def segment(checksum: int) -> bytes:
        flags = _WORDS << 12 | _SYN_ACK
        return _TCP.pack(from_port, to_port, sequence, acknowledged, flags, 0xFFFF, checksum, 0)

    # The pseudo-headers of IPv4 and IPv6 have the same sum.
    checksum = _checksum(from_ip + to_ip + struct.pack(">HH", socket.IPPROTO_TCP, _TCP.size) + segment(0))
    if len(to_ip) == _IPV4_BYTES:
        # The kernel fills in the checksum and the identification (raw(7)).
        header = _IPV4.pack(0x45, 0, _IPV4.size + _TCP.size, 0, 0, _HOP_LIMIT, socket.IPPROTO_TCP, 0, from_ip, to_ip)
    else:
        header = _IPV6.pack(6 << 28, _TCP.size, socket.IPPROTO_TCP, _HOP_LIMIT, from_ip, to_ip)
    return header + segment(checksum)


def _checksum(data: bytes) -> int:
    """Return the checksum of the internet (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
