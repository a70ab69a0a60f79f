"""Clean up the sessions of persistent farms whose backends are gone.

They are told by marks: each packet of a connection with the mark of a backend renews the session that leads there. So
UDP flows with such a mark are forgotten here first, of persistent farms alone. Those of all farms, to whatever endpoint
that is gone, and without marks, are forgotten by ``agent.connections.connections``.
"""

from collections.abc import Mapping
from typing import NamedTuple

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.connections.allowed import targets
from kube_nftlb.agent.connections.connections import Table
from kube_nftlb.agent.engine.nftlb.mirror import listeners
from kube_nftlb.agent.engine.nftlb.sessions import Sessions
from kube_nftlb.netfilter.conntrack import filters
from kube_nftlb.netfilter.conntrack.entries import UDP
from kube_nftlb.nftlb import objects

WATCH_S = 2
"""Stale sessions are looked for until this long after a change: one may just have begun."""
_ATTEMPTS_MAX = 5
"""Times that the kernel is asked to forget what it refuses to, once in each pass."""

_log = structlog.get_logger()


class _Watch(NamedTuple):
    """The marks to clean up of a farm that changed a moment ago, and when that ends, in seconds."""

    marks: set[int]
    until: float


class StaleSessions:
    """Cleans up at once, and for a while after, the sessions of farms that nftlb has (``present``)."""

    def __init__(self, present: Mapping[str, objects.Farm], sessions: Sessions, table: Table) -> None:
        self._present = present
        self._sessions = sessions
        self._table = table
        self._expected: dict[str, set[int]] = {}
        self._attempts = 0
        """Calls that failed since all was cleaned up."""
        self._watched: dict[str, _Watch] = {}

    def expect(self, gone: Mapping[str, set[int]]) -> None:
        """Note the marks that steps will leave behind, before they are carried out, as they may break off half-way."""
        for name, marks in gone.items():
            self._expected[name] = self._expected.get(name, set()) | marks

    async def clean(self, now: float) -> None:
        """Clean up after the steps.

        Raises KernelError. What the kernel refuses is asked again by the next calls, but not for ever.
        """
        self._attempts += 1
        try:
            for name, marks in self._expected.items():
                watched = marks | (self._watched[name].marks if name in self._watched else set())
                self._watched[name] = _Watch(watched, now + WATCH_S)
                await self.release(name, watched)
        except errors.KernelError:
            if self._attempts >= _ATTEMPTS_MAX:
                _log.warning("stale sessions are left: the kernel has refused to forget them too often")
                self._expected.clear()
                self._attempts = 0
            raise
        self._expected.clear()
        self._attempts = 0

    async def again(self, now: float) -> None:
        """Clean up once more after the farms that changed a moment ago. Raises KernelError."""
        for name, watch in list(self._watched.items()):
            if now > watch.until:
                del self._watched[name]
            await self.release(name, watch.marks)

    async def release(self, name: str, marks: set[int]) -> None:
        """Forget a farm's sessions of backends that are gone: of ``marks``, and of those that sessions name.

        Before, UDP flows with these marks are forgotten, and other connections go on without. Raises KernelError.
        """
        farm = self._present.get(name)
        if farm is None or not farm.persistent:
            return
        alive = {backend.mark for backend in farm.backends.values() if backend.state != "down"}
        gone = (marks | set((await self._sessions.dynamic(farm)).values())) - alive
        if not gone:
            return
        narrowed = filters.with_mark(min(gone), objects.MARK_LAST) if len(gone) == 1 else b""
        to = set(targets(listeners(farm)))
        found = await self._table.find(to, lambda each: each.mark & objects.MARK_LAST in gone, narrowed)
        await self._table.forget([each for each in found if each.protocol == UDP])
        await self._table.unmark([each for each in found if each.protocol != UDP])
        metrics.STALE_CONNECTIONS_REMOVED.labels("BackendGone").inc(len(found))
        # Only now: with its mark a connection would have made a session anew.
        await self._sessions.forget(farm, gone)
