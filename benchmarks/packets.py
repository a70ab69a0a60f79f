"""CPU time of a packet through a VIP in the kernel: the proxy's own part of the data path.

A thread sends UDP packets from the client's pod to a server that does not read them. The kernel carries each packet
through the node's rules into the server's socket before the system call returns, so the thread's CPU time is that of
the packet, whatever else the machine does.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.cluster import CLIENT_POD
from kube_nftlb import errors
from lab.lab import Lab

PORT = 9999
FIRST, LATER = "processor time of a connection's first packet", "processor time of a connection's later packets"

_FLOWS = 2000
_PACKETS = 20000
_ANSWERED_WITHIN_S = 5


class Target(NamedTuple):
    """An address that leads to a server."""

    name: str
    lab: Lab
    host: str


@contextlib.contextmanager
def server(lab: Lab, pod: str) -> Iterator[socket.socket]:
    """Open a UDP server in a pod, which does not reply by itself."""
    listener = lab.inside(pod, _bind)
    try:
        yield listener
    finally:
        listener.close()


def first_ns(target: Target) -> float:
    """Return the mean CPU time of a connection's first packet, in ns."""

    def send() -> int:
        with contextlib.ExitStack() as stack:
            senders = [stack.enter_context(_connect(target.host)) for _ in range(_FLOWS)]
            calls = [sender.send for sender in senders]
            return _time(calls)

    return target.lab.inside(CLIENT_POD, send) / _FLOWS


def later_ns(target: Target, listener: socket.socket) -> float:
    """Return the mean CPU time of packets after the server's reply, in ns. Raises LabError if none arrive."""

    def send() -> int:
        with _connect(target.host) as sender:
            _introduce(target, sender, listener)
            return _time([sender.send] * _PACKETS)

    return target.lab.inside(CLIENT_POD, send) / _PACKETS


def _introduce(target: Target, sender: socket.socket, listener: socket.socket) -> None:
    """Send one packet each way, which establishes the connection."""
    deadline = time.monotonic() + _ANSWERED_WITHIN_S
    word = str(time.monotonic_ns()).encode()
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError, ConnectionRefusedError):
            sender.send(word)
            while True:
                # Drop packets left from earlier rounds.
                data, peer = listener.recvfrom(100)
                if data == word:
                    listener.sendto(data, peer)
                    sender.recv(100)
                    return
    raise errors.LabError(f"no packet arrives through {target.name} at {target.host}:{PORT}")


def _time(calls: Sequence[Callable[[bytes], int]]) -> int:
    began = time.thread_time_ns()
    for call in calls:
        call(b"packet")
    return time.thread_time_ns() - began


def _connect(host: str) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.settimeout(1)
    sender.connect((host, PORT))
    return sender


def _bind() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # Excess packets are dropped, at the same cost for all.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.settimeout(1)
    listener.bind(("0.0.0.0", PORT))  # noqa: S104 (in the pod only)
    return listener
