"""Requests to nftables and conntrack over netlink, and the attributes of answers, as bytes.

pyroute2 makes an object of each attribute, which was most of the processor time of an agent with many farms or many
connections. The numbers are those of linux/netlink.h, linux/netfilter/nfnetlink.h, nf_tables.h and
nfnetlink_conntrack.h.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

from kube_nftlb import errors
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket

_NFTABLES, _CONNTRACK = 10 << 8, 1 << 8
GET_TABLE = _NFTABLES | 1
GET_CHAIN = _NFTABLES | 4
GET_RULES = _NFTABLES | 7
GET_SET = _NFTABLES | 10
GET_ELEMENTS = _NFTABLES | 13
GET_GENERATION = _NFTABLES | 16
SET_CONNECTION = _CONNTRACK | 0
GET_CONNECTIONS = _CONNTRACK | 1
DELETE_CONNECTION = _CONNTRACK | 2

FAMILIES = {"all": 0, "inet": 1, "ip": 2, "netdev": 5, "ip6": 10}
FAMILY_NAMES = {number: family for family, number in FAMILIES.items()}

_REQUEST, _ACKNOWLEDGE, _DUMP = 0x1, 0x4, 0x300
_INTERRUPTED = 0x10
"""NLM_F_DUMP_INTR: of a message in a dump before which somebody has changed what is dumped; not of elements of sets."""
BATCH_BEGIN, BATCH_END = 0x10, 0x11  # NFNL_MSG_BATCH_BEGIN and _END, around a transaction
_GENERATION = 1  # NFTA_GEN_ID
ERROR, DONE = 2, 3
"""The types of messages that end an answer."""
_ENOENT = 2
_HEADER = struct.Struct("=IHHIIBBH")
"""Of a netlink message and of nfnetlink in it: length, type, flags, sequence, port; family, version, resource."""
_MESSAGE = struct.Struct("=IHHII")
NFNETLINK_BYTES = _HEADER.size - _MESSAGE.size
EMPTY_TRANSACTION: Final = b"".join(
    _HEADER.pack(_HEADER.size, kind, _REQUEST, 0, 0, 0, 0, socket.htons(_NFTABLES >> 8))
    for kind in (BATCH_BEGIN, BATCH_END)
)
"""A transaction of nftables that changes nothing, and is none: it only waits for that of another program."""
_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTE_TYPE_MASK = 0x3FFF
_NESTED = 0x8000
_TIMEOUT_S = 10
_CHANGES_AT_ONCE = 64
"""Each is answered, and the answers must fit into the socket's buffer."""


class Change(NamedTuple):
    """A change for the kernel: SET_CONNECTION or DELETE_CONNECTION, and the attributes."""

    kind: int
    payload: bytes


def attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    """Return an attribute for a request, padded."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind | (_NESTED if nested else 0)) + value + b"\0" * (-length % 4)


def text(kind: int, value: str) -> bytes:
    """Return an attribute with a name."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and value of each attribute."""
    position, end = 0, len(data)
    while position + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _ATTRIBUTE_TYPE_MASK, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3


def parts(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield type, flags and sequence number of each message in a datagram, and where its payload begins and ends."""
    position, size = 0, len(data)
    while position + _MESSAGE.size <= size:
        length, kind, flags, sequence, _ = _MESSAGE.unpack_from(data, position)
        length = max(length, _MESSAGE.size)
        yield kind, flags, sequence, position + _MESSAGE.size, min(position + length, size)
        position += (length + 3) & ~3


def messages(data: bytes, kind: int) -> Iterator[tuple[int, bytes]]:
    """Yield the family's number and the attributes of each message of a type in a datagram."""
    for each, _, _, start, end in parts(data):
        if each == kind and start + NFNETLINK_BYTES <= end:
            yield data[start], data[start + NFNETLINK_BYTES : end]


def find(data: bytes, *path: int) -> bytes | None:
    """Return the value of the attribute at this path of nested types, or None."""
    # Without copies on the way, as thousands of farms mean hundreds of thousands of calls.
    position, end = 0, len(data)
    for kind in path:
        while position + _ATTRIBUTE.size <= end:
            length, each = _ATTRIBUTE.unpack_from(data, position)
            if length < _ATTRIBUTE.size:
                return None
            if each & _ATTRIBUTE_TYPE_MASK == kind:
                end = min(end, position + length)
                position += _ATTRIBUTE.size
                break
            position += (length + 3) & ~3
        else:
            return None
    return data[position:end]


def generation(answer: bytes) -> int:
    """Return the number of the last transaction, from the attributes of the answer to GET_GENERATION."""
    return int.from_bytes(find(answer, _GENERATION) or b"", "big")


def name(value: bytes | None) -> str:
    """Return a name as text; empty if there is none."""
    return value.rstrip(b"\0").decode(errors="replace") if value is not None else ""


class NetfilterSocket:
    """Sends requests to this network namespace's netfilter, one at a time. Use ``NetfilterSocket.open``."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket()
        self._lock = asyncio.Lock()
        self._sequence = 0

    @classmethod
    def open(cls) -> Self:
        """Open the socket. Raises OSError."""
        return cls()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def ask(self, family: str, kind: int, payload: bytes = b"", *, dump: bool = False) -> list[bytes]:
        """Return the attributes of each answer; none if there is no such table, chain, map or element.

        Raises KernelError if the kernel refuses, or does not answer; see ``dump`` for a list that is not whole.
        """
        if dump:
            return [answer async for answer in self.dump(family, kind, payload, whole=True)]
        answer = None
        async with self._lock, self._answering():
            sequence = self._number()
            await self._send([_message(family, kind, _REQUEST, sequence, payload)])
            async for of, answered, _, data in self._read():
                # Skip answers to an earlier request that was given up.
                if of == sequence:
                    answer = _attributes_of(answered, data)
                    break
        return [answer] if answer is not None else []

    async def dump(self, family: str, kind: int, payload: bytes = b"", *, whole: bool = False) -> AsyncGenerator[bytes]:
        """Yield the attributes of each answer to a dump as it arrives.

        Read them all, or close it (``contextlib.aclosing``), before the next request.

        Raises KernelError if the kernel refuses, or does not answer. If it is to be ``whole``, InterruptedDumpError
        after the last answer if some may be missing, because others came or went: the kernel goes on by their number,
        and says so after any transaction.
        """
        async with self._lock, self._answering():
            sequence, is_interrupted = self._number(), False
            await self._send([_message(family, kind, _REQUEST | _DUMP, sequence, payload)])
            async for of, answered, flags, data in self._read():
                if of != sequence:
                    continue
                is_interrupted |= bool(flags & _INTERRUPTED)
                if (answer := _attributes_of(answered, data)) is None:
                    if is_interrupted and whole:
                        raise errors.InterruptedDumpError("nftables changed while it was read")
                    return
                yield answer

    async def change(self, family: str, changes: Sequence[Change]) -> int:
        """Change connections. Return how many there were; those that are gone do not count.

        Raises KernelError if the kernel refuses a change, or does not answer; those before it are done.
        """
        changed = 0
        for first in range(0, len(changes), _CHANGES_AT_ONCE):
            async with self._lock, self._answering():
                changed += await self._change_some(family, changes[first : first + _CHANGES_AT_ONCE])
        return changed

    async def _change_some(self, family: str, changes: Sequence[Change]) -> int:
        numbered = {self._number(): change for change in changes}
        flags = _REQUEST | _ACKNOWLEDGE
        await self._send(_message(family, each.kind, flags, number, each.payload) for number, each in numbered.items())
        open_, changed, refusal = set(numbered), 0, 0
        async for of, _, _, data in self._read():
            open_.discard(of)
            if of in numbered:
                refused = code(data)
                changed += refused == 0
                refusal = refusal if refused in (0, _ENOENT) else refused
            if not open_:
                break
        if refusal:
            raise errors.KernelError(f"netfilter refused to change a connection: {os.strerror(refusal)}")
        return changed

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Raise KernelError if the kernel does not answer in time."""
        try:
            yield
        except OSError as error:
            self._renew()
            raise errors.KernelError(f"netfilter does not answer: {error!r}") from error
        except (asyncio.CancelledError, GeneratorExit):
            self._renew()
            raise

    def _renew(self) -> None:
        """Open another socket: while a dump is not read to its end, the kernel refuses the next one (EBUSY)."""
        self._socket.close()
        self._socket = NetlinkSocket()

    def _number(self) -> int:
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        return self._sequence

    async def _send(self, messages: Iterable[bytes]) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, b"".join(messages))

    async def _read(self) -> AsyncIterator[tuple[int, int, int, bytes]]:
        """Yield the sequence number, type, flags and payload of each message, without end."""
        while True:
            for message in await self._receive():
                yield message

    async def _receive(self) -> list[tuple[int, int, int, bytes]]:
        """Return the sequence number, type, flags and payload of the messages that the kernel sends at once."""
        # Not for the whole of a dump, which other tasks may delay.
        async with asyncio.timeout(_TIMEOUT_S):
            data = await self._socket.receive_later()
        # A dump of thousands of elements must not keep all others waiting.
        await asyncio.sleep(0)
        return [(of, kind, flags, data[start:end]) for kind, flags, of, start, end in parts(data)]


class NetfilterClient:
    """Asks this network namespace's netfilter, by a socket of its own. Use ``open``."""

    def __init__(self, netfilter: NetfilterSocket) -> None:
        self._netfilter = netfilter

    @classmethod
    def open(cls) -> Self:
        """Open the socket, in the running event loop. Raises OSError."""
        return cls(NetfilterSocket.open())

    def close(self) -> None:
        """Close the socket."""
        self._netfilter.close()


def _attributes_of(answered: int, data: bytes) -> bytes | None:
    """Return the attributes of an answer, or None at the end of all. Raises KernelError if the kernel refuses."""
    if answered not in (ERROR, DONE):
        return data[NFNETLINK_BYTES:]
    if (refused := code(data)) not in (0, _ENOENT):
        raise errors.KernelError(f"netfilter refused to tell: {os.strerror(refused)}")
    return None


def request(family: str, kind: int, payload: bytes = b"", *, dump: bool = False) -> bytes:
    """Return a request, for a socket that asks nothing else; a dump is of everything of a kind."""
    return _message(family, kind, _REQUEST | (_DUMP if dump else 0), 1, payload)


def _message(family: str, kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    length = _HEADER.size + len(payload)
    return _HEADER.pack(length, kind, flags, sequence, 0, FAMILIES[family], 0, 0) + payload


def code(data: bytes, start: int = 0) -> int:
    """Return the errno in a payload that begins at ``start``, 0 if the request was successful."""
    number: int = struct.unpack_from("=i", data, start)[0]
    return -number
