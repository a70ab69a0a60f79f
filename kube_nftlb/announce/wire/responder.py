"""What the responder answers, asks and announces. Pure: frames, orders and times in; frames and events out.

Times are seconds of the monotonic clock.
"""

import itertools
import math
from ipaddress import ip_address
from typing import Final

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.heard import Heard as Said
from kube_nftlb.announce.wire.heard import Statement
from kube_nftlb.announce.wire.messages import (
    HOLD_MAX_S,
    Event,
    Heard,
    LinkChanged,
    Order,
    Outdated,
    Peer,
    Place,
    Probed,
    Ready,
    Silent,
    State,
    Yielded,
)
from kube_nftlb.announce.wire.pacing import Urgency
from kube_nftlb.announce.wire.probes import Probes
from kube_nftlb.announce.wire.rounds import MISSES, ROUND_S, Rounds
from kube_nftlb.announce.wire.sending import IPV4_BYTES, LinkAddresses, Sending, mac_bytes, mac_text, packed

_DOUBT_S: Final = (MISSES - 1) * ROUND_S
"""How long a silent node has not answered, at least."""
_REPEAT_S: Final = 1.0
_REPEATS: Final = 5
"""How often a node that goes on answering is told that its addresses were taken over, and in which interval."""


class Responder:
    """The state of a responder."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """What the agent is to be told; the caller empties it."""
        self.changes = 0
        """Grows when links or groups that are needed may have changed."""
        self._sending = Sending()
        self._probes = Probes(self._sending)
        self._watch, self._fence = Rounds(), Rounds()
        self._state: State | None = None
        self._until = 0.0
        self._answers: dict[tuple[str, bytes], Place] = {}
        self._concerned: frozenset[bytes] = frozenset()
        """All addresses of the state."""
        self._yielded: dict[Place, str] = {}
        """With the link-layer address of who has them."""
        self._errors: dict[str, str] = {}
        """Why links that are needed cannot be used."""
        self._heard_at: dict[str, float] = {}
        """When another host was heard on a link."""
        self._repeated: dict[tuple[str, str], tuple[int, float]] = {}
        """How often nodes were told that their addresses were taken over, and when last."""

    @property
    def holds(self) -> bool:
        """Return whether anything is answered for."""
        return bool(self._answers)

    def standing(self, now: float) -> list[Event]:
        """Return what an agent that has just connected is to be told. What it wants to be probed is probed anew."""
        self._probes.forget()
        if self._state is None:
            return [Ready(holds=False)]
        links = [LinkChanged(name, mac_text(own.mac)) for name, own in self._sending.links.items()]
        links += [LinkChanged(name, error=error) for name, error in self._errors.items()]
        silent = [self._silent(peer, now) for peer in self._watch.silent(self._sending.can_ask)]
        yielded = [Yielded(place.ip, place.link, mac) for place, mac in self._yielded.items()]
        outdated = [Outdated(*node, outdated=True) for node in self._watch.outdated()]
        return [Ready(holds=True), *links, *yielded, *silent, *outdated]

    def links(self) -> set[str]:
        """Return the names of the links that are needed."""
        return _links(self._state or State(0.0))

    def groups(self, link: str) -> set[bytes]:
        """Return the multicast groups in which solicitations for the addresses of a link arrive."""
        return {ndp.group(ip) for name, ip in self._answers if name == link and len(ip) != IPV4_BYTES}

    def order(self, order: Order, now: float) -> None:
        """Take an order of the agent. One whose deadline has passed is ignored. Raises ValueError for bad addresses."""
        self._expire(now)
        if order.deadline <= now:
            return
        if isinstance(order, State):
            concerned = _check(order)
            self._state = order
            self._change(order, now, concerned)
        if self._state is not None:
            self._until = min(order.deadline, now + HOLD_MAX_S)

    def link(self, name: str, addresses: LinkAddresses | None, now: float, error: str = "") -> None:
        """Take the addresses of a link; None if it cannot be used, and why, or if it is no longer needed."""
        new = self._sending.set_link(name, addresses)
        before = self._errors.pop(name, "")
        if error:
            self._errors[name] = error
            self.events += [LinkChanged(name, error=error)] if error != before else []
            for key in [key for key in self._answers if key[0] == name]:
                self._yield(key, "")
        if not new or addresses is None:
            return
        self.events.append(LinkChanged(name, mac_text(addresses.mac)))
        for place in [place for place in self._answers.values() if place.link == name]:
            self._sending.announce(place, now)
        self._probes.link_is_new(name, now)

    def frame(self, link: str, said: Said, now: float, *, late: bool = False) -> bytes | None:
        """Take what a frame says. Return the answer, if any; nothing is answered that is ``late``."""
        own = self._sending.links.get(link)
        if own is None or now >= self._until:
            return None
        who = said.statement or said.asked
        if who is not None and not self._sending.is_own(who.mac):
            self._heard_at[link] = now
        if said.statement is not None and not self._sending.is_own(said.statement.mac):
            self._take_statement(link, said.statement, now)
        if said.asked is None or late or (link, said.asked.target) not in self._answers:
            return None
        build = arp.answer if len(said.asked.target) == IPV4_BYTES else ndp.answer
        return build(own.mac, said.asked.target, said.asked, outdated=self._outdated)

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """Return the frames to send now, with their links. Take note of what is over."""
        self._expire(now)
        for rounds, urgency in ((self._watch, Urgency.WATCH), (self._fence, Urgency.ASK)):
            ask, silent = rounds.due(now, self._sending.can_ask, self._sending.waits)
            for peer in ask:
                self._sending.ask(peer, now, urgency)
                if rounds is self._watch and rounds.doubts(peer):
                    # Whoever else looks for it hears that this node is not cut off, and the other way around.
                    self._sending.ask_all(peer, now)
            if rounds is self._watch:
                self.events += [self._silent(peer, now) for peer in silent]
        frames = self._sending.due(now)
        # The time for an answer begins when the last question is sent.
        self.events += [Probed(place.ip, place.link) for place in self._probes.free(now)]
        return frames

    def wake(self) -> float | None:
        """Return when ``due`` is to be called next, at the latest; None if only an order changes anything."""
        times = [each.wake() for each in (self._sending, self._probes, self._watch, self._fence)]
        times.append(self._until if self._state is not None else None)
        return min((time for time in times if time is not None), default=None)

    def _silent(self, peer: Peer, now: float) -> Silent:
        alone = now - self._heard_at.get(peer.link, -math.inf) > _DOUBT_S
        return Silent(*_of(peer), alone=alone)

    def _expire(self, now: float) -> None:
        """Forget everything once the deadline has passed: others may have the addresses since."""
        if self._state is None or now < self._until:
            return
        lapsed = self._yielded | dict.fromkeys(self._answers.values(), "")
        self._change(State(0.0), now)
        self._state, self._yielded = None, lapsed
        self.events.append(Ready(holds=False))

    def _change(self, state: State, now: float, concerned: frozenset[bytes] = frozenset()) -> None:
        self.changes += 1
        self._concerned = concerned
        self._errors = {name: self._errors[name] for name in self._errors.keys() & _links(state)}
        self._yielded = {place: self._yielded[place] for place in state.answer if place in self._yielded}
        before = self._answers
        self._answers = {(each.link, packed(each.ip)): each for each in state.answer if each not in self._yielded}
        for key in before.keys() - self._answers.keys():
            self._sending.cancel(before[key])
        self._probes.keep(state.probe, now)
        self._watch.keep(state.watch, now)
        self._fence.keep(state.fence, now)
        for key in self._answers.keys() - before.keys():
            self._sending.announce(self._answers[key], now)
        self._repeated = {node: counted for node, counted in self._repeated.items() if self._fence.of(*node)}

    @property
    def _outdated(self) -> bool:
        return self._state is not None and self._state.outdated

    def _take_statement(self, link: str, statement: Statement, now: float) -> None:
        """Another host says that it has an address."""
        ip, to_all = statement.ip, statement.to_all
        if ip not in self._concerned:
            return
        peer = Peer(str(ip_address(ip)), link, mac_text(statement.mac))
        place = Place(peer.ip, link)
        if self._probes.answered(place):
            self.events.append(Probed(*_of(peer)))
        # Whoever answers in doubt may be the node that is watched, with another link-layer address.
        if self._watch.heard(peer) or self._watch.has_other(peer, now, in_doubt=not to_all):
            self.events.append(Heard(*_of(peer)))
        if not to_all and self._watch.says(peer, now, outdated=statement.outdated):
            self.events.append(Outdated(link, peer.mac, statement.outdated))
        if (link, ip) not in self._answers:
            return
        if not to_all and peer.ip in self._fence.of(link, peer.mac):
            self._fence.heard(peer)
            self._repeat(peer, now)
            return
        self._yield((link, ip), peer.mac)

    def _yield(self, key: tuple[str, bytes], mac: str) -> None:
        place = self._answers.pop(key)
        self.changes += 1
        self._yielded[place] = mac
        self._sending.cancel(place)
        self.events.append(Yielded(place.ip, place.link, mac))

    def _repeat(self, peer: Peer, now: float) -> None:
        """Announce what was taken over once more: who had it answers again, and stops when it hears of this."""
        times, last = self._repeated.get((peer.link, peer.mac), (0, 0.0))
        if times >= _REPEATS or now - last < _REPEAT_S:
            return
        self._repeated[peer.link, peer.mac] = times + 1, now
        self.events.append(Heard(*_of(peer)))
        for ip in self._fence.of(peer.link, peer.mac):
            if (peer.link, packed(ip)) in self._answers:
                self._sending.announce(Place(ip, peer.link), now)


def _check(state: State) -> frozenset[bytes]:
    """Return all addresses of a state. Raises ValueError if one is none."""
    for mac in {peer.mac for peer in (*state.watch, *state.fence)}:
        mac_bytes(mac)
    return frozenset(packed(each.ip) for each in itertools.chain(*_parts(state)))


def _links(state: State) -> set[str]:
    return {each.link for each in itertools.chain(*_parts(state))}


def _parts(state: State) -> tuple[tuple[Place | Peer, ...], ...]:
    return state.answer, state.probe, state.watch, state.fence


def _of(peer: Peer) -> tuple[str, str, str]:
    return peer.ip, peer.link, peer.mac
