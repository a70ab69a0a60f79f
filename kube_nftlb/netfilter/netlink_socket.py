"""The netlink socket of netfilter in this network namespace, for all who ask, change or listen."""

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

_NETLINK_NETFILTER: Final = 12
_SOL_NETLINK, _ADD_MEMBERSHIP, _DROP_MEMBERSHIP = 270, 1, 2
_SO_ATTACH_FILTER, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 26, 32, 33
"""See socket(7); the module ``socket`` lacks them."""
_READ_BYTES: Final = 1 << 17
"""The kernel fills at most 32 KiB of it with one answer to a dump."""

Instruction = tuple[int, int, int, int]
"""Of classic BPF: what to do, where to go on if it is true and if not, and a number."""


class NetlinkSocket(socket.socket):
    """A socket that is bound, and blocks for at most ``timeout_s`` seconds; without, it does not block.

    The kernel sends it only what the program ``keep`` keeps. Raises OSError.
    """

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        send_bytes: int = 0,
        receive_bytes: int = 0,
        keep: Sequence[Instruction] = (),
    ) -> None:
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
        self.settimeout(timeout_s or 0)
        if keep:
            instructions = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in keep))
            program = struct.pack("@HP", len(keep), ctypes.addressof(instructions))
            self.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        for size, force, option in (
            (send_bytes, _SO_SNDBUFFORCE, socket.SO_SNDBUF),
            (receive_bytes, _SO_RCVBUFFORCE, socket.SO_RCVBUF),
        ):
            try:
                if size:
                    self.setsockopt(socket.SOL_SOCKET, force, size)
            except PermissionError:
                # In a user namespace only up to net.core.wmem_max or rmem_max; what does not fit counts as lost.
                self.setsockopt(socket.SOL_SOCKET, option, size)
        self.bind((0, 0))

    def join(self, group: int) -> None:
        """Begin to receive what the kernel tells a multicast group (linux/netfilter/nfnetlink.h)."""
        self.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def leave(self, group: int) -> None:
        """Receive nothing of a multicast group any more."""
        self.setsockopt(_SOL_NETLINK, _DROP_MEMBERSHIP, group)

    def receive(self) -> bytes:
        """Return the next datagram. Raises OSError."""
        return self.recv(_READ_BYTES)

    async def receive_later(self) -> bytes:
        """Return the next datagram, once it is there. Raises OSError."""
        return await asyncio.get_running_loop().sock_recv(self, _READ_BYTES)

    def waiting(self, most: int | None = None) -> Iterator[bytes | None]:
        """Yield the datagrams that are there, at most so many; None where the kernel had no room for some."""
        for _ in count() if most is None else range(most):
            try:
                yield self.receive()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None


def of_type(kind: int) -> Sequence[Instruction]:
    """Return a program that keeps messages of a type."""
    return (
        (0x28, 0, 0, 4),  # load the type
        (0x15, 0, 1, socket.htons(kind)),
        (0x06, 0, 0, 0xFFFFFFFF),
        (0x06, 0, 0, 0),
    )
