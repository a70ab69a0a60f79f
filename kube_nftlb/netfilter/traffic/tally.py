"""Count what entries and events tell, without counting a connection or a byte twice. Pure.

What is known of each connection is what it had when it was last seen, in the table or in an event. So it does not
matter which of the two comes first, and what lost events would have told, the next table tells of the connections that
are still in it.
"""

import ipaddress
import struct
from collections import Counter
from typing import Final, NamedTuple

from kube_nftlb.netfilter.conntrack.entries import SCTP, TCP, UDP, Entry

_PROTOCOLS: Final = {TCP: "TCP", UDP: "UDP", SCTP: "SCTP"}
_FLOWS: Final = {4: struct.Struct(">B4sH4sH"), 16: struct.Struct(">B16sH16sH")}
"""By the length of an address."""
_FLOWS_BY_SIZE: Final = {each.size: each for each in _FLOWS.values()}


class Flow(NamedTuple):
    """A listener, and the backend that answers there."""

    protocol: str
    ip: str
    port: int
    backend_ip: str
    backend_port: int


def packed(entry: Entry) -> bytes:
    """Return the flow of a connection as bytes: it is the key of hundreds of thousands."""
    return _FLOWS[len(entry.server[0])].pack(entry.protocol, *entry.server, *entry.answerer)


def unpacked(flow: bytes) -> Flow:
    """Return a flow as text and numbers."""
    protocol, ip, port, backend, backend_port = _FLOWS_BY_SIZE[len(flow)].unpack(flow)
    return Flow(
        _PROTOCOLS[protocol], str(ipaddress.ip_address(ip)), port, str(ipaddress.ip_address(backend)), backend_port
    )


class Counts(NamedTuple):
    """New connections and bytes since the last time, and the connections that are open now."""

    new: int = 0
    open: int = 0
    sent: int = 0
    """Bytes from clients."""
    answered: int = 0
    """Bytes from backends."""

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum."""
        return Counts(
            self.new + other.new, self.open + other.open, self.sent + other.sent, self.answered + other.answered
        )


class Tally:
    """Counts by flow. The first table is what there was before: its connections are not new, nor are their bytes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        """The bytes of each connection when it was last seen."""
        self._listed: dict[int, tuple[int, int]] | None = None
        """The same, of those in the table that is being read."""
        self._ended: set[int] = set()
        """Those that ended while the table is being read: it may still have them."""
        self._first = True
        self._new: Counter[bytes] = Counter()
        self._sent: Counter[bytes] = Counter()
        self._answered: Counter[bytes] = Counter()
        self._open: Counter[bytes] = Counter()

    @property
    def connections(self) -> int:
        """The number of connections that are known."""
        return len(self._known)

    def created(self, entry: Entry) -> None:
        """Count a new connection, as an event tells."""
        identity = entry.identity
        if identity in self._known:
            return
        self._add(entry, None)
        self._known[identity] = (entry.sent, entry.answered)
        if self._listed is not None:
            self._listed.setdefault(identity, (entry.sent, entry.answered))

    def ended(self, entry: Entry) -> None:
        """Count the last bytes of a connection, as an event tells."""
        identity = entry.identity
        self._add(entry, self._known.pop(identity, None))
        if self._listed is not None:
            self._listed.pop(identity, None)
            self._ended.add(identity)

    def begin_table(self) -> None:
        """Begin to read the table. Events may be counted meanwhile."""
        self._listed = {}
        self._open = Counter()

    def listed(self, entry: Entry) -> None:
        """Count an entry of the table."""
        identity = entry.identity
        if self._listed is None or identity in self._ended:
            return
        flow = self._add(entry, self._known.get(identity))
        self._known[identity] = self._listed[identity] = (entry.sent, entry.answered)
        self._open[flow] += entry.is_open

    def end_table(self) -> None:
        """Forget the connections that were not in the table."""
        self._known = self._listed or {}
        self._listed = None
        self._ended = set()
        self._first = False

    def take(self) -> dict[bytes, Counts]:
        """Return what was counted since the last time, by flow; flows without anything are left out."""
        flows = self._new.keys() | self._open.keys() | self._sent.keys() | self._answered.keys()
        taken = {
            flow: Counts(self._new[flow], self._open[flow], self._sent[flow], self._answered[flow]) for flow in flows
        }
        self._new, self._sent, self._answered = Counter(), Counter(), Counter()
        return {flow: counts for flow, counts in taken.items() if any(counts)}

    def _add(self, entry: Entry, before: tuple[int, int] | None) -> bytes:
        """Count what is new of a connection. Return its flow."""
        flow = packed(entry)
        if self._first:
            return flow
        if before is None:
            self._new[flow] += 1
            before = (0, 0)
        if sent := max(entry.sent - before[0], 0):
            self._sent[flow] += sent
        if answered := max(entry.answered - before[1], 0):
            self._answered[flow] += answered
        return flow
