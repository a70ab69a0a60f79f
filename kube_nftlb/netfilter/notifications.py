"""The programs that change nftables: the kernel names that of each transaction (linux/netfilter/nf_tables.h)."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket, of_type

_GROUP_NFTABLES: Final = 7
_NEW_GENERATION: Final = 10 << 8 | 15  # NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN
_PROGRAM: Final = 3  # NFTA_GEN_PROC_NAME
_BUFFER: Final = 1 << 20
_CALL_EVERY_S: Final = 0.25
_TIMEOUT_S: Final = 10

_named = threading.local()

LOST: Final = "unknown"
"""Stands for the programs of transactions that the kernel could not tell of."""


@dataclass
class OwnTransactions:
    """The number of transactions that this program commits while its notifications are muted."""

    number: int = 0


Mute = Callable[[], AbstractContextManager[OwnTransactions]]
"""See ``Notifications.muted``."""


class Notifications:
    """Tells which other programs have changed nftables in this network namespace. Use ``Notifications.open``."""

    def __init__(self, opened: NetlinkSocket, ours: Collection[str]) -> None:
        """``ours`` are the names of the programs that may."""
        self.socket = opened
        self._ours = frozenset(ours)
        self._found: set[str] = set()
        self._has_missed = False
        self._asking: NetlinkSocket | None = None
        self._muting = threading.Lock()
        self._called_at = float("-inf")
        self._call: asyncio.TimerHandle | None = None

    @classmethod
    def open(cls, *ours: str) -> Self:
        """Subscribe; ``ours`` are names of programs that may, besides this one. Raises OSError."""
        return cls(subscribed(_NEW_GENERATION), (own_name(), *ours))

    def others(self) -> set[str]:
        """Return the names of other programs that have changed nftables since the last call."""
        self._read()
        found, self._found = self._found, set()
        return found

    @property
    def pending(self) -> bool:
        """True if other programs have changed nftables since the last call of ``others``."""
        self._read()
        return bool(self._found)

    def call(self, on_change: Callable[[], None]) -> None:
        """Call a function soon after another program has changed nftables, from the running event loop."""
        asyncio.get_running_loop().add_reader(self.socket.fileno(), self._readable, on_change)

    @contextlib.contextmanager
    def muted(self) -> Iterator[OwnTransactions]:
        """Hear nothing of large transactions of this program, which the block counts; any thread may call it.

        Else the kernel makes a message of each element that they have, whatever is kept of these: that takes half as
        long as the transaction itself, or longer. If anybody else changes nftables meanwhile, that counts as ``LOST``,
        also if it is one of those that may.
        """
        with self._muting:
            own, before = OwnTransactions(), self._generation()
            self._wait_for_others()
            self.socket.leave(_GROUP_NFTABLES)
            try:
                yield own
            finally:
                self.socket.join(_GROUP_NFTABLES)
                # The numbers are those of 32 bits.
                if before is None or self._generation() != (before + own.number) & 0xFFFFFFFF:
                    self._has_missed = True

    def _generation(self) -> int | None:
        """Return the number of the last transaction, or None if the kernel does not tell."""
        try:
            if self._asking is None:
                self._asking = NetlinkSocket(timeout_s=_TIMEOUT_S)
            self._asking.sendall(netlink.request("inet", netlink.GET_GENERATION))
            ((_, attributes),) = netlink.messages(self._asking.receive(), _NEW_GENERATION)
        except (OSError, ValueError):
            # The answer to the next question must not be that to this one.
            self._stop_asking()
            return None
        return netlink.generation(attributes)

    def _wait_for_others(self) -> None:
        """Wait until transactions that have their number are told: the kernel gives it first, and tells later."""
        with contextlib.suppress(OSError):
            if self._asking is not None:
                self._asking.sendall(netlink.EMPTY_TRANSACTION)

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def _readable(self, on_change: Callable[[], None]) -> None:
        if self.pending and self._call is None:
            loop = asyncio.get_running_loop()
            # Those who change nftables all the time must not keep the processor busy.
            self._call = loop.call_at(max(loop.time(), self._called_at + _CALL_EVERY_S), self._called, on_change)

    def _called(self, on_change: Callable[[], None]) -> None:
        self._call, self._called_at = None, asyncio.get_running_loop().time()
        on_change()

    def _read(self) -> None:
        if self._has_missed:
            self._has_missed = False
            self._found.add(LOST)
        for data in self.socket.waiting():
            self._found |= {name for name in programs(data) if name not in self._ours} if data is not None else {LOST}

    def close(self) -> None:
        """Close the socket."""
        if self._call is not None:
            self._call.cancel()
        with contextlib.suppress(RuntimeError):
            # There is no loop any more that could watch it.
            asyncio.get_running_loop().remove_reader(self.socket.fileno())
        self.socket.close()
        self._stop_asking()


def subscribed(kind: int, group: int = _GROUP_NFTABLES) -> NetlinkSocket:
    """Return a socket to which the kernel sends what changes in this network namespace's nftables.

    ``kind`` is the type of message to keep, as a transaction may also tell of hundreds of thousands of elements.
    ``group`` is another multicast group (linux/netfilter/nfnetlink.h), for events that are no changes.
    Raises OSError.
    """
    opened = NetlinkSocket(receive_bytes=_BUFFER, keep=of_type(kind))
    opened.join(group)
    return opened


def programs(data: bytes) -> list[str]:
    """Return the programs of the transactions that a datagram of notifications tells of."""
    generations = netlink.messages(data, _NEW_GENERATION)
    return [netlink.name(netlink.find(attributes, _PROGRAM)) for _, attributes in generations]


def own_name() -> str:
    """Return the name by which the kernel knows this program: that of its first thread."""
    return _name_of_program().read_text().strip()


def set_own_name(name: str) -> None:
    """Give this program a name of its own, of up to 15 bytes. Call it before there are threads."""
    _name_of_program().write_text(name)


def take_own_name() -> None:
    """Give the calling thread the program's name. Call it in a thread before that changes nftables.

    The kernel names the thread that sends a transaction. A thread begins with the name of the one that started it, but
    from Python 3.14 on with one of its own, such as ``asyncio_0`` (``Thread._set_os_name``).
    """
    if getattr(_named, "taken", None) != (own := own_name()):
        Path("/proc/thread-self/comm").write_text(own)
        _named.taken = own


def _name_of_program() -> Path:
    return Path(f"/proc/{os.getpid()}/comm")
