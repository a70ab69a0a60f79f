"""Transactions of nftables over netlink: all of it takes effect, or nothing."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, Self

from kube_nftlb import errors
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.notifications import Mute, OwnTransactions, take_own_name

_NFTABLES = 10
_REQUEST, _ACKNOWLEDGE = 0x1, 0x4
_HEADER = struct.Struct("=IHHIIBB")
_RESOURCE = struct.Struct(">H")
_HEADER_BYTES = _HEADER.size + _RESOURCE.size
_SEND_BYTES = 64 << 20
_MUTED_FROM_BYTES = 512 << 10
"""About eight thousand elements: more than a batch of farms usually has, as programs whose transactions are ignored
otherwise, such as nftlb, cannot be told apart meanwhile."""
_TIMEOUT_S = 30
_SEQUENCE_MAX = (1 << 32) - 1
"""The largest sequence number."""
_ATTEMPTS = 5
_RETRY_S = 0.01
_TRANSIENT = (errno.EBUSY, errno.EAGAIN, errno.EINTR)
"""A table of elements is being resized."""


class _Refusal(NamedTuple):
    """An errno, and the position of the message that it is about, from 1; 0: all of the transaction."""

    code: int
    position: int


def _not_muted() -> contextlib.AbstractContextManager[OwnTransactions]:
    return contextlib.nullcontext(OwnTransactions())


class Transactions(Protocol):
    """Commits transactions on tables of one family, by default inet."""

    async def commit(self, messages: Sequence[Message], family: str = "inet") -> None:
        """Commit all messages in one transaction.

        Raises KernelError if the kernel refuses any: nothing changes then. Raises UnansweredError if it does not
        acknowledge the transaction.
        """


class NftSocket:
    """Commits transactions in this network namespace. Use ``open``."""

    def __init__(self, opened: NetlinkSocket, mute: Mute = _not_muted) -> None:
        """``mute`` is for large transactions, if this program hears of all of them."""
        self._socket = opened
        self._mute = mute
        self._lock = asyncio.Lock()
        # The kernel works on a transaction while it is sent, and waits for those of other programs, which may take
        # seconds. With a single thread none overtakes another, also if nobody waits for its end any more.
        self._thread = ThreadPoolExecutor(1, "nftables")
        self._sequence = 0
        self._room = opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2

    @classmethod
    def open(cls, mute: Mute = _not_muted) -> Self:
        """Open the socket; see ``__init__``. Raises OSError."""
        return cls(NetlinkSocket(timeout_s=_TIMEOUT_S, send_bytes=_SEND_BYTES), mute)

    def close(self) -> None:
        """Close the socket."""
        self._thread.shutdown(wait=False)
        self._socket.close()

    async def commit(self, messages: Sequence[Message], family: str = "inet") -> None:
        """See ``Transactions``. One that is larger than the socket's buffer is divided."""
        async with self._lock:
            for number, part in enumerate(self._parts(messages)):
                try:
                    await self._commit(part, netlink.FAMILIES[family])
                except errors.KernelError as error:
                    if number:
                        raise errors.UnansweredError(f"{error}, after a part of it was carried out") from error
                    raise

    def _parts(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        part: list[Message] = []
        size = 0
        for message in messages:
            length = _HEADER_BYTES + len(message.attributes)
            if part and size + length > self._room:
                yield part
                part, size = [], 0
            part.append(message)
            size += length
        if part:
            yield part

    async def _commit(self, messages: Sequence[Message], family: int) -> None:
        for attempts_left in reversed(range(_ATTEMPTS)):
            if (refusal := await self._try(messages, family)) is None:
                return
            if not attempts_left or refusal.code not in _TRANSIENT:
                where = f"message {refusal.position} of {len(messages)}" if refusal.position else "all of it"
                message = f"nftables refused a transaction ({where}): {os.strerror(refusal.code)}"
                raise errors.KernelError(message, refusal.code)
            await asyncio.sleep(_RETRY_S)

    async def _try(self, messages: Sequence[Message], family: int) -> _Refusal | None:
        first = (self._sequence + 1) & _SEQUENCE_MAX
        data = b"".join(self._encoded(messages, family))
        last = (self._sequence - 1) & _SEQUENCE_MAX
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self._send_in_thread, data, first, last
            )
        except OSError as error:
            raise errors.UnansweredError(f"nftables does not answer: {error!r}") from error

    def _encoded(self, messages: Sequence[Message], family: int) -> Iterator[bytes]:
        yield self._head(_HEADER_BYTES, netlink.BATCH_BEGIN, _REQUEST, 0, _NFTABLES)
        for position, message in enumerate(messages, 1):
            flags = message.flags | _REQUEST | (_ACKNOWLEDGE if position == len(messages) else 0)
            yield self._head(_HEADER_BYTES + len(message.attributes), _NFTABLES << 8 | message.kind, flags, family, 0)
            yield message.attributes
        yield self._head(_HEADER_BYTES, netlink.BATCH_END, _REQUEST, 0, _NFTABLES)

    def _head(self, length: int, kind: int, flags: int, family: int, resource: int) -> bytes:
        self._sequence = (self._sequence + 1) & _SEQUENCE_MAX
        return _HEADER.pack(length, kind, flags, self._sequence, 0, family, 0) + _RESOURCE.pack(resource)

    def _send_in_thread(self, data: bytes, first: int, last: int) -> _Refusal | None:
        take_own_name()
        mute = self._mute if len(data) >= _MUTED_FROM_BYTES else _not_muted
        with mute() as own:
            refusal = self._send(data, first, last)
            own.number = int(refusal is None)
            return refusal

    def _send(self, data: bytes, first: int, last: int) -> _Refusal | None:
        """Send a transaction. Return the first error in the kernel's answer, or None."""
        self._socket.sendall(data)
        refused = None
        while True:
            received = self._socket.receive()
            for kind, _, of, start, _ in netlink.parts(received):
                position = (of - first) & _SEQUENCE_MAX
                if kind != netlink.ERROR or position > (last - first) & _SEQUENCE_MAX:
                    continue
                code = netlink.code(received, start)
                if code and refused is None:
                    refused = _Refusal(code, position)
                # Where the transaction as a whole fails, only its beginning is answered.
                if of == last or (of == first and code):
                    return refused
