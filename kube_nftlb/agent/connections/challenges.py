"""The clients that are to be challenged, in turns by namespace. No I/O."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.netfilter.tcp_connections import Endpoint

WAITING_MAX = 1 << 17
"""Of the clients above this number, those that send are reset, and those that wait are not."""
AGAIN_S = 2.0
"""Every client is challenged once more after this time: the first packet may have been lost."""


class Challenge(NamedTuple):
    """A client that is connected to a server."""

    client: Endpoint
    server: Endpoint


class Challenges:
    """Clients that wait, with the namespaces of their farms. One with many does not delay those of another."""

    def __init__(self) -> None:
        self._first: dict[str, deque[Challenge]] = {}
        self._again: deque[tuple[float, Challenge]] = deque()
        self._waiting = 0
        self.news = asyncio.Event()
        """Set when clients are added."""

    def __len__(self) -> int:
        return self._waiting

    def add(self, namespace: str, clients: Iterable[Challenge]) -> int:
        """Add clients. Return how many were left out."""
        added = list(clients)
        fit = added[: max(0, WAITING_MAX - self._waiting)]
        if fit:
            self._first.setdefault(namespace, deque()).extend(fit)
            self._waiting += len(fit)
            self.news.set()
        return len(added) - len(fit)

    def take(self, limit: int, now: float) -> list[Challenge]:
        """Return up to ``limit`` clients to challenge now."""
        taken: list[Challenge] = []
        while self._first and len(taken) < limit:
            namespace, waiting = next(iter(self._first.items()))
            del self._first[namespace]
            taken.append(waiting.popleft())
            self._again.append((now + AGAIN_S, taken[-1]))
            if waiting:
                self._first[namespace] = waiting
        while self._again and self._again[0][0] <= now and len(taken) < limit:
            taken.append(self._again.popleft()[1])
            self._waiting -= 1
        return taken
