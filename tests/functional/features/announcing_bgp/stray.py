"""Send TCP packets of no connection, as a program of its own: ``python stray.py FROM TO PORT``.

One is a reset, one answers a connection that nobody opened. It says what came back within a second: ``reset``, or
``time exceeded`` for a packet whose TTL has run out; one line each, none if nothing did.
"""

import selectors
import socket
import struct
import sys
import time

_WAIT_S = 1.0
_SYN_ACK, _RST = 0x12, 0x04
_IPV6_CHECKSUM = 7  # linux/in6.h
_CLIENT_PORT = 20000
"""Below those that the kernel gives to connections."""


def main() -> int:
    """Send the packets, and wait."""
    source, destination, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    with (
        selectors.DefaultSelector() as ready,
        socket.socket(family, socket.SOCK_RAW, _icmp(family)) as icmp,
        socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as tcp,
    ):
        if family == socket.AF_INET6:
            tcp.setsockopt(socket.IPPROTO_IPV6, _IPV6_CHECKSUM, 16)
        for number, flags in enumerate((_RST, _SYN_ACK)):
            tcp.sendto(_segment(source, destination, _CLIENT_PORT + number, port, flags), (destination, 0))
        ready.register(icmp, selectors.EVENT_READ)
        ready.register(tcp, selectors.EVENT_READ)
        until = time.monotonic() + _WAIT_S
        while (left := until - time.monotonic()) > 0:
            for key, _ in ready.select(left):
                packet, peer = key.fileobj.recvfrom(1500)  # type: ignore[union-attr] # a socket
                if reply := _reply(family, packet, peer[0], destination, is_icmp=key.fileobj is icmp):
                    print(reply)
    return 0


def _icmp(family: int) -> int:
    return socket.IPPROTO_ICMPV6 if family == socket.AF_INET6 else socket.IPPROTO_ICMP


def _reply(family: int, packet: bytes, peer: str, destination: str, *, is_icmp: bool) -> str:
    """Return what a packet says of one that was sent; it begins with an IP header only if it is IPv4."""
    own = packet if family == socket.AF_INET6 else packet[20:]
    if not is_icmp:
        return "reset" if peer == destination and own[13] & _RST else ""
    exceeded, at = (3, 8 + 24) if family == socket.AF_INET6 else (11, 8 + 16)
    wanted = socket.inet_pton(family, destination)
    return "time exceeded" if own[0] == exceeded and own[at : at + len(wanted)] == wanted else ""


def _segment(source: str, destination: str, source_port: int, port: int, flags: int) -> bytes:
    """Return a TCP segment; the kernel adds the checksum for IPv6."""
    segment = struct.pack("!HHIIBBHHH", source_port, port, 1, 1, 5 << 4, flags, 0, 0, 0)
    if ":" in destination:
        return segment
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack("!HH", socket.IPPROTO_TCP, 20)
    total = sum(struct.unpack("!16H", pseudo + segment))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return segment[:16] + struct.pack("!H", checksum) + segment[18:]


if __name__ == "__main__":
    sys.exit(main())
