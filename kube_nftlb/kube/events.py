"""Events on the objects they are about: best effort, each problem told once for as long as it lasts.

An object that has new problems all the time gets 25 Events, and then one in five minutes, as with client-go.
"""

import asyncio
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import EVENTS, Resource
from kube_nftlb.reasons import EventReason

_REMEMBERED_MAX = 4096
_WAITING_MAX = 1024
_MESSAGE_MAX = 1024
_PROBLEMS_MAX = 32
_BURST = 25
_REFILL_S = 300.0

Kind = Literal["Normal", "Warning"]

_log = structlog.get_logger()


class Finding(Protocol):
    """What an Event tells: a word in CamelCase, and a sentence that says what to do. Equal ones are told once."""

    @property
    def reason(self) -> EventReason: ...  # noqa: D102 (the class says it)

    @property
    def message(self) -> str: ...  # noqa: D102 (the class says it)


class Source(NamedTuple):
    """Who tells an Event: a program, and the node that it runs on where that matters."""

    component: str
    node: str = ""


class Subject(NamedTuple):
    """The object that an Event is about."""

    resource: Resource
    namespace: str
    """Empty for an object that is in none; its Events are in the namespace ``default``."""
    name: str
    uid: str


class EventDraft(NamedTuple):
    """What is told of an object."""

    subject: Subject
    kind: Kind
    reason: EventReason
    message: str


@dataclass(frozen=True)
class Lasting:
    """A problem whose sentence may change while it lasts."""

    reason: EventReason
    message: str = field(compare=False)


class Memory:
    """Which problems of which object (by its uid, or the like) were told already; of the last 4,096 with problems."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, frozenset[Finding]] = OrderedDict()

    def news(self, uid: str, problems: Iterable[Finding]) -> list[Finding]:
        """Those of an object's problems that it did not have before; one that comes back later is news again."""
        now = tuple(dict.fromkeys(problems))
        before = self._told.pop(uid, frozenset())
        if now:
            self._told[uid] = frozenset(now)
        if len(self._told) > _REMEMBERED_MAX:
            self._told.popitem(last=False)
        return [problem for problem in now if problem not in before]


class Limiter:
    """Whether one more Event may be told of an object; ``clock`` tells seconds. The last 4,096 objects count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, uid: str) -> bool:
        """Count one more, if it may be told."""
        now = self._clock()
        left, at = self._left.pop(uid, (float(_BURST), now))
        left = min(_BURST, left + (now - at) / _REFILL_S)
        allowed = left >= 1
        self._left[uid] = (left - 1 if allowed else left, now)
        if len(self._left) > _REMEMBERED_MAX:
            self._left.popitem(last=False)
        return allowed


class Events:
    """Writes Events one after the other in ``run``, so that they never hold up anything else."""

    def __init__(self, kube: Kube, source: Source, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._kube = kube
        self._source = source
        self._now = now
        self._memory = Memory()
        self._limiter = Limiter()
        self._waiting: asyncio.Queue[EventDraft] = asyncio.Queue(_WAITING_MAX)

    def report(self, subject: Subject, problems: Iterable[Finding], about: str = "") -> None:
        """These are all problems that an object has now; each new one of the first 32 is logged and becomes a Warning.

        With ``about`` they are all that it has of one part of it, such as a farm of a Service.
        """
        for problem in self._memory.news(f"{subject.uid}/{about}", itertools.islice(problems, _PROBLEMS_MAX)):
            if not about:
                # Of a part the part's own line tells.
                _log.warning("problem", reason=problem.reason, message=problem.message, **_where(subject))
            self._queue(EventDraft(subject, "Warning", problem.reason, problem.message))

    def report_resolved(self, subject: Subject, reason: EventReason, message: str) -> None:
        """Something that is no problem: that one is over."""
        _log.info("problem is over", reason=reason, message=message, **_where(subject))
        self._queue(EventDraft(subject, "Normal", reason, message))

    def _queue(self, told: EventDraft) -> None:
        metrics.EVENTS.labels(told.reason).inc()
        if not self._limiter.allows(told.subject.uid):
            return
        try:
            self._waiting.put_nowait(told)
        except asyncio.QueueFull:
            _log.warning("event dropped", reason=told.reason, **_where(told.subject))

    async def run(self) -> None:
        """Write what was told, for ever."""
        while True:
            told = await self._waiting.get()
            try:
                body = event(told, self._source, self._now())
                await self._kube.create(EVENTS, body, _event_namespace(told.subject))
            except errors.KubeNftlbError as error:
                _log.warning("event not written", error=str(error), **_where(told.subject))


def event(told: EventDraft, source: Source, now: datetime) -> dict[str, object]:
    """The v1 Event of what is told, with a name of its own."""
    subject, stamp = told.subject, timestamps.seconds(now)
    return {
        "metadata": {"name": f"{subject.name[:200]}.{secrets.token_hex(8)}", "namespace": _event_namespace(subject)},
        "involvedObject": {
            "apiVersion": subject.resource.api_version,
            "kind": subject.resource.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": told.kind,
        "reason": told.reason,
        "message": told.message[:_MESSAGE_MAX],
        "source": {"component": source.component, "host": source.node},
        "reportingComponent": source.component,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _event_namespace(subject: Subject) -> str:
    return subject.namespace or "default"


def _where(subject: Subject) -> dict[str, str]:
    """The keys by which a log line names an object: namespace, and service, farm, policy, pod or node."""
    namespace = {"namespace": subject.namespace} if subject.namespace else {}
    return {**namespace, subject.resource.kind.removeprefix("Nftlb").lower(): subject.name}
