"""Warning Events on the objects they are about: best effort, each told once for as long as it lasts."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import structlog

from kube_nftlb import errors
from kube_nftlb.kube import EVENTS, Kube, Resource

_REMEMBERED_MAX = 4096
_WAITING_MAX = 1024
_MESSAGE_MAX = 1024

_log = structlog.get_logger()


class Problem(Protocol):
    """What an Event tells: a word in CamelCase, and a sentence that says what to do. Equal ones are told once."""

    @property
    def reason(self) -> str: ...  # noqa: D102 (the class says it)

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
    name: str
    uid: str


class Memory:
    """Which problems of which object (by its uid) were told already; the last 4,096 objects with problems."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, frozenset[Problem]] = OrderedDict()

    def news(self, uid: str, problems: Iterable[Problem]) -> list[Problem]:
        """Those of an object's problems that it did not have before; one that comes back later is news again."""
        now = tuple(dict.fromkeys(problems))
        before = self._told.pop(uid, frozenset())
        if now:
            self._told[uid] = frozenset(now)
        if len(self._told) > _REMEMBERED_MAX:
            self._told.popitem(last=False)
        return [problem for problem in now if problem not in before]


class Events:
    """Writes Events one after the other in ``run``, so that they never hold up anything else."""

    def __init__(self, kube: Kube, source: Source, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._kube = kube
        self._source = source
        self._now = now
        self._memory = Memory()
        self._waiting: asyncio.Queue[tuple[Subject, Problem]] = asyncio.Queue(_WAITING_MAX)

    def tell(self, subject: Subject, problems: Iterable[Problem]) -> None:
        """These are all problems that an object has now; each new one is logged and becomes an Event."""
        for problem in self._memory.news(subject.uid, problems):
            where = {"kind": subject.resource.kind, "namespace": subject.namespace, "name": subject.name}
            _log.warning("problem", reason=problem.reason, message=problem.message, **where)
            try:
                self._waiting.put_nowait((subject, problem))
            except asyncio.QueueFull:
                _log.warning("event dropped", reason=problem.reason, **where)

    async def run(self) -> None:
        """Write what was told, for ever."""
        while True:
            subject, problem = await self._waiting.get()
            try:
                body = event(subject, problem, self._source, self._now())
                await self._kube.create(EVENTS, body, subject.namespace)
            except errors.KubeNftlbError as error:
                _log.warning("event not written", kind=subject.resource.kind, name=subject.name, error=str(error))


def event(subject: Subject, problem: Problem, source: Source, now: datetime) -> dict[str, object]:
    """The v1 Event about one problem, with a name of its own."""
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"name": f"{subject.name[:200]}.{secrets.token_hex(8)}", "namespace": subject.namespace},
        "involvedObject": {
            "apiVersion": subject.resource.api_version,
            "kind": subject.resource.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": "Warning",
        "reason": problem.reason,
        "message": problem.message[:_MESSAGE_MAX],
        "source": {"component": source.component, "host": source.node},
        "reportingComponent": source.component,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
