"""The detection of a kube-proxy that runs on this node: it listens on its ports for as long as it lives.

Processes of the node are not visible from the agent's pod, but sockets in the node's network namespace are.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pyroute2 import DiagSocket, NetlinkError

from kube_nftlb import errors

PORTS = (10249, 10256)
"""kube-proxy's defaults of metricsBindAddress and healthzBindAddress. Once they are free, the agent listens there."""
_LISTEN = 1 << 10  # TCP_LISTEN, linux/tcp_states.h


def held_by_others(ports: Iterable[int] = PORTS) -> list[int]:
    """Return the TCP ports on which another process of this network namespace listens. Raises KernelError."""
    try:
        with DiagSocket() as diag:
            diag.bind()
            inodes = {
                port: {
                    listener["idiag_inode"]
                    for family in (socket.AF_INET, socket.AF_INET6)
                    for listener in diag.get_sock_stats(family=family, states=_LISTEN, sport=port)
                    if listener["idiag_sport"] == port
                }
                for port in ports
            }
    except (NetlinkError, OSError) as error:
        raise errors.KernelError(f"cannot tell if kube-proxy runs: {error}") from error
    own = _own_inodes()
    return [port for port, found in inodes.items() if found - own]


def _own_inodes() -> set[int]:
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            kind, _, inode = str(entry.readlink()).partition(":[")
            if kind == "socket":
                inodes.add(int(inode.rstrip("]")))
    return inodes
