"""``answerers``: ask the segment all the time who has an address, and note who answers: two at once are one too many.

It asks as a host of its own, with a link-layer address that nobody else has. So the kernel here does not take the
answers, and connects as if nobody had asked.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.heard import Heard

_LINK: Final = "eth0"
_MAC: Final = bytes.fromhex("0200000000a5")
_LINK_LOCAL: Final = ip_address("fe80::a5").packed
_FRAME_MAX: Final = 2048


class Round(NamedTuple):
    """A question, and all answers until the next one."""

    asked_at: float
    """CLOCK_MONOTONIC in seconds."""
    macs: set[str]


def answerers(host: str, every_s: float, stop: threading.Event) -> dict[str, Any]:
    """Ask until ``stop`` is set, and return the summary. Raises OSError without the link, or CAP_NET_RAW."""
    ip = ip_address(host).packed
    protocol, question, read = _wire(ip)
    rounds: list[Round] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as link:
        link.bind((_LINK, protocol))
        while not stop.is_set():
            rounds.append(Round(time.monotonic(), set()))
            link.send(question)
            for frame in _until(rounds[-1].asked_at + every_s, link):
                heard = read(frame) if frame.startswith(_MAC) else None
                if heard is not None and heard.statement is not None and heard.statement.ip == ip:
                    rounds[-1].macs.add(heard.statement.mac.hex(":"))
    return summarize(rounds, time.monotonic())


def summarize(rounds: Sequence[Round], ended_at: float) -> dict[str, Any]:
    """Return for how long the questions had two answers, and who answered from when on."""
    ends = [*(each.asked_at for each in rounds), ended_at][1:]
    two_s = sum(end - each.asked_at for each, end in zip(rounds, ends, strict=True) if len(each.macs) > 1)
    changes = [each for before, each in pairwise([Round(0, set()), *rounds]) if each.macs != before.macs]
    return {
        "questions": len(rounds),
        "two_ms": round(two_s * 1000, 3),
        "answers": [[each.asked_at, sorted(each.macs)] for each in changes],
    }


def _wire(ip: bytes) -> tuple[int, bytes, Callable[[bytes], Heard | None]]:
    """Return the protocol, the question and what reads an answer, which comes to the link-layer address that asks."""
    if len(ip) == 4:
        return arp.PROTOCOL, arp.question(_MAC, ip), arp.read
    # The answer to a probe would be for all, and nodes would hear of each other by it.
    to_group = b"\x33\x33" + ndp.group(ip)[-4:]
    return ndp.PROTOCOL, ndp.question(_MAC, ip, _LINK_LOCAL, to_group), ndp.read


def _until(end: float, link: socket.socket) -> Iterator[bytes]:
    while (left := end - time.monotonic()) > 0:
        link.settimeout(left)
        try:
            yield link.recv(_FRAME_MAX)
        except TimeoutError:
            return
