"""Ends TCP connections to endpoints that are gone, and has their clients reset.

Conntrack forgets such a connection, so that a rule of the agent table resets it by the next packet of its client. A
client that waits for data sends none: it is challenged to. All of it is a task of its own, in small steps, as a tenant
may have a hundred thousand connections to one endpoint.
"""

import asyncio
import socket
from collections.abc import Mapping
from typing import Protocol

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock, rest_s
from kube_nftlb.agent.connections.challenges import Challenge, Challenges
from kube_nftlb.agent.connections.cuts import Cut, Cuts
from kube_nftlb.netfilter.tcp_connections import Endpoint, Family, TcpConnection

RATE = 1000
"""Clients challenged in a second: as many as kernels before 6.0 answer on one host (tcp_challenge_ack_limit)."""
_AT_ONCE = 50
FOUND_MAX = 1 << 16
"""Connections cut at once; the others follow."""
_RETRY_S = 1.0
_FORGOTTEN_AT_ONCE = 512
_IDLE_S = 60.0

_log = structlog.get_logger()


class Connections(Protocol):
    """Finds connections and forgets them (``netfilter.tcp_connections``)."""

    async def others(
        self, family: Family, kept: Mapping[Endpoint, frozenset[Endpoint]], limit: int
    ) -> list[TcpConnection]:
        """Return up to ``limit`` connections to these servers that others answer than are kept. Raises KernelError."""

    async def forget(self, family: Family, connections: list[TcpConnection]) -> int:
        """Forget connections. Return how many there were. Raises KernelError."""


class Challenger(Protocol):
    """Has clients acknowledge what they have (``netfilter.challenge``)."""

    def challenge(self, client: Endpoint, server: Endpoint) -> None:
        """Challenge a client that is connected to a server. Raises OSError."""


class Cutter:
    """Cuts what ``cuts`` says."""

    def __init__(self, cuts: Cuts, connections: Connections, challenger: Challenger, clock: Clock) -> None:
        self._cuts = cuts
        self._connections = connections
        self._challenger = challenger
        self._clock = clock
        self._challenges = Challenges()
        self._problem = ""

    async def run(self) -> None:
        """Cut connections until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_looking(), name="cut-look")
            group.create_task(self._keep_challenging(), name="cut-challenge")

    async def _keep_looking(self) -> None:
        while True:
            began = self._clock.now()
            self._cuts.news.clear()
            if cuts := self._cuts.take(began):
                await self.look(cuts)
                await self._clock.sleep(rest_s(self._clock.now() - began))
            due = self._cuts.next_due()
            wait_s = min(max(due - self._clock.now(), 0), _IDLE_S) if due is not None else _IDLE_S
            await self._clock.wait(self._cuts.news, wait_s)

    async def _keep_challenging(self) -> None:
        while True:
            if not self._challenges:
                self._challenges.news.clear()
                await self._clock.wait(self._challenges.news, _IDLE_S)
            self.challenge()
            await self._clock.sleep(_AT_ONCE / RATE)

    async def look(self, cuts: Mapping[str, Cut]) -> None:
        """Look for connections once, and cut them."""
        try:
            for family in ("ip", "ip6"):
                await self._look(family, cuts)
        except Exception as error:
            # Whatever it is: the agent serves as well without, and the connections are still to be cut.
            self._cuts.again(cuts.keys(), self._clock.now() + _RETRY_S)
            if not isinstance(error, errors.KernelError):
                _log.exception("cannot cut connections to endpoints that are gone, retrying")
                return
            _log.warning("cannot cut connections to endpoints that are gone, retrying", error=str(error))

    async def _look(self, family: Family, cuts: Mapping[str, Cut]) -> None:
        names: dict[Endpoint, str] = {}
        kept: dict[Endpoint, frozenset[Endpoint]] = {}
        for name, cut in cuts.items():
            servers = [(_packed(each.ip), each.port) for each in cut.listeners if (":" in each.ip) == (family == "ip6")]
            if servers:
                names.update(dict.fromkeys(servers, name))
                kept.update(dict.fromkeys(servers, frozenset((_packed(ip), port) for ip, port in cut.kept)))
        if not kept:
            return
        found = await self._connections.others(family, kept, FOUND_MAX)
        if len(found) == FOUND_MAX:
            self._cuts.again(cuts.keys(), self._clock.now())
        forgotten = left_out = 0
        farms: set[str] = set()
        try:
            for first in range(0, len(found), _FORGOTTEN_AT_ONCE):
                some = found[first : first + _FORGOTTEN_AT_ONCE]
                by_farm: dict[str, list[Challenge]] = {}
                for each in some:
                    name = names.get(each.server) or names[each.server[0], 0]
                    by_farm.setdefault(name, []).extend([Challenge(each.client, each.server)] if each.is_open else [])
                try:
                    # Before they are challenged: the answer would go to the endpoint that is gone.
                    forgotten += await self._connections.forget(family, some)
                finally:
                    # Also if that fails, perhaps in part: those that are forgotten are not found again.
                    left_out += sum(self._challenges.add(cuts[name].namespace, new) for name, new in by_farm.items())
                    farms |= by_farm.keys()
        finally:
            if found:
                metrics.STALE_CONNECTIONS_REMOVED.labels("EndpointGone").inc(forgotten)
                _log.info(
                    "cut connections to endpoints that are gone",
                    connections=forgotten,
                    farms=sorted(farms),
                    not_challenged=left_out,
                )

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


def _packed(ip: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
