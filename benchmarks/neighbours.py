"""``python -m benchmarks.neighbours IP...``: ask who has addresses, one after the other, until told to end.

Runs where the addresses' segment is. Prints the times of the answers in milliseconds, and the number of questions
without one, as JSON. A time ends when the kernel receives the answer: a client's own ARP waits for no program to wake.
"""

import json
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.links import Link

_LINK: Final = "eth0"
_EVERY_S, _PATIENCE_S = 0.02, 1.0
_IPV4_BYTES: Final = 4
_SO_TIMESTAMPNS: Final = 35
"""Of asm-generic/socket.h: a struct timespec of the real-time clock with each frame."""
_FRAME_MAX, _NOTE_MAX = 2048, 64


class _OverError(Exception):
    pass


def main() -> None:
    """Ask until SIGTERM."""

    def end(*_: object) -> None:
        raise _OverError

    signal.signal(signal.SIGTERM, end)
    link = Link.open(_LINK)
    for each in link.sockets:
        each.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    mac, took, lost, number = link.addresses().mac, list[float](), 0, 0
    try:
        while True:
            ip = ip_address(sys.argv[1:][number % (len(sys.argv) - 1)]).packed
            number += 1
            question = arp.question(mac, ip) if len(ip) == _IPV4_BYTES else ndp.probe(mac, ip)
            began = time.time()
            link.send(question)
            if (came := _answered(link, ip, time.monotonic() + _PATIENCE_S)) is not None:
                took.append((came - began) * 1000)
            else:
                lost += 1
            time.sleep(_EVERY_S)
    except _OverError:
        print(json.dumps({"took": took, "lost": lost}))


def _answered(link: Link, ip: bytes, until: float) -> float | None:
    """Return when the answer came, by the real-time clock; None if there was none until then."""
    while (left := until - time.monotonic()) > 0:
        select.select(link.sockets, (), (), left)
        for frame, came in _frames(link):
            said = arp.read(frame) or ndp.read(frame)
            if said is not None and said.statement is not None and said.statement.ip == ip:
                return came
    return None


def _frames(link: Link) -> Iterator[tuple[bytes, float]]:
    for each in link.sockets:
        while True:
            try:
                frame, notes, _, _ = each.recvmsg(_FRAME_MAX, _NOTE_MAX)
            except BlockingIOError:
                break
            seconds, nanoseconds = struct.unpack("@qq", notes[0][2])
            yield frame, seconds + nanoseconds / 1e9


if __name__ == "__main__":
    main()
