"""The clients that are to be challenged, in turns by namespace. No I/O."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.netfilter.conntrack.entries import Endpoint

WAITING_MAX = 1 << 17
"""Of the clients above this number, those that send are reset, and those that wait are not. See ``Challenges``."""
AGAIN_S = 2.0
"""Every client is challenged once more after this time: the first packet may have been lost."""


class Challenge(NamedTuple):
    """A client that is connected to a server."""

    client: Endpoint
    server: Endpoint


class Challenges:
    """Clients that wait, with the namespaces of their farms. One with many does not delay those of another.

    If there are too many, those are left out that were challenged once, then the last of the namespace with the most.
    """

    def __init__(self) -> None:
        self._first: dict[str, deque[Challenge]] = {}
        self._again: deque[tuple[float, Challenge]] = deque()
        self._waiting = 0
        self.news = asyncio.Event()
        """Set when clients are added."""

    def __len__(self) -> int:
        return self._waiting

    def add(self, namespace: str, clients: Iterable[Challenge]) -> int:
        """Add clients. Return how many are left out instead, of any namespace, that were not challenged at all."""
        added = list(clients)
        if not added:
            return 0
        self._first.setdefault(namespace, deque()).extend(added)
        self._waiting += len(added)
        self.news.set()
        return self._shorten()

    def _shorten(self) -> int:
        """Drop clients until no more wait than may. Return how many of them were not challenged at all."""
        while self._again and self._waiting > WAITING_MAX:
            self._again.popleft()
            self._waiting -= 1
        if self._waiting <= WAITING_MAX:
            return 0
        lengths = [len(each) for each in self._first.values()]
        # Up to how many of each namespace all fit. To drop one by one, each from the longest, takes far longer.
        upto = range(1, WAITING_MAX + 1)
        most = bisect_right(upto, WAITING_MAX, key=lambda most: sum(min(each, most) for each in lengths))
        left_out = 0
        for waiting in self._first.values():
            while len(waiting) > most:
                waiting.pop()
                left_out += 1
        self._waiting -= left_out
        return left_out

    def take(self, limit: int, now: float) -> list[Challenge]:
        """Return up to ``limit`` clients to challenge now."""
        due: list[Challenge] = []
        while self._first and len(due) < limit:
            namespace, waiting = next(iter(self._first.items()))
            del self._first[namespace]
            due.append(waiting.popleft())
            self._again.append((now + AGAIN_S, due[-1]))
            if waiting:
                self._first[namespace] = waiting
        while self._again and self._again[0][0] <= now and len(due) < limit:
            due.append(self._again.popleft()[1])
            self._waiting -= 1
        return due
