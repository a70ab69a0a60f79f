"""``count``: count the replies to N connections by pod."""

import socket
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from lab.traffic.ask import Target, ask_tcp, ask_udp, kind_of, open_udp
from lab.traffic.http import Answer


@dataclass
class Tally:
    """Replies by pod, client addresses as seen by the pods, and failures by kind."""

    answers: Counter[str] = field(default_factory=Counter)
    peers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def success(self, answer: Answer) -> None:
        """Count a reply."""
        self.answers[answer.pod] += 1
        self.peers[answer.peer] += 1

    def failure(self, error: Exception) -> None:
        """Count a failure."""
        self.failures[kind_of(error)] += 1

    def summary(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {"answers": dict(self.answers), "peers": dict(self.peers), "failures": dict(self.failures)}


def count_tcp(target: Target, number: int, source_port: int, same_source: bool) -> Tally:
    """Open connections one at a time."""
    port = source_port or (_free_port(target, socket.SOCK_STREAM) if same_source else 0)
    tally = Tally()
    for _ in range(number):
        try:
            tally.success(ask_tcp(target, port))
        except (OSError, ValueError) as error:
            tally.failure(error)
    return tally


def count_udp(target: Target, number: int, source_port: int, same_source: bool) -> Tally:
    """Send datagrams one at a time, each from its own socket and, unless ``same_source``, its own port."""
    port = source_port or (_free_port(target, socket.SOCK_DGRAM) if same_source else 0)
    tally = Tally()
    for _ in range(number):
        try:
            with closing(open_udp(target, port)) as asker:
                tally.success(ask_udp(asker))
        except (OSError, ValueError) as error:
            tally.failure(error)
    return tally


def _free_port(target: Target, kind: socket.SocketKind) -> int:
    with socket.socket(target.family, kind) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
