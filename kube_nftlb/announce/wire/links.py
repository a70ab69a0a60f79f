"""The raw sockets of a link, which see ARP and NDP alone, and its membership in multicast groups.

A packet socket takes the capability NET_RAW, and nothing else here takes any.
"""

import array
import contextlib
import errno
import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from kube_nftlb.announce.wire import arp, filters, ndp
from kube_nftlb.announce.wire.sending import LinkAddresses

_SO_ATTACH_FILTER: Final = 26
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
_FRAMES_AT_ONCE: Final = 256
_FRAME_MAX: Final = 2048
_IF_INET6: Final = Path("/proc/net/if_inet6")
_LINK_LOCAL: Final = "20"
_MAC_BYTES: Final = 6


class Link:
    """An open link. Use ``Link.open``."""

    def __init__(self, name: str, index: int, sockets: tuple[socket.socket, socket.socket]) -> None:
        self.name = name
        self.sockets = sockets
        self._index = index
        self._groups: dict[bytes, socket.socket] = {}
        self._members: list[socket.socket] = []

    @classmethod
    def open(cls, name: str) -> Self:
        """Open the sockets. Raises OSError, as without the link or the capability."""
        index = socket.if_nametoindex(name)
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(_packet_socket(name, arp.PROTOCOL, filters.arp(index)))
            second = stack.enter_context(_packet_socket(name, ndp.PROTOCOL, filters.ndp(index)))
            stack.pop_all()
        return cls(name, index, (first, second))

    def addresses(self) -> LinkAddresses:
        """Return the link's own addresses. Raises OSError if it is gone, has no carrier, or is not an Ethernet link."""
        if socket.if_nametoindex(self.name) != self._index:
            raise OSError(errno.ENODEV, f"{self.name} is another interface now")
        request = struct.pack("@16sH14x", self.name.encode(), 0)
        _, flags = struct.unpack("@16sH14x", fcntl.ioctl(self.sockets[0], _SIOCGIFFLAGS, request))
        if not flags & _IFF_RUNNING:
            raise OSError(errno.ENETDOWN, "the link is down, or has no carrier")
        mac: bytes = self.sockets[0].getsockname()[4]
        if len(mac) != _MAC_BYTES:
            raise OSError(errno.ENODEV, f"{self.name} has no Ethernet address")
        return LinkAddresses(mac, _link_local(self.name))

    def read(self) -> Iterator[bytes]:
        """Yield the frames that have arrived, at most some hundred. Raises OSError, as when the link goes down."""
        for each in self.sockets:
            for _ in range(_FRAMES_AT_ONCE):
                try:
                    yield each.recv(_FRAME_MAX)
                except BlockingIOError:
                    break

    def send(self, frame: bytes) -> None:
        """Send a frame. One for which the kernel has no room is lost, as on the wire. Raises OSError."""
        try:
            self.sockets[0].send(frame)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise

    def join(self, groups: set[bytes]) -> None:
        """Be a member of these multicast groups alone.

        The kernel reports them to switches that snoop, answers their queries, and has the network card pass the frames.
        Raises OSError.
        """
        for group in self._groups.keys() - groups:
            self._groups.pop(group).setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, self._membership(group))
        for group in groups - self._groups.keys():
            self._groups[group] = self._join(group)

    def close(self) -> None:
        """Close all sockets."""
        for each in (*self.sockets, *self._members):
            each.close()

    def _join(self, group: bytes) -> socket.socket:
        # The kernel limits the memberships of a socket by memory (net.core.optmem_max).
        for each in reversed(self._members):
            try:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, self._membership(group))
            except OSError as error:
                if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
                    raise
            else:
                return each
        added = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._members.append(added)
        added.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, self._membership(group))
        return added

    def _membership(self, group: bytes) -> bytes:
        return group + struct.pack("@I", self._index)


def _packet_socket(link: str, protocol: int, program: bytes) -> socket.socket:
    # Without a protocol it receives nothing until it has the filter and the link.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
    try:
        instructions = array.array("B", program)
        address, length = instructions.buffer_info()
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", length // 8, address))
        opened.bind((link, protocol))
    except OSError:
        opened.close()
        raise
    return opened


def _link_local(name: str) -> bytes:
    """Return a link-local IPv6 address of a link; empty if it has none, or the kernel has no IPv6."""
    try:
        lines = _IF_INET6.read_text().splitlines()
    except OSError:
        return b""
    fields = [line.split() for line in lines]
    return next((bytes.fromhex(each[0]) for each in fields if each[3] == _LINK_LOCAL and each[5] == name), b"")
