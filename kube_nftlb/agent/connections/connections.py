"""Ends the connections of farms that may not go on, and counts those that may.

Conntrack sends the packets of a connection where its first one went, and does not ask the rules again. So UDP flows to
endpoints that are gone are forgotten, as are all connections to backends that are down. TCP connections of farms with
``onGone: cut`` are, too: a rule of the agent table then resets each by the next packet of its client, and a client that
waits for data, and sends none, is challenged to. What nobody has answered yet is forgotten, too, once its endpoint is
gone (``unanswered``). A node may have a million connections, and a tenant a hundred thousand
to one endpoint. So tasks of their own look through them, once for all farms that have changed, and after a rest.

Sessions are not connections. ``engine.nftlb.stale_sessions`` forgets those of endpoints that are gone, with the UDP
flows that would renew them; with the engine nftables a rule does (``engine.nftables.affinity``).
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock, rest_s
from kube_nftlb.agent.connections.allowed import WATCH_S, Allowed, AllowedConnections, has, targets
from kube_nftlb.agent.connections.challenges import Challenge, Challenges
from kube_nftlb.agent.connections.unanswered import UnansweredConnections, answering_endpoints
from kube_nftlb.agent.model import NodeFarm, SentFarm
from kube_nftlb.netfilter.conntrack.entries import UDP, Endpoint, Entry
from kube_nftlb.netfilter.conntrack.filters import TRANSLATED, UNANSWERED, UNTRANSLATED, Target
from kube_nftlb.netfilter.conntrack.table import Address

RATE: Final = 1000
"""Clients challenged in a second: as many as kernels before 6.0 answer on one host (tcp_challenge_ack_limit)."""
_AT_ONCE: Final = 50
FOUND_MAX: Final = 1 << 16
"""Connections ended at once; the others follow."""
_RETRY_S: Final = 1.0
_FORGOTTEN_AT_ONCE: Final = 512
_IDLE_S: Final = 60.0

_log = structlog.get_logger()


class Table(Protocol):
    """The table of connections (``netfilter.conntrack.table``). All raise KernelError."""

    async def find(
        self, to: Collection[Target], chosen: Callable[[Entry], bool], narrowed: bytes = b"", limit: int | None = None
    ) -> list[Entry]:
        """Return connections to targets that are chosen, and pass a filter."""

    async def forget(self, connections: Collection[Entry]) -> int:
        """Forget connections. Return how many there were."""

    async def unmark(self, connections: Collection[Entry]) -> int:
        """Take the marks from connections. Return how many there were."""

    async def count(self, backends: Collection[Address]) -> Counter[Address]:
        """Return the number of open connections to each backend that has any."""


class Challenger(Protocol):
    """Has clients acknowledge what they have (``netfilter.challenge``)."""

    def challenge(self, client: Endpoint, server: Endpoint) -> None:
        """Challenge a client that is connected to a server. Raises OSError."""


class Connections:
    """The connections to the farms of this node, whichever engine serves them."""

    def __init__(self, table: Table, challenger: Challenger, clock: Clock) -> None:
        self._table = table
        self._challenger = challenger
        self._clock = clock
        self._allowed = AllowedConnections()
        self._unanswered = UnansweredConnections()
        self._challenges = Challenges()
        self._news = asyncio.Event()
        self._in_flight: dict[str, NodeFarm] = {}
        """Farms that may be served by now as ``changed`` does not say yet."""
        self._in_flight_endpoints: frozenset[Endpoint] | None = None
        """Those of these farms that answer, once they are needed."""
        self._is_applying = False
        self._bypassed: list[tuple[Mapping[str, SentFarm], float]] = []
        """The farms whose rules are back, and until when connections that bypassed them are looked for, in seconds."""
        self._rules_back = asyncio.Event()
        self._problem: str | None = None

    def applying(self, farms: Mapping[str, NodeFarm | None]) -> None:
        """Note that an engine is about to serve farms so, until ``applied``: what it sends to endpoints may go on.

        ``changed`` comes once all farms of the batch are served, which takes long if nftlb hangs.
        """
        self._in_flight = {name: farm for name, farm in {**self._in_flight, **farms}.items() if farm is not None}
        self._in_flight_endpoints, self._is_applying = None, True

    def applied(self) -> None:
        """Note that what may be served is known."""
        self._is_applying = False

    def _spared(self, found: Sequence[Entry]) -> set[Entry]:
        """Return the connections to endpoints that an engine may have got since it was decided what may go on."""
        if not (found and self._in_flight):
            return set()
        if self._in_flight_endpoints is None:
            endpoints = (answering_endpoints(farm.spec) for farm in self._in_flight.values())
            self._in_flight_endpoints = frozenset[Endpoint]().union(*endpoints)
        return {each for each in found if has(self._in_flight_endpoints, each.answerer)}

    def changed(self, name: str, farm: NodeFarm | None, before: SentFarm | None) -> None:
        """Note that this node has programmed a farm, or withdrawn it; ``before`` is what it had of it."""
        self._allowed.changed(name, farm, before, self._clock.now())
        if before is not None:
            self._unanswered.changed(name, farm)
        self._news.set()

    def check(self, name: str) -> None:
        """Have the connections of a farm looked for once more."""
        self._allowed.check(name, self._clock.now())
        self._news.set()

    async def rules_back(self, sent: Mapping[str, SentFarm]) -> None:
        """Forget connections that conntrack took up untranslated while an engine had no rules: now, and for a while.

        Conntrack never translates a connection that it once let pass: a flow of UDP, or the repeated first packet of
        TCP, would find nobody for as long as its client tries. ``sent`` are the engine's farms, also later ones.
        """
        others = [each for each in self._bypassed if each[0] is not sent]
        self._bypassed = [*others, (sent, self._clock.now() + WATCH_S)]
        self._rules_back.set()
        await self.forget_bypassed()

    async def count(self, backends: Collection[Address]) -> Counter[Address]:
        """Return the number of open connections to each backend that has any. Raises KernelError."""
        return await self._table.count(backends)

    async def run(self) -> None:
        """End connections until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.keep_looking(), name="connections-look")
                group.create_task(self._keep_forgetting_bypassed(), name="connections-bypassed")
                group.create_task(self._keep_challenging(), name="connections-challenge")
        finally:
            # The next agent does not know which listeners are closed, and which farms have changed.
            await self._forget_lost(math.inf)
            await self.look()

    async def keep_looking(self) -> None:
        """Look for connections until cancelled, and rest after each look (``rest_s``)."""
        while True:
            began = self._clock.now()
            self._news.clear()
            if await self.look():
                await self._clock.sleep(rest_s(self._clock.now() - began))
            due = min(self._allowed.next_due(), self._unanswered.next_due())
            await self._clock.wait(self._news, min(max(due - self._clock.now(), 0), _IDLE_S))

    async def _keep_forgetting_bypassed(self) -> None:
        while True:
            self._rules_back.clear()
            if self._bypassed:
                await self._clock.sleep(1)
                await self.forget_bypassed()
            else:
                await self._clock.wait(self._rules_back, _IDLE_S)

    async def _keep_challenging(self) -> None:
        while True:
            if not self._challenges:
                self._challenges.news.clear()
                await self._clock.wait(self._challenges.news, _IDLE_S)
            self.challenge()
            await self._clock.sleep(_AT_ONCE / RATE)

    async def look(self) -> bool:
        """Look for connections once where that is due, and end those that may not go on. Return True if any was due."""
        if not self._is_applying:
            self._in_flight, self._in_flight_endpoints = {}, None
        lost = await self._forget_lost(self._clock.now())
        if allowed := self._allowed.take(self._clock.now()):
            try:
                await self._end(allowed)
            except Exception as error:
                # Whatever it is: the agent serves as well without, and the connections are still to be ended.
                self._allowed.again({each.farm for each in allowed.values()}, self._clock.now() + _RETRY_S)
                if not isinstance(error, errors.KernelError):
                    _log.exception("cannot end connections to endpoints that are gone, retrying")
                else:
                    _log.warning("cannot end connections to endpoints that are gone, retrying", error=str(error))
        return bool(allowed) or lost

    async def _forget_lost(self, now: float) -> bool:
        """Forget unanswered connections to endpoints that are gone. Return True if there were farms to look for."""
        waiting = self._unanswered.take(now)
        if not waiting.farms:
            return False
        began = self._clock.now()
        try:
            found = await self._table.find(waiting.farms.keys(), waiting.is_lost, UNANSWERED, FOUND_MAX)
            spared = self._spared(found)
            forgotten = await self._table.forget([each for each in found if each not in spared])
        except errors.KernelError as error:
            self._unanswered.again(waiting, now + _RETRY_S)
            _log.warning("cannot forget unanswered connections to endpoints that are gone, retrying", error=str(error))
        else:
            metrics.STALE_CONNECTIONS_REMOVED.labels("Unanswered").inc(forgotten)
            self._unanswered.looked(began, self._clock.now())
            if spared or len(found) >= FOUND_MAX:
                self._unanswered.again(waiting, now + _RETRY_S)
        return True

    async def _end(self, allowed: Mapping[Target, Allowed]) -> None:
        def of(entry: Entry) -> Allowed:
            ip, port = entry.server
            return allowed.get((ip, entry.protocol, port)) or allowed[ip, entry.protocol, 0]

        narrowed = TRANSLATED if all(each.concerns_translated for each in allowed.values()) else b""
        found = await self._table.find(allowed, lambda each: of(each).reason(each) is not None, narrowed, FOUND_MAX)
        if len(found) >= FOUND_MAX:
            self._allowed.again({each.farm for each in allowed.values()}, self._clock.now())
        if spared := self._spared(found):
            self._allowed.again({of(each).farm for each in spared}, self._clock.now() + _RETRY_S)
            found = [each for each in found if each not in spared]
        reasons = [of(each).reason(each) for each in found]
        await self._cut([(each, of(each)) for each, why in zip(found, reasons, strict=True) if why == "EndpointGone"])
        await self._table.forget([each for each, why in zip(found, reasons, strict=True) if why != "EndpointGone"])
        for why, number in Counter(reasons).items():
            if why != "EndpointGone":
                metrics.STALE_CONNECTIONS_REMOVED.labels(str(why)).inc(number)

    async def _cut(self, found: list[tuple[Entry, Allowed]]) -> None:
        """Forget connections over TCP, and have their clients challenged."""
        forgotten = left_out = 0
        farms: set[str] = set()
        try:
            for first in range(0, len(found), _FORGOTTEN_AT_ONCE):
                some = found[first : first + _FORGOTTEN_AT_ONCE]
                by_namespace: dict[str, list[Challenge]] = {}
                for each, of in some:
                    new = [Challenge(each.client, each.server)] if each.is_connected else []
                    by_namespace.setdefault(of.namespace, []).extend(new)
                    farms.add(of.farm)
                try:
                    # Before they are challenged: the answer would go to the endpoint that is gone.
                    forgotten += await self._table.forget([each for each, _ in some])
                finally:
                    # Also if that fails, perhaps in part: those that are forgotten are not found again.
                    left_out += sum(self._challenges.add(namespace, new) for namespace, new in by_namespace.items())
        finally:
            if found:
                metrics.STALE_CONNECTIONS_REMOVED.labels("EndpointGone").inc(forgotten)
                _log.info(
                    "cut connections to endpoints that are gone",
                    connections=forgotten,
                    farms=sorted(farms),
                    not_challenged=left_out,
                )

    async def forget_bypassed(self) -> None:
        """Look once for connections that bypassed rules which are back, and forget them."""
        now = self._clock.now()
        # With the mode local nothing is ever translated.
        farms = [farm for sent, _ in self._bypassed for farm in sent.values() if not farm.answers_itself]
        self._bypassed = [(sent, until) for sent, until in self._bypassed if now <= until]
        to = {target for farm in farms for target in targets(farm.listeners)}
        try:
            found = await self._table.find(to, _bypassed, UNTRANSLATED) if to else []
            await self._table.forget(found)
        except errors.KernelError as error:
            _log.warning("cannot forget connections that bypassed the rules", error=str(error))
        else:
            metrics.STALE_CONNECTIONS_REMOVED.labels("Untranslated").inc(len(found))

    def challenge(self) -> None:
        """Challenge some of the clients that wait."""
        for client, server in self._challenges.take(_AT_ONCE, self._clock.now()):
            try:
                self._challenger.challenge(client, server)
            except OSError as error:
                # A client that cannot be reached, or no right to: tell once.
                if (problem := str(error)) != self._problem:
                    self._problem = problem
                    _log.warning("cannot tell a client that its connection is cut", error=problem)


def _bypassed(entry: Entry) -> bool:
    """Return True for a connection that may have passed before there were rules. Its mark proves nothing."""
    return not entry.is_translated and (entry.protocol == UDP or not entry.has_reply)
