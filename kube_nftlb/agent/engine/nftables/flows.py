"""Forget the UDP flows that lead where they should not any more, and cut connections to backends that are down.

Conntrack sends the packets of a flow where its first one went, and does not ask the rules again. A node may have a
million connections, so a task of its own looks through them: once for all farms that have changed, and after a rest.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.clock import Clock, rest_s
from kube_nftlb.agent.endpoints.selection import cut_off
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.untranslated import destinations
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack import Connections, Destination, Stale

WATCH_S = 2
"""Flows are looked for until this many seconds after a change: one may just have begun."""
_AGAIN_S = 1
_IDLE_S = 60.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Cleanup:
    """What to forget after a change of a farm, when next, and until when, in seconds."""

    stale: Stale
    due: float
    until: float


class Flows:
    """Cleans up after changes at once, and for a while after. ``run`` does it."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self._closed: dict[str, _Cleanup] = {}
        """For the listeners that farms have given up, by the farm's name."""
        self._changed: dict[str, _Cleanup] = {}
        self._endpoints: dict[str, frozenset[tuple[bytes, int]]] = {}
        """The endpoints that flows of a farm may lead to, by its name."""
        self._news = asyncio.Event()

    def changed(self, name: str, farm: NodeFarm | None, before: Iterable[Listener], *, served: bool) -> None:
        """Note the change of a farm that had the listeners ``before``, and was ``served`` or not; None: it is gone."""
        listeners = set(farm.listeners) if farm is not None else set()
        if closed := [each for each in before if each not in listeners]:
            self._watch(self._closed, name, Stale(_destinations(closed), frozenset()))
        if farm is None:
            self._endpoints.pop(name, None)
            self._changed.pop(name, None)
            return
        kept = _endpoints(farm)
        earlier = self._endpoints.get(name)
        self._endpoints[name] = kept
        cut = cut_off(farm.spec) - {each.backend.ip for each in farm.endpoints}
        begun = not farm.refuses and (not served or not listeners <= set(before))
        if kept != earlier or cut or begun:
            watched = self._changed.get(name)
            begun = begun or (watched is not None and watched.stale.begun)
            self._watch(self._changed, name, Stale(_destinations(listeners), kept, begun, frozenset(cut)))

    def forget_stale(self, name: str, listeners: Iterable[Listener]) -> None:
        """Forget flows to endpoints that a farm has not."""
        if name in self._endpoints and name not in self._changed:
            self._watch(self._changed, name, Stale(_destinations(listeners), self._endpoints[name]), watch_s=0)

    def _watch(self, cleanups: dict[str, _Cleanup], name: str, stale: Stale, watch_s: float = WATCH_S) -> None:
        if stale.cut or any(each.protocol == "udp" for each in stale.to):
            now = self._clock.now()
            # At the end: of two that had a listener, the later one has it.
            cleanups.pop(name, None)
            cleanups[name] = _Cleanup(stale, now, now + watch_s)
            self._news.set()

    async def run(self) -> None:
        """Clean up until cancelled."""
        while True:
            began = self._clock.now()
            self._news.clear()
            if await self.clean():
                await self._clock.sleep(rest_s(self._clock.now() - began))
            due = min((each.due for each in self._all()), default=None)
            wait_s = _IDLE_S if due is None else max(due - self._clock.now(), 0)
            await self._clock.wait(self._news, wait_s)

    async def clean(self) -> bool:
        """Forget what is due. Return True if anything was."""
        now = self._clock.now()
        due = [each.stale for each in self._all() if each.due <= now]
        if not due:
            return False
        for cleanups in (self._closed, self._changed):
            for name, each in list(cleanups.items()):
                if each.due <= now < each.until:
                    cleanups[name] = replace(each, due=min(now + _AGAIN_S, each.until))
                elif each.due <= now:
                    del cleanups[name]
        try:
            await self._connections.forget(due)
        except errors.KernelError as error:
            # Those that were watched are looked for once more.
            _log.warning("cannot forget stale flows", error=str(error))
        return True

    def _all(self) -> list[_Cleanup]:
        # A listener that one farm gave up may be another's by now, whose endpoints count.
        return [*self._closed.values(), *self._changed.values()]


def _destinations(listeners: Iterable[Listener]) -> tuple[Destination, ...]:
    return tuple(each for listener in listeners for each in destinations(listener))


def _endpoints(farm: NodeFarm) -> frozenset[tuple[bytes, int]]:
    backends = [*(each.backend for each in farm.endpoints), *farm.candidates.cluster]
    return frozenset((layout.packed(each.ip), each.port or 0) for each in backends)
