"""A socket for questions to nftables, and the attributes of its answers, as bytes.

pyroute2 makes an object of each attribute, which was most of the processor time of an agent with many farms. The
numbers are those of linux/netlink.h and linux/netfilter/nf_tables.h.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from typing import Self

from kube_nftlb import errors

GET_RULES = 7
GET_ELEMENTS = 13
GET_GENERATION = 16

FAMILIES = {"inet": 1, "ip": 2, "netdev": 5, "ip6": 10}

_NETLINK_NETFILTER = 12
_SUBSYSTEM_NFTABLES = 10 << 8
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_ENOENT = 2
_HEADER = struct.Struct("=IHHIIBBH")
"""Of a netlink message and of nfnetlink in it: length, type, flags, sequence, port; family, version, resource."""
_MESSAGE = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTE_TYPE_MASK = 0x3FFF
_NESTED = 0x8000
_READ_BYTES = 1 << 17
"""The kernel fills as much of it as it has with one answer to a dump, 32 KiB at the most."""
_TIMEOUT_S = 10


def attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    """An attribute for a question, padded."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind | (_NESTED if nested else 0)) + value + b"\0" * (-length % 4)


def text(kind: int, value: str) -> bytes:
    """An attribute that is a name."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute."""
    position, end = 0, len(data)
    while position + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _ATTRIBUTE_TYPE_MASK, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3


def find(data: bytes, *path: int) -> bytes | None:
    """The value of the attribute that is reached by these types, one in the other; None where there is none."""
    found: bytes | None = data
    for kind in path:
        if found is None:
            return None
        found = next((value for each, value in attributes(found) if each == kind), None)
    return found


def name(value: bytes | None) -> str:
    """A name as text; empty where there is none."""
    return value.rstrip(b"\0").decode(errors="replace") if value is not None else ""


class NftablesSocket:
    """Asks this network namespace's nftables, one question at a time. Use ``NftablesSocket.open``."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._lock = asyncio.Lock()
        self._sequence = 0

    @classmethod
    def open(cls) -> Self:
        """Open the socket. Raises OSError."""
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
        opened.setblocking(False)
        opened.bind((0, 0))
        return cls(opened)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def ask(self, family: str, kind: int, payload: bytes = b"", *, dump: bool = False) -> list[bytes]:
        """The attributes of each answer; none where there is no such table, chain, map or element.

        Raises KernelError where the kernel refuses to tell, or does not answer.
        """
        async with self._lock:
            return await self._answers(family, kind, payload, dump=dump)

    async def _answers(self, family: str, kind: int, payload: bytes, *, dump: bool) -> list[bytes]:
        loop = asyncio.get_running_loop()
        self._sequence = sequence = (self._sequence + 1) & 0xFFFFFFFF
        flags = _REQUEST | (_DUMP if dump else 0)
        length = _HEADER.size + len(payload)
        header = _HEADER.pack(length, _SUBSYSTEM_NFTABLES | kind, flags, sequence, 0, FAMILIES[family], 0, 0)
        answers: list[bytes] = []
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await loop.sock_sendall(self._socket, header + payload)
                while True:
                    data = await loop.sock_recv(self._socket, _READ_BYTES)
                    if self._take(data, sequence, answers, dump=dump):
                        return answers
                    # A dump of thousands of elements must not keep all others waiting.
                    await asyncio.sleep(0)
        except OSError as error:
            raise errors.KernelError(f"nftables does not answer: {error!r}") from error

    def _take(self, data: bytes, sequence: int, answers: list[bytes], *, dump: bool) -> bool:
        """Take what one reading has; whether the answer is complete."""
        position = 0
        while position + _MESSAGE.size <= len(data):
            length, kind, _, of, _ = _MESSAGE.unpack_from(data, position)
            end = position + max(length, _MESSAGE.size)
            # What is left of a question that was given up is not of this one.
            if of == sequence:
                if kind in (_ERROR, _DONE):
                    (code,) = struct.unpack_from("=i", data, position + _MESSAGE.size)
                    if code not in (0, -_ENOENT):
                        raise errors.KernelError(f"nftables refused to tell: {os.strerror(-code)}")
                    return True
                answers.append(data[position + _HEADER.size : end])
                if not dump:
                    return True
            position += (max(length, _MESSAGE.size) + 3) & ~3
        return False
