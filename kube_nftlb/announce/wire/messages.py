"""What the agent and the responder tell each other: lines of JSON over a Unix socket.

The agent always tells the whole state, so that nothing depends on what was said before. Deadlines are times of the
monotonic clock, which all processes of a node share: one that lay in a buffer for too long is over when it is read.
"""

from typing import Final

import msgspec

HOLD_MAX_S: Final = 5.0
"""The responder never answers for longer without a word from the agent."""
LINE_MAX: Final = 8 << 20
"""Bytes of a line: tens of thousands of addresses."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """An address on a link of this node."""

    ip: str
    link: str
    """The name of the network interface."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """An address as another node has it, or had it."""

    ip: str
    link: str
    """The interface of this node on the same segment."""
    mac: str
    """The link-layer address of the other node, as in ``02:00:00:00:00:01``."""


class State(msgspec.Struct, frozen=True, tag="state"):
    """What to do until the deadline."""

    deadline: float
    answer: tuple[Place, ...] = ()
    """Addresses that this node holds. What comes newly is announced."""
    probe: tuple[Place, ...] = ()
    """Addresses of which nobody is known to have them: ask once for each whether anybody answers."""
    watch: tuple[Peer, ...] = ()
    """Addresses of other nodes, which this one takes over if they fall silent."""
    fence: tuple[Peer, ...] = ()
    """Addresses that this node took over, with whom had them before: tell that node if it answers again."""
    outdated: bool = False
    """Tell nodes that ask that what this one serves may be out of date."""


class Renewal(msgspec.Struct, frozen=True, tag="renewal"):
    """Go on until the new deadline."""

    deadline: float


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The agent is connected, or the deadline has passed."""

    holds: bool
    """Whether the responder has a state; else it has just started, or has been silent."""


class Yielded(msgspec.Struct, frozen=True, tag="yielded"):
    """This node no longer answers, until the agent has left the address out of a state: others may have it."""

    ip: str
    link: str
    mac: str
    """Of another host that says that it has the address; empty if the link could not be used for a while."""


class Silent(msgspec.Struct, frozen=True, tag="silent"):
    """A watched node has not answered three times."""

    ip: str
    link: str
    mac: str
    alone: bool = False
    """Nothing was heard of any other host either: this node may be the one that is cut off."""


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """A node that was silent answers again, one that is fenced goes on answering, or another announces itself."""

    ip: str
    link: str
    mac: str


class Outdated(msgspec.Struct, frozen=True, tag="outdated"):
    """A watched node says that what it serves may be out of date, or no longer does."""

    link: str
    mac: str
    outdated: bool


class Probed(msgspec.Struct, frozen=True, tag="probed"):
    """The outcome of a probe: who has the address, or empty if nobody answered."""

    ip: str
    link: str
    mac: str = ""


class LinkChanged(msgspec.Struct, frozen=True, tag="link"):
    """A link can be used, or not and why."""

    link: str
    mac: str = ""
    """Its own address; empty if it cannot be used."""
    error: str = ""


Order = State | Renewal
Event = Ready | Yielded | Silent | Heard | Outdated | Probed | LinkChanged

_ORDERS: Final[msgspec.json.Decoder[Order]] = msgspec.json.Decoder(Order)
_EVENTS: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode(message: Order | Event) -> bytes:
    """Return a line."""
    return msgspec.json.encode(message) + b"\n"


def order(line: bytes) -> Order:
    """Return what the agent says. Raises ValueError."""
    return _ORDERS.decode(line)


def event(line: bytes) -> Event:
    """Return what the responder says. Raises ValueError."""
    return _EVENTS.decode(line)
