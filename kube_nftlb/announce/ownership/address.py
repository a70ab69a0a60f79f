"""What this node does about one address. Pure; times are seconds of the monotonic clock.

The order of a hand-over is always the same: the new holder has programmed the farms, takes the Lease, answers and
announces, and the old one stops when it hears that, or sees the Lease. So there is no time at which nobody answers.
"""

import math
from enum import Enum
from typing import Final, NamedTuple

from kube_nftlb.announce.ownership.gate import Blocker, Reason
from kube_nftlb.announce.ownership.records import Record

_WATCHERS: Final = 2
"""How many candidates watch the holder all the time: more would only cost questions."""
_LOOK_S, _LOOK_EVERY_S = 3.0, 30.0
"""How long the others watch it, and how often: the first ones may be nodes that cannot take anything."""
_NEXT_S: Final = 0.5
"""How long the second candidate waits, for one that is better but has not programmed the farms."""
_WAITS_MAX: Final = 20
"""How many times as long the last one waits at most, however many there are."""
_NEXT_SILENT_S: Final = 0.2
"""As ``_NEXT_S`` for a holder that is silent, whose clients wait."""
_ALONE_S: Final = 4.5
"""How long a holder must have been silent, beyond the questions, to be replaced without the API server's consent."""
_NEXT_ALONE_S: Final = 1.0
_ASKED_S: Final = 3.0
"""How long it takes to find that a host does not answer, and to hear one that does."""
_PROBE_AGAIN_S: Final = 10.0
"""The interval in which a holder asks whether another host still has its address."""
_FREE_S: Final = 10.0
"""How long the outcome of a probe counts for an address that nobody holds."""
_SURE_S: Final = 15.0
"""How long this node must have reached the API server to tell that a holder alone does not: so all come back first."""
_LEAVING: Final = Blocker(Reason.NODE_LEAVES, "the agent of this node is ending")


class Wire(NamedTuple):
    """What the segment has told of an address."""

    free: bool = False
    """Nobody answered a probe, or this node has answered since."""
    free_at: float = 0.0
    """When the probe ended."""
    other: str = ""
    """The link-layer address of another host that said that it has the address, though this node holds it."""
    other_at: float = 0.0
    silent_at: float | None = None
    """When the holder that is watched was found silent; None if it is not."""
    silent_alone: bool = False
    """This node may be the one that is cut off: it heard nobody else."""
    holder_mac: str = ""
    """Who announced the address last, if that is not who the Lease names."""


class View(NamedTuple):
    """All that a decision depends on."""

    me: str
    now: float
    record: Record
    candidates: tuple[str, ...]
    """The nodes that may hold the address, the best first."""
    why_not_announce: Blocker | None
    why_not_keep: Blocker | None
    wire: Wire
    read_at: float
    """When the record was last read from the API server, or seen to change."""
    open_at: float | None = None
    """Since when a new holder is sought, by what this node sees; None if none is."""
    api_away_at: float | None = None
    """Since when the API server cannot be reached; None if it can."""
    api_back_at: float = -math.inf
    """When the API server could be reached again."""
    unwritable: bool = False
    """The API server can be reached, but has failed to write the Lease whenever this node has tried of late."""
    outdated_at: float | None = None
    """Since when the holder says that it cannot reach the API server; None if it does not."""
    superseded_until: float = 0.0
    """Another node took the address from this one while it answered: it must not take it back too soon."""
    alone: bool = False
    """Took the address without the API server, and holds it until that says otherwise."""
    cut_off: bool = False
    """May have done so because it was this node that was cut off."""
    leaving: bool = False
    """This node drains or shuts down."""
    other_is_node: bool = False
    """The other host that said that it has the address is a node that holds or held addresses."""
    mac: str = ""
    """The link-layer address of this node on the segment; empty if it is not known."""
    mute: Blocker | None = None
    """Why this node can say nothing on the segment, and has answered for nothing for a while."""


class Write(Enum):
    """What to write to the Lease."""

    CLAIM = "claim"
    LEAVE = "leave"
    GIVE_UP = "give up"
    """Delete it: nobody holds the address."""


class Act(NamedTuple):
    """What to do. All are for as long as the view stays as it is, and until ``again``."""

    answer: bool = False
    probe: bool = False
    watch: str = ""
    """The link-layer address of the holder to watch."""
    write: Write | None = None
    read: bool = False
    """Read the Lease again: the segment contradicts it."""
    alone: bool = False
    """Answer without the API server's consent."""
    used_by: str = ""
    """The link-layer address of a foreign host that has the address."""
    why_not: Blocker | None = None
    again: float | None = None
    """When to decide anew even if nothing changes."""


def decide(view: View) -> Act:
    """Return what to do."""
    act = _decide(view)
    if view.mute is None:
        return act
    # It keeps what it holds, and takes nothing. What it asks for has the responder try the link again.
    write = act.write if view.record.holder == view.me else None
    probe = act.probe or act.answer or write is not act.write
    return act._replace(answer=False, alone=False, write=write, probe=probe, why_not=act.why_not or view.mute)


def _decide(view: View) -> Act:
    if view.record.holder == view.me:
        return _hold(view)
    if view.alone:
        return _answer_alone(view) if view.why_not_keep is None else Act(why_not=view.why_not_keep)
    if view.why_not_announce is not None:
        return _watching(view)._replace(probe=_is_next(view), why_not=view.why_not_announce)
    if view.leaving:
        return Act(why_not=_LEAVING)
    if view.me not in view.candidates:
        return Act()
    return _seek(view, view.open_at) if view.open_at is not None else _stand_by(view)


def _is_programming(view: View) -> bool:
    return view.why_not_announce is not None and view.why_not_announce.reason is Reason.NOT_PROGRAMMED


def _is_next(view: View) -> bool:
    """Return whether this node is to have a new address once the kernel has its farms: it asks for it meanwhile."""
    new = not view.record.holder and view.candidates[:1] == (view.me,) and view.api_away_at is None
    return _is_programming(view) and new and not view.leaving and not (view.wire.free or view.wire.other)


def _watching(view: View) -> Act:
    """Watch the holder while farms of the address are programmed, which may be all the time."""
    if not _is_programming(view) or view.leaving or view.me not in view.candidates or not view.record.holder:
        return Act()
    act = _seek(view, view.open_at) if view.open_at is not None else _stand_by(view)
    return Act(watch=act.watch, again=act.again)


def _others(view: View) -> list[str]:
    return [node for node in view.candidates if node != view.record.holder]


def seeks_holder(record: Record, candidates: tuple[str, ...]) -> bool:
    """Return whether an address needs another holder, by what all nodes see."""
    return record.holder not in candidates or record.leaving


def _hold(view: View) -> Act:
    wire = view.wire
    if view.why_not_keep is not None:
        return Act(write=Write.GIVE_UP, why_not=view.why_not_keep)
    if not wire.other:
        return _answer(view) if wire.free else Act(probe=True)
    if view.read_at <= wire.other_at:
        # Another node may hold it by now, and this one has not heard of it.
        return _used(view)._replace(read=view.api_away_at is None)
    return _answer(view) if view.other_is_node else _used(view)


def _answer(view: View) -> Act:
    write = None
    if view.leaving and not view.record.leaving and set(view.candidates) - {view.me}:
        write = Write.LEAVE
    elif view.record.unwatched or (view.record.leaving and not view.leaving):
        write = Write.CLAIM
    elif view.api_away_at is None and view.record.mac and view.mac not in ("", view.record.mac):
        # The interface has got another one, as when a bond fails over: who begins to watch goes by the Lease.
        write = Write.CLAIM
    return Act(answer=True, write=write)


def _used(view: View) -> Act:
    """Another host has the address: ask now and then whether it still has."""
    again = view.wire.other_at + _PROBE_AGAIN_S
    if view.now < again:
        return Act(used_by=view.wire.other, again=again)
    return Act(used_by=view.wire.other, probe=True)


def _seek(view: View, open_at: float) -> Act:
    """Take an address that nobody holds, or whose holder should no longer."""
    # One that leaves is out of the question, though all else speaks for it.
    rank = _others(view).index(view.me)
    due = open_at + _turn_s(rank, _NEXT_S)
    if view.record.holder and rank < _WATCHERS and (view.api_away_at is not None or view.unwritable):
        return _outlive(view, rank, due)
    if view.api_away_at is not None:
        return Act()
    if view.now < due:
        return Act(again=due)
    if view.record.holder or (view.wire.free and view.now <= view.wire.free_at + _FREE_S):
        return Act(write=Write.CLAIM)
    return _used(view) if view.wire.other else Act(probe=True)


def _outlive(view: View, rank: int, due: float) -> Act:
    """Watch a holder that should no longer hold an address, as long as no Lease can say so."""
    mac, silent_at = view.wire.holder_mac or view.record.mac, view.wire.silent_at
    alone_at = silent_at + _alone_s(rank) if mac and silent_at is not None else math.inf
    if view.now >= alone_at:
        return _answer_alone(view)
    write = Write.CLAIM if view.api_away_at is None and view.now >= due else None
    again = min(alone_at, due if view.now < due else math.inf)
    return Act(watch=mac, write=write, again=again if again < math.inf else None)


def _stand_by(view: View) -> Act:
    """Watch the holder, and take its address if it falls silent."""
    rank = _others(view).index(view.me)
    mac, silent_at = view.wire.holder_mac or view.record.mac, view.wire.silent_at
    if not mac:
        return Act()
    if rank >= _WATCHERS and (silent_at is None or view.wire.silent_alone):
        # Of many nodes one that hears nobody is rather cut off itself than the only one that is left.
        return _look(view, mac)
    if silent_at is None:
        return _supersede(view, mac, rank)
    away = view.api_away_at is not None
    alone_at = silent_at + _alone_s(rank)
    due = alone_at if away else silent_at + _turn_s(rank, _NEXT_SILENT_S)
    # Whoever took the address from this node while it answered does not hear it: the segment is split, or this node is
    # cut off from it, and would take the address in vain.
    due = max(due, view.superseded_until)
    if view.now < due:
        return Act(watch=mac, again=due)
    if away or (view.unwritable and view.now >= alone_at):
        return _answer_alone(view)
    return Act(watch=mac, write=Write.CLAIM, again=alone_at if view.unwritable else None)


def _answer_alone(view: View) -> Act:
    """Answer without a Lease that says so, and write one once that is possible.

    A node that may have been cut off itself first asks whether the holder is there after all.
    """
    asks = view.record.mac if view.cut_off else ""
    asked_at = view.api_back_at + _ASKED_S if view.cut_off else -math.inf
    if view.api_away_at is not None or view.now < asked_at:
        return Act(answer=True, alone=True, watch=asks, again=asked_at if view.api_away_at is None else None)
    return Act(answer=True, alone=True, watch=asks, write=Write.CLAIM)


def _alone_s(rank: int) -> float:
    """Return how long a holder must have been silent to be replaced without its Lease."""
    return _ALONE_S + _turn_s(rank, _NEXT_ALONE_S)


def _supersede(view: View, mac: str, rank: int) -> Act:
    """Watch the holder, and take its address if it alone cannot reach the API server: its rules may be out of date."""
    if view.outdated_at is None or view.api_away_at is not None:
        return Act(watch=mac)
    due = max(view.outdated_at, view.api_back_at + _SURE_S) + _turn_s(rank, _NEXT_S)
    return Act(watch=mac, again=due) if view.now < due else Act(watch=mac, write=Write.CLAIM)


def _look(view: View, mac: str) -> Act:
    """Watch the holder for a short while, now and then."""
    elapsed = view.now % _LOOK_EVERY_S
    looks = elapsed < _LOOK_S
    if looks and view.outdated_at is not None:
        return _supersede(view, mac, _others(view).index(view.me))
    return Act(watch=mac if looks else "", again=view.now - elapsed + (_LOOK_S if looks else _LOOK_EVERY_S))


def _turn_s(rank: int, first_s: float) -> float:
    """Return how long a candidate waits for those before it, each of which adds less: some of them may never come."""
    return _WAITS_MAX * first_s * rank / (rank + _WAITS_MAX - 1)
