"""TCP ports for servers that are told where to listen."""

import random
import socket
from pathlib import Path

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _ENOUGH = 10_000, 10_000


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has, and that the kernel gives to no outgoing connection meanwhile."""
    first_outgoing = int(_OUTGOING.read_text(encoding="utf-8").split()[0])
    while True:
        port = random.SystemRandom().randrange(_LOWEST, max(first_outgoing, _LOWEST + _ENOUGH))
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
