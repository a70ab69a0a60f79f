"""What this node does about all addresses: facts, Leases and events of the wire in; orders and writes out. Pure.

Times are seconds of the monotonic clock.
"""

import math
import zlib
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple

from kube_nftlb.announce.ownership.address import Act, View, Wire, Write, decide, seeks_holder
from kube_nftlb.announce.ownership.gate import NO_FARM, Blocker, Reason
from kube_nftlb.announce.ownership.reads import Reads
from kube_nftlb.announce.ownership.records import NOBODY, Record, is_host
from kube_nftlb.announce.wire.messages import (
    HOLD_MAX_S,
    Event,
    Heard,
    LinkChanged,
    Outdated,
    Peer,
    Place,
    Probed,
    Ready,
    Silent,
    State,
    Yielded,
)
from kube_nftlb.multimap import Multimap

_FENCE_S: Final = 600.0
"""How long who had an address before is asked whether it has come back with it."""
_OUTDATED_S: Final = 30.0
"""How long a node must have been without the API server to tell the others, who take its addresses if they reach it."""
_ORPHAN_S: Final = 60.0
"""How long the Lease of an address without farms stays if its holder is gone; up to twice that: nodes take turns."""
_ORPHANS_MAX: Final = 64
"""So many of these at once: an agent can make Leases of any addresses for its own node."""
_MACS_MAX: Final = 32
"""How many link-layer addresses of a node are known: those of its last Leases."""
_ASK_AGAIN_S, _ASK_MAX_S = 0.5, 2.0
"""The shortest time between two writes of one address; each refusal doubles it."""
_SUPERSEDED_FIRST_S, _SUPERSEDED_MAX_S = 10.0, 300.0
_NOTHING: Final = Wire()


class Address(NamedTuple):
    """What is known of an address on this node."""

    link: str
    """The interface on whose segment it is."""
    mac: str
    """The link-layer address of that interface."""
    candidates: tuple[str, ...]
    why_not_announce: Blocker | None = None
    why_not_keep: Blocker | None = None


_GONE: Final = Address("", "", (), NO_FARM, NO_FARM)


_NO_RESPONDER: Final = Blocker(Reason.NO_RESPONDER, "the responder of this node does not run")


class Writing(NamedTuple):
    """A Lease to write."""

    ip: str
    write: Write
    before: Record
    mac: str


class Outcome(NamedTuple):
    """What to do now."""

    state: State
    """For the responder; the deadline is for the sender to set."""
    writes: tuple[Writing, ...]
    reads: tuple[str, ...]
    """Addresses whose Leases are to be read again."""
    again: float | None
    """When to decide again even if nothing happens."""


@dataclass(slots=True)
class _Known:
    """What this node knows of an address."""

    record: Record = NOBODY
    newest: int = 0
    """The version of the record, or one that is higher than that of a record that was deleted."""
    read_at: float = 0.0
    wire: Wire = _NOTHING
    open_at: float | None = None
    alone: bool = False
    cut_off: bool = False
    """This node took the address alone, and may have been the one that was cut off."""
    yielded: bool = False
    """The responder answers again only once a state has left the address out."""
    fence: tuple[str, float] = ("", 0.0)
    """Who had the address before, and until when to ask there."""
    superseded_s: float = _SUPERSEDED_FIRST_S
    superseded_until: float = 0.0
    """Until when not to take the address back without having heard anybody, and for how long that was."""
    asked: Write | None = None
    """A write whose outcome is not known yet."""
    asked_at: float = -math.inf
    """When that was."""
    rest_s: float = _ASK_AGAIN_S
    """How long nothing is written since."""
    unwritable: bool = False
    """The API server failed to write the Lease, and it has not changed since."""


class Ownership:
    """The addresses, as one node sees them."""

    def __init__(self, me: str) -> None:
        self.leaving = False
        self.has_responder = False
        """Whether there is a process that answers. Without one nothing is taken, and what is held stays for a while."""
        self._lost_at: float | None = None
        """Since when there has been none."""
        self._link_errors: dict[str, str] = {}
        """Why the responder cannot use links."""
        self.acts: dict[str, Act] = {}
        """What was decided last, by address."""
        self._me = me
        self._addresses: Mapping[str, Address] = {}
        self._working: Collection[str] = ()
        self._known: dict[str, _Known] = {}
        self._held_by: Multimap[str, str] = Multimap()
        """The addresses with a Lease, by its holder."""
        self._orphans: Mapping[str, float] = {}
        """Addresses that no farm has, and whose holder is gone, and since when this node knows that."""
        self._reads = Reads()
        self._macs: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_MACS_MAX))
        self._outdated: dict[str, float] = {}
        """Link-layer addresses of the holders that say so, and since when."""
        self._api_away_at: float | None = None
        self._api_back_at = -math.inf
        self._unread_at: float | None = None
        """Since when the API server has answered with errors alone."""
        self._holds = False
        """Whether the responder had a state when it was last heard."""

    def held(self, ips: Iterable[str]) -> dict[str, str]:
        """Return the holder of each of these addresses that has one."""
        found = ((ip, known.record.holder) for ip in ips if (known := self._known.get(ip)) is not None)
        return {ip: holder for ip, holder in found if holder}

    def held_after(self, ip: str) -> str:
        """Return the next of the addresses that this node holds, round and round; empty if it holds none."""
        return _next(self._held_by.get(self._me), ip)

    def watched_after(self, ip: str) -> str:
        """Return the same of those that it may take from their holders."""
        return _next([each for each, act in self.acts.items() if act.watch], ip)

    @property
    def is_awaited(self) -> bool:
        """Return whether this node answers for an address that another one may take."""
        return any(
            act.answer and set(self._addresses.get(ip, _GONE).candidates) - {self._me} for ip, act in self.acts.items()
        )

    def facts(self, addresses: Mapping[str, Address], working: Collection[str]) -> None:
        """Take what is known of all addresses, and the nodes that are ready."""
        self._addresses, self._working = addresses, working

    def record(self, ip: str, record: Record, now: float) -> None:
        """Take the Lease of an address, as it was read, written or watched."""
        if self._unread_at is not None:
            # So that all come back before any takes something from the others.
            self._unread_at, self._api_back_at = None, now
        self._take(ip, record, now)
        if not record.version and ip not in self._addresses and ip not in self.acts:
            self._known.pop(ip, None)

    def _take(self, ip: str, record: Record, now: float) -> None:
        known = self._known.setdefault(ip, _Known())
        before, asked = known.record, known.asked
        if record.version and int(record.version) < known.newest:
            # A watch may tell of a change after the answer to a later write.
            return
        if record.version:
            known.newest = int(record.version)
        elif before.version:
            known.newest += 1
        known.record, known.read_at, known.asked, known.rest_s = record, now, None, _ASK_AGAIN_S
        if record.version != before.version:
            self._reads.forget(ip)
            known.unwritable = False
        self._held_by.discard(before.holder, ip)
        if record.version:
            self._held_by.add(record.holder, ip)
        self._note_mac(record)
        if record.holder == before.holder:
            if record.mac != before.mac:
                # What was heard, or not, is of the one that it had.
                known.wire = known.wire._replace(silent_at=None, holder_mac="")
            return
        if before.holder == self._me and record.holder and not before.leaving and self._answers_rightly(ip):
            again = now < known.superseded_until + known.superseded_s
            known.superseded_s = min(_SUPERSEDED_MAX_S, 2 * known.superseded_s) if again else _SUPERSEDED_FIRST_S
            known.superseded_until = now + known.superseded_s
        known.alone, known.open_at = False, None
        mine = record.holder == self._me
        # Whoever claims an address has found it free, or takes it from its holder.
        known.wire = Wire(free=mine and (asked is Write.CLAIM or self._holds))
        known.fence = (before.mac, now + _FENCE_S) if mine else ("", 0.0)

    def _note_mac(self, record: Record) -> None:
        if record.mac:
            # The newest last, also if it is known: a node may have many interfaces.
            macs = self._macs[record.holder]
            if record.mac in macs:
                macs.remove(record.mac)
            macs.append(record.mac)

    def _answers_rightly(self, ip: str) -> bool:
        """Return whether, as far as this node knows, no other one need take an address from it."""
        act, address = self.acts.get(ip), self._addresses.get(ip, _GONE)
        return act is not None and act.answer and self._me in address.candidates

    def unread(self, now: float) -> None:
        """Take note that the API server has answered a read with an error: what this node serves may be out of date."""
        self._unread_at = self._unread_at if self._unread_at is not None else now

    def failed(self, ip: str, *, refused: bool = False, unwritable: bool = False) -> None:
        """Take note that a request was refused, or not answered: the next decision is by what is seen then.

        ``unwritable``: the API server failed to write the Lease, as it would fail whoever asked.
        """
        self._reads.failed(ip)
        if (known := self._known.get(ip)) is not None:
            known.asked = None
            known.unwritable |= unwritable
            if refused:
                known.rest_s = min(2 * known.rest_s, _ASK_MAX_S)

    def api(self, *, away: bool, now: float) -> None:
        """Take note whether the API server can be reached."""
        if away != (self._api_away_at is not None):
            self._api_away_at = now if away else None
            for ip, known in self._known.items():
                known.rest_s, known.unwritable = _ASK_AGAIN_S, False
                self._reads.failed(ip)
            self._api_back_at = self._api_back_at if away else now

    def event(self, event: Event, now: float) -> None:
        """Take an event of the responder."""
        if isinstance(event, Ready):
            self._ready(holds=event.holds)
        elif isinstance(event, LinkChanged):
            self._link_errors.pop(event.link, None)
            if event.error:
                self._link_errors[event.link] = event.error
        elif isinstance(event, Outdated):
            self._outdated.pop(event.mac, None)
            if event.outdated:
                self._outdated[event.mac] = now
        elif isinstance(event, Yielded | Probed | Silent | Heard) and event.ip in self._known:
            known = self._known[event.ip]
            if isinstance(event, Silent) and event.mac != (known.wire.holder_mac or known.record.mac):
                # Of who held it before: another node has taken it meanwhile.
                return
            if isinstance(event, Heard) and not is_host(event.mac):
                # The responder refuses a whole state in which it is to watch that.
                return
            known.wire = _after(event, known.wire, now)
            known.yielded |= isinstance(event, Yielded)
            is_back = isinstance(event, Heard) and known.cut_off and event.mac == known.record.mac
            known.alone = known.alone and not (known.yielded or is_back)

    def _ready(self, *, holds: bool) -> None:
        self._holds, self.has_responder = holds, True
        self._outdated.clear()
        self._link_errors.clear()
        for known in self._known.values():
            if not holds:
                known.yielded |= known.alone
                known.wire, known.alone = known.wire._replace(free=False, other="", silent_at=None), False
            elif known.record.holder == self._me and not known.wire.other:
                # This agent has restarted. What the responder does not answer for any more, it tells next.
                known.wire = known.wire._replace(free=True)

    def decide(self, now: float) -> Outcome:
        """Return what to do now."""
        answer, probe, watch, fence, writes, contradicted = [], [], [], [], [], []
        times: list[float] = []
        times += self._note_responder(now)
        own = self._addresses.keys() | self._held_by.get(self._me)
        for ip in self.acts.keys() - own:
            self._forget(ip)
        self._orphans = self._orphaned(now)
        for ip in chain(own, self._orphans):
            address, known = self._addresses.get(ip, _GONE), self._known.setdefault(ip, _Known())
            if (orphan_at := self._orphans.get(ip)) is not None:
                act = self._collect(orphan_at, now)
            else:
                act = self.acts[ip] = decide(self._view(address, known, now))
            self._alone(known, now, alone=act.alone)
            if not act.watch and known.wire.silent_at is not None:
                # Who watches anew has heard nothing yet.
                known.wire = known.wire._replace(silent_at=None)
            place = Place(ip, address.link)
            answer += [place] if act.answer and not known.yielded else []
            if known.yielded:
                known.yielded = False
                times.append(now)
            probe += [place] if act.probe else []
            watch += [Peer(ip, address.link, act.watch)] if act.watch else []
            if act.answer and known.fence[0] and now < known.fence[1]:
                fence.append(Peer(ip, address.link, known.fence[0]))
            if act.write and now < known.asked_at + known.rest_s:
                times.append(known.asked_at + known.rest_s)
            elif act.write and known.asked is None:
                known.asked, known.asked_at = act.write, now
                writes.append(Writing(ip, act.write, known.record, address.mac))
            contradicted += [ip] if act.read else []
            times += [act.again] if act.again is not None else []
        reads, read_at = self._reads.take(contradicted, now)
        times += [read_at] if read_at is not None else []
        watched = {peer.mac for peer in watch}
        self._outdated = {mac: at for mac, at in self._outdated.items() if mac in watched}
        since = [at for at in (self._api_away_at, self._unread_at) if at is not None]
        outdated_at = min(since, default=math.inf) + _OUTDATED_S
        times += [outdated_at] if now < outdated_at < math.inf else []
        state = State(0.0, tuple(answer), tuple(probe), tuple(watch), tuple(fence), now >= outdated_at)
        return Outcome(state, tuple(writes), reads, min(times, default=None))

    def _view(self, address: Address, known: _Known, now: float) -> View:
        seeks = seeks_holder(known.record, address.candidates)
        known.open_at = (known.open_at if known.open_at is not None else now) if seeks else None
        return View(
            self._me,
            now,
            known.record,
            address.candidates,
            address.why_not_announce if self.has_responder else _NO_RESPONDER,
            address.why_not_keep,
            known.wire,
            known.read_at,
            known.open_at,
            self._api_away_at,
            self._api_back_at,
            known.unwritable,
            None if self._unread_at is not None else self._outdated.get(known.wire.holder_mac or known.record.mac),
            known.superseded_until,
            known.alone,
            known.cut_off,
            self.leaving,
            bool(known.wire.other) and any(known.wire.other in macs for macs in self._macs.values()),
            address.mac,
            self._mute(address.link, now),
        )

    def _note_responder(self, now: float) -> list[float]:
        """Return when to decide again, since a responder that is not there has fallen silent by then."""
        if self.has_responder:
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = now
        return [self._lost_at + HOLD_MAX_S] if self._lost_at is not None and now < self._lost_at + HOLD_MAX_S else []

    def _mute(self, link: str, now: float) -> Blocker | None:
        if self._lost_at is not None:
            return _NO_RESPONDER if now >= self._lost_at + HOLD_MAX_S else None
        if (error := self._link_errors.get(link)) is None:
            return None
        return Blocker(Reason.NO_RESPONDER, f"the responder of this node cannot use {link}: {error}")

    def _alone(self, known: _Known, now: float, *, alone: bool) -> None:
        if alone and not known.alone:
            known.cut_off = known.wire.silent_alone
            # To one that was cut off itself its holder is to be heard.
            known.fence = ("", 0.0) if known.cut_off else (known.record.mac, now + _FENCE_S)
            known.wire = Wire(free=True)
        known.alone = alone

    def _orphaned(self, now: float) -> dict[str, float]:
        """Return addresses that no farm has and whose holder is gone, and since when: first those known already."""
        if self._api_away_at is not None:
            return {}
        gone = self._held_by.keys() - {*self._working, self._me}
        waiting = (ip for ip in self._orphans if any(ip in self._held_by.get(holder) for holder in gone))
        found = chain(waiting, (ip for holder in gone for ip in self._held_by.get(holder) if ip not in self._orphans))
        orphans = islice((ip for ip in found if ip not in self._addresses), _ORPHANS_MAX)
        return {ip: self._orphans.get(ip, now) for ip in orphans}

    def _collect(self, orphan_at: float, now: float) -> Act:
        """Take an address without farms whose holder is gone, to give it up in its place."""
        due = orphan_at + _ORPHAN_S * (1 + zlib.crc32(self._me.encode()) / 2**32)
        return Act(again=due) if now < due else Act(write=Write.CLAIM)

    def _forget(self, ip: str) -> None:
        self.acts.pop(ip, None)
        self._reads.forget(ip)
        # Who has the address next has to be found free, or held, anew.
        self._known[ip].alone = False
        if not self._known[ip].record.version:
            del self._known[ip]


def _next(ips: Collection[str], ip: str) -> str:
    return min((each for each in ips if each > ip), default=min(ips, default=""))


def _after(event: Yielded | Probed | Silent | Heard, wire: Wire, now: float) -> Wire:
    """Return what the segment has told of an address once an event has come."""
    if isinstance(event, Silent):
        return wire._replace(silent_at=now, silent_alone=event.alone)
    if isinstance(event, Heard):
        return wire._replace(silent_at=None, holder_mac=event.mac)
    if event.mac:
        return wire._replace(free=False, other=event.mac, other_at=now)
    # Free, if a probe found it so; else the link was away, and a probe must find out.
    return wire._replace(free=isinstance(event, Probed), free_at=now, other="")
