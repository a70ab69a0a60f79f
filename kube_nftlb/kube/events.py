"""Write Events about objects: best effort, one for each finding for as long as it lasts.

An object with ever new findings gets 25 Events, then one every five minutes, as with client-go.
"""

import asyncio
import itertools
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, Literal, NamedTuple, TypeVar

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.event_limits import Finding, Limiter, Memory
from kube_nftlb.kube.resources import EVENTS, JsonObject, Resource
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.reasons import EventReason

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


_WAITING_MAX = 20_000
"""Of a namespace: two for each of the farms that it may have by default."""
_MESSAGE_MAX = 1024
_RETRY_S = 1.0
_ATTEMPTS_MAX = 3
"""How often an Event is sent at most to an API server that answers and does not take it for now."""
_FINDINGS_MAX = 32

Kind = Literal["Normal", "Warning"]

_log = structlog.get_logger()


class Source(NamedTuple):
    """The reporter of an Event: a program, and its node if that matters."""

    component: str
    node: str = ""


class Subject(NamedTuple):
    """The object that an Event is about."""

    resource: Resource
    namespace: str
    """``""`` for a cluster-scoped object; its Events are in the namespace ``default``."""
    name: str
    uid: str


class EventDraft(NamedTuple):
    """An Event that is not written yet."""

    subject: Subject
    kind: Kind
    reason: EventReason
    message: str


class Part(NamedTuple):
    """An object that has findings, or one part of it, such as a farm of a Service."""

    subject: Subject
    about: str = ""


class _Waiting(NamedTuple):
    """An Event that waits, and of what it is a finding if it is one."""

    draft: EventDraft
    part: Part | None = None
    finding: Finding | None = None


@dataclass(frozen=True)
class Lasting:
    """A finding whose message may change while it lasts."""

    reason: EventReason
    message: str = field(compare=False)


class Events:
    """Queues Events, which ``run`` writes one by one, so that nothing waits for them. Namespaces take turns.

    They wait while the API server cannot be reached: what they say is looked at again only when it changes.

    ``exists`` returns False for what need not be remembered any more.
    """

    def __init__(
        self,
        kube: Kube,
        source: Source,
        exists: Callable[[Part], bool] = lambda _: True,
    ) -> None:
        self._kube = kube
        self._source = source
        self._memory: Memory[Part] = Memory(exists)
        self._logged: Memory[Part] = Memory(exists)
        """Also remembers findings whose Event could not be written: they are not logged at each look."""
        self._limiter = Limiter()
        self._waiting: EventQueue[Subject, _Waiting] = EventQueue(_event_namespace, _WAITING_MAX)

    def report(self, subject: Subject, findings: Iterable[Finding], about: str = "") -> None:
        """Report all current findings of an object: each new one of the first 32 is logged and becomes a Warning.

        With ``about`` they are those of one part of the object, such as a farm of a Service. A finding whose Event
        could not be written becomes one at the next look, and is not logged again.
        """
        part, found = Part(subject, about), tuple(itertools.islice(findings, _FINDINGS_MAX))
        # A part has a log line of its own.
        for finding in self._logged.news(part, found) if not about else ():
            _log.warning("problem", reason=finding.reason, message=finding.message, **_where(subject))
        for finding in self._memory.news(part, found):
            self._queue(_Waiting(EventDraft(subject, "Warning", finding.reason, finding.message), part, finding))

    def report_resolved(self, subject: Subject, reason: EventReason, message: str) -> None:
        """Report, in a Normal Event, that a finding is resolved."""
        _log.info("problem resolved", reason=reason, message=message, **_where(subject))
        self._queue(_Waiting(EventDraft(subject, "Normal", reason, message)))

    def _queue(self, waiting: _Waiting) -> None:
        subject = waiting.draft.subject
        if not self._waiting.has_room(subject):
            _log.warning("event dropped, queue full", reason=waiting.draft.reason, **_where(subject))
            self._forget(waiting)
        elif self._limiter.allows(subject.uid):
            self._waiting.add(subject, waiting)
        else:
            # It is told when the object is looked at again, if it still lasts.
            self._forget(waiting)

    def _forget(self, waiting: _Waiting) -> None:
        if waiting.part is not None and waiting.finding is not None:
            self._memory.forget(waiting.part, waiting.finding)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            waiting = await self._waiting.take()
            try:
                await self._write(waiting.draft)
            except errors.KubeNftlbError as error:
                _log.warning("cannot write event", error=str(error), **_where(waiting.draft.subject))
                self._forget(waiting)

    async def _write(self, draft: EventDraft) -> None:
        """Write an Event, once the API server can be reached. Raises KubeError."""
        body, failures = event(draft, self._source, datetime.now(UTC)), 0
        while True:
            try:
                await self._kube.create(EVENTS, body, _event_namespace(draft.subject))
            except errors.ConflictError:
                # Its name is unique: it was written, and the answer was lost.
                break
            except errors.KubeUnreachableError:
                # Nobody else's could be written meanwhile.
                await asyncio.sleep(_RETRY_S)
                continue
            except errors.KubeError as error:
                failures += 1
                if failures >= _ATTEMPTS_MAX or not error.is_temporary:
                    raise
                await asyncio.sleep(_RETRY_S)
                continue
            break
        metrics.EVENTS.labels(draft.reason).inc()


def event(draft: EventDraft, source: Source, now: datetime) -> JsonObject:
    """Return the v1 Event of a draft, with a unique name."""
    subject, stamp = draft.subject, timestamps.seconds(now)
    return {
        "metadata": {
            "name": f"{subject.name[:200].rstrip('-.')}.{secrets.token_hex(8)}",
            "namespace": _event_namespace(subject),
        },
        "involvedObject": {
            "apiVersion": subject.resource.api_version,
            "kind": subject.resource.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": draft.kind,
        "reason": draft.reason,
        "message": draft.message[:_MESSAGE_MAX],
        "source": {"component": source.component, "host": source.node},
        "reportingComponent": source.component,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _event_namespace(subject: Subject) -> str:
    return subject.namespace or "default"


def _where(subject: Subject) -> dict[str, str]:
    """Return the log keys of an object: namespace, and service, farm, policy, pod or node."""
    namespace = {"namespace": subject.namespace} if subject.namespace else {}
    return {**namespace, subject.resource.kind.removeprefix("Nftlb").lower(): subject.name}
