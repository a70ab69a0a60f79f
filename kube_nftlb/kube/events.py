"""Write Events about objects: best effort, one for each finding for as long as it lasts.

An object with ever new findings gets 25 Events, then one every five minutes, as with client-go.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.event_limits import Finding, Limiter, Memory
from kube_nftlb.kube.resources import EVENTS, JsonObject, Resource
from kube_nftlb.reasons import EventReason

_WAITING_MAX = 1024
_MESSAGE_MAX = 1024
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


@dataclass(frozen=True)
class Lasting:
    """A finding whose message may change while it lasts."""

    reason: EventReason
    message: str = field(compare=False)


class Events:
    """Queues Events, which ``run`` writes one by one, so that nothing waits for them."""

    def __init__(self, kube: Kube, source: Source, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._kube = kube
        self._source = source
        self._now = now
        self._memory = Memory()
        self._limiter = Limiter()
        self._waiting: asyncio.Queue[EventDraft] = asyncio.Queue(_WAITING_MAX)

    def report(self, subject: Subject, findings: Iterable[Finding], about: str = "") -> None:
        """Report all current findings of an object: each new one of the first 32 is logged and becomes a Warning.

        With ``about`` they are those of one part of the object, such as a farm of a Service.
        """
        for finding in self._memory.news(f"{subject.uid}/{about}", itertools.islice(findings, _FINDINGS_MAX)):
            if not about:
                # A part has a log line of its own.
                _log.warning("problem", reason=finding.reason, message=finding.message, **_where(subject))
            self._queue(EventDraft(subject, "Warning", finding.reason, finding.message))

    def report_resolved(self, subject: Subject, reason: EventReason, message: str) -> None:
        """Report, in a Normal Event, that a finding is resolved."""
        _log.info("problem resolved", reason=reason, message=message, **_where(subject))
        self._queue(EventDraft(subject, "Normal", reason, message))

    def _queue(self, draft: EventDraft) -> None:
        metrics.EVENTS.labels(draft.reason).inc()
        if not self._limiter.allows(draft.subject.uid):
            return
        try:
            self._waiting.put_nowait(draft)
        except asyncio.QueueFull:
            _log.warning("event dropped, queue full", reason=draft.reason, **_where(draft.subject))

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            draft = await self._waiting.get()
            try:
                body = event(draft, self._source, self._now())
                await self._kube.create(EVENTS, body, _event_namespace(draft.subject))
            except errors.KubeNftlbError as error:
                _log.warning("cannot write event", error=str(error), **_where(draft.subject))


def event(draft: EventDraft, source: Source, now: datetime) -> JsonObject:
    """Return the v1 Event of a draft, with a unique name."""
    subject, stamp = draft.subject, timestamps.seconds(now)
    return {
        "metadata": {"name": f"{subject.name[:200]}.{secrets.token_hex(8)}", "namespace": _event_namespace(subject)},
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
