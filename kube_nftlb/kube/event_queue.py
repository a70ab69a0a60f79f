"""The queue of Events that are not written yet."""

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kube_nftlb.kube.workqueue import WorkQueue

S = TypeVar("S", bound=Hashable)
E = TypeVar("E")


class EventQueue(Generic[S, E]):
    """Events in the order of each object; objects take turns, and so do namespaces.

    No more than ``limit`` Events of a namespace wait.
    """

    def __init__(self, namespace: Callable[[S], str], limit: int) -> None:
        self._namespace = namespace
        self._limit = limit
        self._objects: WorkQueue[S] = WorkQueue(time.monotonic, group=namespace)
        self._events: dict[S, deque[E]] = {}
        self._waiting: Counter[str] = Counter()

    def has_room(self, subject: S) -> bool:
        """Return True if one more Event about an object may wait."""
        return self._waiting[self._namespace(subject)] < self._limit

    def add(self, subject: S, event: E) -> None:
        """Queue an Event about an object."""
        self._events.setdefault(subject, deque()).append(event)
        self._waiting[self._namespace(subject)] += 1
        self._objects.add(subject)

    async def take(self) -> E:
        """Wait for the next Event and remove it."""
        subject = await self._objects.get()
        events, namespace = self._events[subject], self._namespace(subject)
        event = events.popleft()
        self._waiting[namespace] -= 1
        if not self._waiting[namespace]:
            del self._waiting[namespace]
        self._objects.done(subject)
        if events:
            self._objects.add(subject)
        else:
            del self._events[subject]
        return event
