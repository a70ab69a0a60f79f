"""Events of new and ended connections, whose destination is translated."""

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator
from typing import Final, Self

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.conntrack.entries import DESTINATION_TRANSLATED, STATUS

_GROUPS: Final = (1, 3)
"""NFNLGRP_CONNTRACK_NEW and NFNLGRP_CONNTRACK_DESTROY (nfnetlink.h)."""
_SOL_NETLINK, _ADD_MEMBERSHIP, _DROP_MEMBERSHIP = 270, 1, 2
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_BUFFER: Final = 8 << 20
_DATAGRAM: Final = 1 << 16
_HEADERS: Final = 20
"""Of a netlink message, and of the nfnetlink message in it."""
_FIND_ATTRIBUTE: Final = 0xFFFFF000 + 12
"""SKF_AD_OFF + SKF_AD_NLATTR (linux/filter.h)."""

# Classic BPF: keep events of connections with a translated destination. Others may be many more.
_FILTER: Final = (
    (0x00, 0, 0, _HEADERS),
    (0x01, 0, 0, STATUS),
    (0x20, 0, 0, _FIND_ATTRIBUTE),
    (0x15, 4, 0, 0),  # without a status
    (0x07, 0, 0, 0),
    (0x40, 0, 0, 4),  # load the value behind the attribute's header
    (0x45, 0, 1, DESTINATION_TRANSLATED),
    (0x06, 0, 0, 0xFFFFFFFF),
    (0x06, 0, 0, 0),
)


class Events:
    """Events of new and ended connections in this network namespace. Use ``Events.open``."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.subscribed = False
        self.lost = 0
        """Times that the kernel had more events than fit."""

    @classmethod
    def open(cls) -> Self:
        """Open the socket, not subscribed yet. Raises OSError."""
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, netlink.NETLINK_NETFILTER)
        opened.setblocking(False)
        instructions = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in _FILTER))
        opened.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_FILTER), ctypes.addressof(instructions))
        )
        try:
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except PermissionError:
            # In a user namespace; what does not fit counts as lost.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        opened.bind((0, 0))
        return cls(opened)

    def subscribe(self, *, on: bool) -> None:
        """Begin or end to receive events. The kernel makes them only while somebody does."""
        for group in _GROUPS if on != self.subscribed else ():
            self.socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP if on else _DROP_MEMBERSHIP, group)
        self.subscribed = on

    def read(self, most: int) -> Iterator[bytes]:
        """Yield the datagrams that are there, at most so many."""
        for _ in range(most):
            try:
                yield self.socket.recv(_DATAGRAM)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost += 1

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
