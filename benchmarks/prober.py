"""Try an address every millisecond, and report when it started to answer or to refuse.

As a program in a pod it reads ``answers IP PORT SECONDS`` and ``refuses IP PORT SECONDS`` from standard input, one per
line. It prints ``began`` with the first attempt, then a line of JSON: ``monotonic_ns`` is the CLOCK_MONOTONIC time at
which the first connection was established, or at which the first attempt was made after which none succeeded. It uses
only the standard library, so that it runs where this package is not installed.
"""

import json
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

INTERVAL_NS = 1_000_000
_LOST_NS = 200_000_000
"""A SYN unanswered for this long is lost; the kernel would retransmit it after a second."""
_IN_A_ROW = 3
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Outcomes:
    """The outcomes of connections, in the order of the attempts."""

    begun: list[int] = field(default_factory=list)
    ended: list[bool | None] = field(default_factory=list)
    first_success: int | None = None
    """The time at which the first connection was established."""
    _last_success: int = -1
    _lost_until: int = 0

    def begin(self, now: int) -> int:
        """Record an attempt and return its number."""
        self.begun.append(now)
        self.ended.append(None)
        return len(self.begun) - 1

    def end(self, number: int, success: bool, now: int) -> None:
        """Record that a connection was established or failed."""
        self.ended[number] = success
        if success:
            self._last_success = max(self._last_success, number)
            if self.first_success is None:
                self.first_success = now

    def refuses_since(self) -> int | None:
        """Return the time of the first attempt that failed after the last success; None while it may still answer."""
        after = self._last_success + 1
        in_a_row = self.ended[after : after + _IN_A_ROW]
        return self.begun[after] if in_a_row == [False] * _IN_A_ROW else None


class _Attempts:
    """Connections in progress."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._poll = select.epoll()
        self._open: dict[int, tuple[socket.socket, int]] = {}
        self.outcomes = Outcomes()

    def begin(self) -> None:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        number = self.outcomes.begin(time.monotonic_ns())
        self._open[connection.fileno()] = (connection, number)
        connection.connect_ex(self._target)
        self._poll.register(connection.fileno(), select.EPOLLOUT | select.EPOLLERR)

    def wait(self, until_ns: int) -> None:
        """Handle events until a deadline."""
        while True:
            left_s = (until_ns - time.monotonic_ns()) / 1e9
            for descriptor, _ in self._poll.poll(max(0.0, left_s)):
                connection, _ = self._open[descriptor]
                self._end(descriptor, connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0)
            if left_s <= 0:
                break
        lost = time.monotonic_ns() - _LOST_NS
        for descriptor, (_, number) in list(self._open.items()):
            if self.outcomes.begun[number] > lost:
                break
            self._end(descriptor, success=False)

    def close(self) -> None:
        for connection, _ in self._open.values():
            connection.close()
        self._poll.close()

    def _end(self, descriptor: int, success: bool) -> None:
        now = time.monotonic_ns()
        self._poll.unregister(descriptor)
        connection, number = self._open.pop(descriptor)
        connection.close()
        self.outcomes.end(number, success, now)


def probe(action: str, host: str, port: int, timeout_s: float) -> dict[str, int | None]:
    """Try until the address answers (``answers``) or refuses; the time is missing on timeout."""
    attempts = _Attempts(host, port)
    next_ns = time.monotonic_ns()
    deadline = next_ns + int(timeout_s * 1e9)
    _say("began")
    try:
        while next_ns < deadline:
            attempts.begin()
            next_ns = max(next_ns + INTERVAL_NS, time.monotonic_ns())
            attempts.wait(next_ns)
            outcomes = attempts.outcomes
            at = outcomes.first_success if action == "answers" else outcomes.refuses_since()
            if at is not None:
                return {"monotonic_ns": at, "attempts": len(outcomes.begun)}
    finally:
        attempts.close()
    return {"monotonic_ns": None, "attempts": len(attempts.outcomes.begun)}


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        action, host, port, timeout_s = line.split()
        _say(json.dumps(probe(action, host, int(port), float(timeout_s))))


if __name__ == "__main__":
    main()
