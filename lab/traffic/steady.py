"""``steady``: begin attempts at fixed times on many targets, whatever became of earlier ones; list the slow and lost.

One thread, so that all its targets see the same machine: attempts at a pod without any Service show what is due to it.
"""

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["tcp", "tcp-fixed", "udp", "udp-fixed"]
"""A new connection or flow each time, or data in one that stays open: from one source port."""

SLOW_NS = 20_000_000
_STALL_NS = 20_000_000
"""The delay of the loop that shows that the machine, or this process, was busy elsewhere."""
_LOST_NS = {"tcp": 5_000_000_000, "tcp-fixed": 5_000_000_000, "udp": 1_000_000_000, "udp-fixed": 1_000_000_000}
_CONNECT_S = 1
_SWEEP_NS = 50_000_000
_AGAIN_NS = 200_000_000
_AGAIN = 25
"""Number of times that an unanswered flow sends again, from the same port: it may never be answered."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_NUMBER = struct.Struct("!Q")


class Stream(NamedTuple):
    """A target, and how often it is tried."""

    name: str
    kind: Kind
    host: str
    port: int
    interval_ns: int


@dataclass
class Record:
    """The outcomes of a stream; times are CLOCK_MONOTONIC in ns."""

    attempts: int = 0
    slow: list[tuple[int, int]] = field(default_factory=list)
    """The times at which an attempt began and succeeded."""
    failed: list[tuple[int, int, str]] = field(default_factory=list)
    """The times at which an attempt began and failed, and the failure."""

    def succeed(self, began: int, now: int) -> None:
        """Record a success."""
        if now - began >= SLOW_NS:
            self.slow.append((began, now))


@dataclass
class _Attempt:
    stream: int
    socket: socket.socket
    began: int
    again: int = 0
    last: int = 0


class _Flow:
    """A flow from one source port: when the numbers that are on their way were sent."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.waiting: dict[int, int] = {}
        self.next = 0
        self._received = b""

    def answered(self, data: bytes) -> Iterator[int]:
        """Yield when the numbers were sent that came back now."""
        self._received += data
        while len(self._received) >= _NUMBER.size:
            (number,) = _NUMBER.unpack_from(self._received)
            self._received = self._received[_NUMBER.size :]
            if (sent := self.waiting.pop(number, None)) is not None:
                yield sent


class Steady:
    """All streams of one place."""

    def __init__(self, streams: list[Stream]) -> None:
        self._streams = streams
        self._records = [Record() for _ in streams]
        self._poll = select.epoll()
        self._open: dict[int, _Attempt] = {}
        self._flows: dict[int, tuple[int, _Flow]] = {}
        self._flow_of: dict[int, _Flow] = {}
        self._stalls: list[tuple[int, int]] = []

    def run(self, stop: threading.Event, seconds: float | None) -> dict[str, Any]:
        """Try all targets until the time is up or ``stop`` is set. Return the results, also of what was under way."""
        began = time.monotonic_ns()
        due = [began + number * 1_000_000 for number in range(len(self._streams))]
        until = began + int(seconds * 1e9) if seconds is not None else None
        swept = looked = began
        while not stop.is_set() and (until is None or looked < until):
            now = time.monotonic_ns()
            for number, stream in enumerate(self._streams):
                if due[number] <= now:
                    self._begin(number, stream, time.monotonic_ns())
                    due[number] = max(due[number] + stream.interval_ns, now)
            self._handle(min(due))
            looked = time.monotonic_ns()
            if looked - max(now, min(due)) > _STALL_NS:
                self._stalls.append((now, looked))
            if looked - swept > _SWEEP_NS:
                swept = looked
                self._sweep(looked)
        ended = time.monotonic_ns()
        self._finish()
        return {
            "began": began,
            "ended": ended,
            "stalls": self._stalls,
            "streams": {
                stream.name: {"attempts": record.attempts, "slow": record.slow, "failed": record.failed}
                for stream, record in zip(self._streams, self._records, strict=True)
            },
        }

    def _begin(self, number: int, stream: Stream, now: int) -> None:
        self._records[number].attempts += 1
        try:
            if stream.kind.endswith("-fixed"):
                self._send(number, stream, now)
            else:
                self._connect(number, stream, now)
        except OSError as error:
            # A node's own packets may be refused while they are sent.
            self._fail(number, now, _kind_of(error.errno))

    def _fail(self, number: int, began: int, how: str) -> None:
        self._records[number].failed.append((began, time.monotonic_ns(), how))
        if self._streams[number].kind == "tcp-fixed" and (flow := self._flow_of.pop(number, None)):
            # The next attempt opens another connection.
            del self._flows[flow.socket.fileno()]
            self._poll.unregister(flow.socket.fileno())
            flow.socket.close()

    def _connect(self, number: int, stream: Stream, now: int) -> None:
        connection = _open(stream)
        if stream.kind == "udp":
            try:
                connection.send(b"who")
            except OSError:
                connection.close()
                raise
        self._open[connection.fileno()] = _Attempt(number, connection, now)
        self._poll.register(connection.fileno(), select.EPOLLOUT if stream.kind == "tcp" else select.EPOLLIN)

    def _send(self, number: int, stream: Stream, now: int) -> None:
        flow = self._flow_of.get(number)
        if flow is None:
            flow = self._flow_of[number] = _Flow(_open(stream))
            self._flows[flow.socket.fileno()] = (number, flow)
            self._poll.register(flow.socket.fileno(), select.EPOLLIN)
        flow.next += 1
        # An error of a datagram is of this one, or was left by an earlier one.
        flow.socket.send(_NUMBER.pack(flow.next))
        flow.waiting[flow.next] = now

    def _handle(self, until: int) -> None:
        left_s = max(0.0, (until - time.monotonic_ns()) / 1e9)
        for descriptor, _ in self._poll.poll(left_s):
            if descriptor in self._flows:
                self._receive(*self._flows[descriptor])
            elif attempt := self._open.get(descriptor):
                self._end(descriptor, attempt)

    def _receive(self, number: int, flow: _Flow) -> None:
        record = self._records[number]
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data = flow.socket.recv(4096)
                    problem = "" if data else "closed"
                except ConnectionError as error:
                    problem = _kind_of(error.errno)
                if problem:
                    oldest = next(iter(flow.waiting), None)
                    self._fail(number, flow.waiting.pop(oldest) if oldest else time.monotonic_ns(), problem)
                    if number not in self._flow_of:
                        return
                    continue
                for began in flow.answered(data):
                    record.succeed(began, time.monotonic_ns())

    def _end(self, descriptor: int, attempt: _Attempt) -> None:
        stream, record = self._streams[attempt.stream], self._records[attempt.stream]
        problem = attempt.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not problem and stream.kind == "udp":
            try:
                attempt.socket.recv(64)
            except OSError as error:
                problem = error.errno or errno.EIO
        now = time.monotonic_ns()
        self._close(descriptor)
        if attempt.again:
            took = (now - attempt.began) / 1e9
            how = _kind_of(problem) if problem else f"answered by datagram {attempt.again + 1}, after {took:.1f} s"
            record.failed.append((attempt.began, now, f"no answer, then {how}"))
        elif problem:
            record.failed.append((attempt.began, now, _kind_of(problem)))
        else:
            record.succeed(attempt.began, now)

    def _sweep(self, now: int) -> None:
        for number, flow in list(self._flows.values()):
            for name, began in list(flow.waiting.items()):
                if now - began < _LOST_NS[self._streams[number].kind]:
                    break
                del flow.waiting[name]
                self._fail(number, began, "no answer")
        for descriptor, attempt in list(self._open.items()):
            kind = self._streams[attempt.stream].kind
            if now - attempt.began < _LOST_NS[kind] or now - attempt.last < _AGAIN_NS:
                continue
            if kind == "udp" and attempt.again < _AGAIN:
                attempt.again += 1
                attempt.last = now
                with contextlib.suppress(OSError):  # the error is read when the socket is
                    attempt.socket.send(b"who")
                continue
            self._close(descriptor)
            how = "no answer for as long as it sent" if kind == "udp" else "no answer"
            self._records[attempt.stream].failed.append((attempt.began, now, how))

    def _finish(self) -> None:
        deadline = time.monotonic_ns() + max(_LOST_NS.values()) + _AGAIN * _AGAIN_NS + _SWEEP_NS
        while (self._open or any(flow.waiting for _, flow in self._flows.values())) and time.monotonic_ns() < deadline:
            self._handle(time.monotonic_ns() + _SWEEP_NS)
            self._sweep(time.monotonic_ns())
        for _, flow in self._flows.values():
            flow.socket.close()
        self._poll.close()

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor).socket.close()


def _open(stream: Stream) -> socket.socket:
    """Return a socket that is connected, or is being connected."""
    family = socket.AF_INET6 if ":" in stream.host else socket.AF_INET
    if stream.kind == "tcp-fixed":
        connection = socket.create_connection((stream.host, stream.port), _CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        return connection
    connection = socket.socket(family, socket.SOCK_STREAM if stream.kind == "tcp" else socket.SOCK_DGRAM)
    connection.setblocking(False)
    if stream.kind == "tcp":
        # Without it the closed connections would take up all ports within a minute.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    try:
        with contextlib.suppress(BlockingIOError):
            connection.connect((stream.host, stream.port))
    except OSError:
        connection.close()
        raise
    return connection


def _kind_of(number: int | None) -> str:
    if number == errno.ECONNREFUSED:
        return "refused"
    return errno.errorcode.get(number or 0, "unknown")
