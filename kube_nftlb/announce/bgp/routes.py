"""Which routes this node has for its addresses, for a routing daemon to announce. Pure.

Times are seconds of the monotonic clock. All nodes that may announce an address do, and routers choose among them. A
node that is about to stop first gives its route another metric, so that routers prefer other nodes while it still is a
way: the daemon announces it with the community GRACEFUL_SHUTDOWN (RFC 8326). An agent that ends does that, too, and
deletes nothing: the kernel serves on, and whether others announce an address is not known, only that they should.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from kube_nftlb.announce.ownership.address import Act
from kube_nftlb.announce.ownership.gate import Blocker, Reason

PROTOCOL: Final = 110
"""The kernel's number of our routes, so that they are told from those of others: iproute2 has no name for it."""
GOING_S: Final = 2.0
"""How long routers are told to prefer other nodes before a route is deleted."""


class Metric(IntEnum):
    """What a route says of this node, as the kernel's metric: the lower one of a prefix counts."""

    SERVES = 100
    GOES = 200
    """Routers are to prefer other nodes."""


class Address(NamedTuple):
    """What is known of an address on this node."""

    prefix: str
    """The prefix to announce for it, such as ``192.0.2.10/32``."""
    nodes: frozenset[str]
    """The nodes that should announce it, by what all nodes see."""
    why_not_announce: Blocker | None = None
    why_not_keep: Blocker | None = None
    is_served: bool = True
    """False if this node is not going to serve any of its farms."""


class Route(NamedTuple):
    """A route in the table."""

    prefix: str
    metric: int


class Changes(NamedTuple):
    """How to get to the routes that there should be."""

    add: tuple[Route, ...]
    """Before ``delete``, so that a prefix whose metric changes always has a route."""
    delete: tuple[Route, ...]


@dataclass
class _Known:
    metric: Metric
    going_at: float | None = None
    """Since when other nodes are to take over; None if they are not."""
    is_adopted: bool = False
    """An earlier agent made the route, and this one has yet to compare its address with the kernel."""


@dataclass
class Routes:
    """The routes of the node ``me``."""

    me: str
    leaving: bool = False
    """The agent is about to end."""
    acts: dict[str, Act] = field(default_factory=dict)
    """What was decided last, by address, as for addresses on a segment."""
    _known: dict[str, _Known] = field(default_factory=dict)
    """The addresses that have a route."""

    @property
    def routed(self) -> Collection[str]:
        """Return the addresses with a route."""
        return self._known

    @property
    def serves(self) -> bool:
        """Return whether any route says that this node serves."""
        return any(known.metric is Metric.SERVES for known in self._known.values())

    def adopt(self, metrics: Mapping[str, Metric]) -> None:
        """Take the routes that an agent before this one left: they go on as if this one had made them."""
        self._known.update({ip: _Known(metric, is_adopted=True) for ip, metric in metrics.items()})

    def decide(self, addresses: Mapping[str, Address], now: float) -> tuple[frozenset[Route], float | None]:
        """Return the routes that there should be, and when to decide again even if nothing changes."""
        wanted: dict[str, Metric] = {}
        times = []
        for ip in self._known.keys() - addresses.keys():
            del self._known[ip]
        self.acts = {}
        for ip, address in addresses.items():
            act, metric = self._decide(ip, address, now)
            self.acts[ip] = act
            times += [act.again] if act.again is not None else []
            if metric is not None:
                # An aggregate serves if one of its addresses does.
                wanted[address.prefix] = min(metric, wanted.get(address.prefix, metric))
        return frozenset(Route(*entry) for entry in wanted.items()), min(times, default=None)

    def _decide(self, ip: str, address: Address, now: float) -> tuple[Act, Metric | None]:
        blocker = address.why_not_announce
        if blocker is None:
            # A node that others are to replace still serves: its last endpoints terminate. So its route is never the
            # last that is deleted.
            metric = Metric.SERVES if self.me in address.nodes and not self.leaving else Metric.GOES
            self._known[ip] = _Known(metric)
            return Act(answer=True), metric
        known = self._known.get(ip)
        if known is None or not _keeps(known, address):
            return self._delete(ip, blocker)
        if blocker.reason is Reason.NOT_PROGRAMMED:
            known.metric = Metric.GOES if self.leaving else known.metric
            return Act(answer=True), known.metric
        known.metric = Metric.GOES
        if blocker.reason is Reason.NODE_LEAVES and not address.nodes - {self.me}:
            known.going_at = None
            return Act(answer=True), Metric.GOES
        if known.going_at is None:
            known.going_at = now
        until = known.going_at + GOING_S
        return (Act(answer=True, again=until), Metric.GOES) if now < until else self._delete(ip, blocker)

    def _delete(self, ip: str, blocker: Blocker) -> tuple[Act, None]:
        self._known.pop(ip, None)
        return Act(why_not=blocker), None


def _keeps(known: _Known, address: Address) -> bool:
    """Return whether a route may stay until others are announced; notes that an adopted one has begun."""
    reasons = {each.reason for each in (address.why_not_announce, address.why_not_keep) if each is not None}
    known.is_adopted = known.is_adopted and address.is_served and Reason.NOT_PROGRAMMED in reasons
    why_not = address.why_not_keep
    # The kernel serves what the earlier agent has programmed, however long this one takes to compare it.
    return why_not is None or (known.is_adopted and why_not.reason is Reason.NOT_PROGRAMMED)


def changes(actual: Collection[Route], wanted: Collection[Route]) -> Changes:
    """Return how to get from one to the other."""
    before, after = set(actual), set(wanted)
    return Changes(tuple(sorted(after - before)), tuple(sorted(before - after)))
