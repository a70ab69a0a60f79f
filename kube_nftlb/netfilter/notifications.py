"""Who changes nftables: the kernel names the program of each transaction (linux/netfilter/nf_tables.h)."""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final, Self

from kube_nftlb.netfilter import netlink

_GROUP_NFTABLES: Final = 7
_NEW_GENERATION: Final = 10 << 8 | 15  # NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN
_PROGRAM: Final = 3  # NFTA_GEN_PROC_NAME
_HEADERS: Final = 20  # of a netlink message, and of the nfnetlink message in it
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_SO_ATTACH_FILTER: Final = 26
_SO_RCVBUFFORCE: Final = 33
_BUFFER: Final = 1 << 20
_DATAGRAM: Final = 1 << 16

LOST: Final = "unknown"
"""Stands for the programs of transactions that the kernel could not tell of."""

# Classic BPF: keep messages of one type, as a transaction may also tell of hundreds of thousands of elements.
_FILTER: Final = (
    (0x28, 0, 0, 4),  # load the type
    (0x15, 0, 1, socket.htons(_NEW_GENERATION)),
    (0x06, 0, 0, 0xFFFFFFFF),
    (0x06, 0, 0, 0),
)


class Notifications:
    """Tells which other programs have changed nftables in this network namespace. Use ``Notifications.open``."""

    def __init__(self, opened: socket.socket, ours: Collection[str]) -> None:
        """``ours`` are the names of the programs that may."""
        self.socket = opened
        self._ours = frozenset(ours)

    @classmethod
    def open(cls, *ours: str) -> Self:
        """Subscribe; ``ours`` are names of programs that may, besides this one. Raises OSError."""
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, netlink.NETLINK_NETFILTER)
        opened.setblocking(False)
        instructions = b"".join(struct.pack("=HBBI", *each) for each in _FILTER)
        program = ctypes.create_string_buffer(instructions)
        opened.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_FILTER), ctypes.addressof(program))
        )
        try:
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except PermissionError:
            # What does not fit counts as doubt.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        opened.bind((0, 0))
        opened.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _GROUP_NFTABLES)
        return cls(opened, (own_name(), *ours))

    def others(self) -> set[str]:
        """Return the names of other programs that have changed nftables since the last call."""
        found: set[str] = set()
        while True:
            try:
                data = self.socket.recv(_DATAGRAM)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                found.add(LOST)
                continue
            found |= {name for name in programs(data) if name not in self._ours}

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def programs(data: bytes) -> list[str]:
    """Return the programs of the transactions that a datagram of notifications tells of."""
    found = []
    position = 0
    while position + _HEADERS <= len(data):
        length, kind = struct.unpack_from("=IH", data, position)
        if kind == _NEW_GENERATION:
            found.append(netlink.name(netlink.find(data[position + _HEADERS : position + length], _PROGRAM)))
        position += max(length + 3 & ~3, _HEADERS)
    return found


def own_name() -> str:
    """Return the name by which the kernel knows this program; threads have the name of those that begin them."""
    return Path("/proc/thread-self/comm").read_text().strip()


def set_own_name(name: str) -> None:
    """Give this program a name of its own, of up to 15 bytes. Call it before there are threads."""
    Path(f"/proc/{os.getpid()}/comm").write_text(name)
