"""Send a TCP reset of no connection, as a program of its own: ``python stray.py FROM TO PORT``.

It ends after a second with 1 if a packet to that address came back as one whose TTL has run out, else with 0.
"""

import socket
import struct
import sys
import time

_WAIT_S = 1.0
_RST = 0x04
_TIME_EXCEEDED = 11


def main() -> int:
    """Send the packet, and wait."""
    source, destination, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with (
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as tcp,
    ):
        tcp.sendto(reset(source, destination, port), (destination, 0))
        until = time.monotonic() + _WAIT_S
        while (left := until - time.monotonic()) > 0:
            icmp.settimeout(left)
            try:
                packet = icmp.recv(1500)
            except TimeoutError:
                break
            if packet[20] == _TIME_EXCEEDED and socket.inet_ntoa(packet[44:48]) == destination:
                return 1
    return 0


def reset(source: str, destination: str, port: int) -> bytes:
    """Return a TCP segment that resets a connection."""
    segment = struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 5 << 4, _RST, 0, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack("!HH", socket.IPPROTO_TCP, 20)
    total = sum(struct.unpack("!16H", pseudo + segment))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return segment[:16] + struct.pack("!H", checksum) + segment[18:]


if __name__ == "__main__":
    sys.exit(main())
