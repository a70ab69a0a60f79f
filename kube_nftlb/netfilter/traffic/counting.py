"""Count the traffic of a node, and write a report every few seconds. It blocks: give it a process of its own.

The kernel's connection tracking has it all: an entry has the destination that the client asked for, and who answers,
that is listener and backend, whichever engine chose it; with net.netfilter.nf_conntrack_acct it has the bytes. Counters
in nftables would need a rule for each farm and backend that every packet passes, as the maps of the engine nftables see
only the first packet of a connection, and nftlb would have to be taught them.

Connections that come and go between two reports are counted from the kernel's events: one for each new connection, and
one for each end, which has the final bytes. Bytes of open connections come from the table. It is read from one end to
the other, so at most a tenth of the time is spent on that, however large it is; while the events take more than a
quarter of a processor, only the table is read. Ended TCP connections stay in it for 10 to 120 seconds, so few are
missed then.
"""

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kube_nftlb.netfilter.conntrack import filters, table
from kube_nftlb.netfilter.conntrack.entries import DESTINATION_TRANSLATED, STATUS, entries
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket
from kube_nftlb.netfilter.traffic import report
from kube_nftlb.netfilter.traffic.tally import Tally

_GROUPS: Final = (1, 3)
"""NFNLGRP_CONNTRACK_NEW and NFNLGRP_CONNTRACK_DESTROY (nfnetlink.h)."""
_BUFFER: Final = 8 << 20
_HEADERS: Final = 20
"""Of a netlink message, and of the nfnetlink message in it."""
_FIND_ATTRIBUTE: Final = 0xFFFFF000 + 12
"""SKF_AD_OFF + SKF_AD_NLATTR (linux/filter.h)."""

# Keep events of connections with a translated destination. Others may be many more.
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
    """A subscription to events of new and ended connections, which begins with ``subscribe``. Raises OSError."""

    def __init__(self) -> None:
        self.socket = NetlinkSocket(receive_bytes=_BUFFER, keep=_FILTER)
        self.subscribed = False
        self.lost = 0
        """Times that the kernel had more events than fit."""

    def subscribe(self, *, on: bool) -> None:
        """Begin or end to receive events. The kernel makes them only while somebody does."""
        for group in _GROUPS if on != self.subscribed else ():
            (self.socket.join if on else self.socket.leave)(group)
        self.subscribed = on

    def read(self, most: int) -> Iterator[bytes]:
        """Yield the datagrams that are there, at most so many."""
        for data in self.socket.waiting(most):
            if data is None:
                self.lost += 1
            else:
                yield data

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


ACCOUNTING: Final = Path("/proc/sys/net/netfilter/nf_conntrack_acct")
_REST: Final = 10
_EVENTS_SHARE: Final = 0.25
_PAUSE_S: Final = 60.0
_EVENTS_AT_ONCE: Final = 4096


class Counting:
    """Counts in this network namespace."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._tally = Tally()
        self._busy_s = 0.0
        """Processor time spent on events since the last report."""
        self._paused_until = 0.0
        self._reading_s = 0.0
        self._lost = 0

    def run(self, every_s: float, write: Callable[[bytes], None], closed: int, until: float) -> None:
        """Write a report every ``every_s`` seconds, or less often if the table is large.

        End at ``until``, a time of the monotonic clock, or when the file descriptor ``closed`` is. Raises KernelError
        and OSError.
        """
        self._events.subscribe(on=True)
        self._read_table()
        reported = time.monotonic()
        while reported < until:
            if self._wait(reported + max(every_s, _REST * self._reading_s), closed):
                return
            self._read_table()
            now = time.monotonic()
            write(report.encode(self._report(now - reported)))
            self._adapt(now, now - reported)
            reported = now

    def _wait(self, until: float, closed: int) -> bool:
        """Count events. Return True if nobody wants to know any more."""
        poll = select.poll()
        poll.register(self._events.socket, select.POLLIN)
        poll.register(closed, select.POLLIN | select.POLLHUP)
        while (remaining_s := until - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in poll.poll(remaining_s * 1000)}
            if closed in ready and not os.read(closed, 1 << 10):
                return True
            self._count_events()
        return False

    def _count_events(self) -> None:
        began = time.thread_time()
        for data in self._events.read(_EVENTS_AT_ONCE):
            for each in entries(data):
                if each.ended:
                    self._tally.ended(each)
                else:
                    self._tally.created(each)
        self._busy_s += time.thread_time() - began

    def _read_table(self) -> None:
        began = time.monotonic()
        self._tally.begin_table()
        for data in table.dump("all", filters.TRANSLATED):
            for each in entries(data):
                # An old kernel ignores the filter.
                if each.is_translated:
                    self._tally.listed(each)
            self._count_events()
        self._tally.end_table()
        self._reading_s = time.monotonic() - began

    def _report(self, seconds: float) -> report.Report:
        listeners, omitted = report.listeners(self._tally.take())
        lost, self._lost = self._events.lost - self._lost, self._events.lost
        return report.Report(
            round(seconds, 3),
            listeners,
            omitted,
            _accounting(),
            self._events.subscribed,
            lost,
            self._tally.connections,
            round(self._reading_s, 4),
        )

    def _adapt(self, now: float, seconds: float) -> None:
        """Do without events for a while if they take too much."""
        if self._busy_s > _EVENTS_SHARE * seconds:
            self._paused_until = now + _PAUSE_S
        self._busy_s = 0.0
        self._events.subscribe(on=now >= self._paused_until)


def run(every_s: float, seconds: float) -> None:
    """Write reports to standard output for so many seconds, or until standard input or output is closed.

    Raises KernelError, or OSError, as without the capability NET_ADMIN.
    """
    events = Events()
    try:
        with contextlib.suppress(BrokenPipeError):
            Counting(events).run(every_s, _print, sys.stdin.fileno(), time.monotonic() + seconds)
    finally:
        events.close()


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _accounting() -> bool:
    try:
        return ACCOUNTING.read_text().strip() != "0"
    except OSError:
        return False
