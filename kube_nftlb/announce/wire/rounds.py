"""Whom to ask when whether they still answer, and who is silent. Pure; times are seconds of one clock.

A node that has many addresses is asked for one of them in each round, in turns, so that the cost is per node. One that
does not answer is asked again together with the next: so a node that is gone is told from one that lost an address.
"""

import math
from collections.abc import Callable, Iterable
from typing import Final

from kube_nftlb.announce.wire.messages import Peer

ROUND_S: Final = 0.5
MISSES: Final = 3
_Node = tuple[str, str]
"""A link, and the link-layer address of a node on it."""


class _Round:
    """The questions to one node."""

    def __init__(self, now: float) -> None:
        self.ips: list[str] = []
        self.wanted: frozenset[str] = frozenset()
        """The same."""
        self.next_at = now
        self.silent: set[str] = set()
        self.outdated = False
        """What the node said last."""
        self.said_at = -math.inf
        """When that was news."""
        self._missed: dict[str, int] = {}
        """Questions without an answer yet, by address."""
        self._unheard = 0
        """Rounds that have begun since the node answered."""
        self._turn = 0

    def keep(self, ips: list[str]) -> None:
        self.ips, self.wanted = ips, frozenset(ips)
        self.silent.intersection_update(ips)
        self._missed = {ip: missed for ip, missed in self._missed.items() if ip in self.wanted}

    def restart(self, now: float) -> None:
        self.next_at = now + ROUND_S
        self._unheard = 0
        self._missed.clear()

    def ask(self, ips: list[str], now: float) -> tuple[list[str], list[str]]:
        """End a round and begin the next: the addresses to ask for, and those that are silent from now on.

        ``ips`` are those that can be asked for. The others begin anew.
        """
        self.next_at = now + ROUND_S
        able = frozenset(ips)
        self._missed = {ip: missed + 1 for ip, missed in self._missed.items() if ip in able}
        lost: frozenset[str] = frozenset()
        if over := frozenset(ip for ip, missed in self._missed.items() if missed >= MISSES):
            lost = (able if self._unheard >= MISSES else over) - self.silent
            self.silent |= lost
            self._missed = {ip: missed for ip, missed in self._missed.items() if ip not in over}
        self._unheard += 1
        self._turn = (self._turn + 1) % len(ips)
        self._missed.setdefault(ips[self._turn], 0)
        return list(self._missed), [ip for ip in ips if ip in lost]

    @property
    def asked(self) -> Iterable[str]:
        """The addresses that this round asks for, and that are not answered yet."""
        return self._missed

    def missed(self, ip: str) -> bool:
        return self._missed.get(ip, 0) > 0

    def answered(self, ip: str) -> bool:
        """Return whether it was silent before."""
        self._unheard = 0
        self._missed.pop(ip, None)
        was_silent = ip in self.silent
        self.silent.discard(ip)
        return was_silent


class Rounds:
    """Rounds of questions to several nodes."""

    def __init__(self) -> None:
        self._rounds: dict[_Node, _Round] = {}
        self._others: dict[tuple[str, str], tuple[str, str, float]] = {}
        """Links and addresses that another node said to have: who is asked for them, who that was, and when."""

    def keep(self, peers: Iterable[Peer], now: float) -> None:
        """Ask these from now on. Those that were asked before keep their turn."""
        wanted: dict[_Node, list[str]] = {}
        others, self._others = self._others, {}
        for peer in peers:
            wanted.setdefault((peer.link, peer.mac), []).append(peer.ip)
            if (place := (peer.link, peer.ip)) in others:
                asked, who, at = others[place]
                # What was news of one that was asked before may be news of this one again; the time is for the rate.
                self._others[place] = (asked, who, at) if asked == peer.mac else ("", "", at)
        self._rounds = {node: self._rounds.get(node) or _Round(now) for node in wanted}
        for node, ips in wanted.items():
            self._rounds[node].keep(ips)

    def due(
        self, now: float, can_ask: Callable[[Peer], bool], waits: Callable[[Peer], bool]
    ) -> tuple[list[Peer], list[Peer]]:
        """Return whom to ask now, and who is silent. Nobody is who cannot be asked: all begins anew there.

        Nor is anybody who was not asked: a round goes on while one of its questions ``waits`` to be sent.
        """
        ask, silent = [], []
        for (link, mac), each in self._rounds.items():
            if each.next_at > now:
                continue
            if not (ips := [ip for ip in each.ips if can_ask(Peer(ip, link, mac))]):
                each.restart(now)
            elif any(waits(Peer(ip, link, mac)) for ip in each.asked):
                each.next_at = now + ROUND_S
            else:
                asked, lost = each.ask(ips, now)
                ask += [Peer(ip, link, mac) for ip in asked]
                silent += [Peer(ip, link, mac) for ip in lost]
        return ask, silent

    def heard(self, peer: Peer) -> bool:
        """Take an answer. Return whether the address was silent."""
        each = self._rounds.get((peer.link, peer.mac))
        return each is not None and peer.ip in each.wanted and each.answered(peer.ip)

    def says(self, peer: Peer, now: float, *, outdated: bool) -> bool:
        """Take whether a node that is asked says that it is outdated. Return whether that is news: once a round."""
        each = self._rounds.get((peer.link, peer.mac))
        if each is None or peer.ip not in each.wanted or each.outdated is outdated or now < each.said_at + ROUND_S:
            return False
        each.outdated, each.said_at = outdated, now
        return True

    def outdated(self) -> list[_Node]:
        """Return the nodes that said so last."""
        return [node for node, each in self._rounds.items() if each.outdated]

    def silent(self, can_ask: Callable[[Peer], bool]) -> list[Peer]:
        """Return who is silent, for an agent that knows nothing.

        What is no news to another agent is news to it: of those that cannot be asked now it hears once they can.
        """
        self._others.clear()
        for node, each in self._rounds.items():
            each.silent = {ip for ip in each.silent if can_ask(Peer(ip, *node))}
        return [Peer(ip, *node) for node, each in self._rounds.items() for ip in each.ips if ip in each.silent]

    def doubts(self, peer: Peer) -> bool:
        """Return whether a question for the address was not answered."""
        each = self._rounds.get((peer.link, peer.mac))
        return each is not None and each.missed(peer.ip)

    def of(self, link: str, mac: str) -> list[str]:
        """Return the addresses for which a node is asked."""
        each = self._rounds.get((link, mac))
        return each.ips if each is not None else []

    def has_other(self, peer: Peer, now: float, *, in_doubt: bool) -> bool:
        """Return whether it is news that another node on the link is asked for the address.

        If it is ``in_doubt``, only one that has not answered counts. It is news once, until somebody else is asked or
        says so, and once a round: any host can say it at any rate.
        """
        asked = (
            mac
            for (link, mac), each in self._rounds.items()
            if link == peer.link
            and mac != peer.mac
            and peer.ip in each.wanted
            and (not in_doubt or each.missed(peer.ip) or peer.ip in each.silent)
        )
        if (mac := next(asked, "")) == "":
            return False
        *before, at = self._others.get((peer.link, peer.ip), ("", "", -math.inf))
        if before == [mac, peer.mac] or now < at + ROUND_S:
            return False
        self._others[peer.link, peer.ip] = mac, peer.mac, now
        return True

    def wake(self) -> float | None:
        """Return when the next round begins; None if nobody is asked."""
        return min((each.next_at for each in self._rounds.values()), default=None)
