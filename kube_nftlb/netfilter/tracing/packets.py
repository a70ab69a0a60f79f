"""Tell the packets apart whose events the kernel mixes. No I/O."""

import itertools
from dataclasses import dataclass, field

from kube_nftlb.netfilter.tracing import table
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.table import DELIVERED, SENT_ON


@dataclass(slots=True)
class Packet:
    """A traced packet: its addresses as it came, and its events so far."""

    addresses: Addresses
    events: list[Event] = field(default_factory=list)
    own: bool = True
    """True if it is of the flow that is traced; the kernel tells every trace of all packets that any of them traces."""

    @property
    def ended(self) -> bool:
        """True if there is nothing more to come: it left, was delivered, or was dropped."""
        if not self.events:
            return False
        last = self.events[-1]
        return last.verdict == "drop" or (table.is_ours(last.table) and last.chain in (DELIVERED, SENT_ON))

    @property
    def last_addresses(self) -> Addresses:
        """Its addresses as they were told last."""
        return next((each.addresses for each in reversed(self.events) if each.addresses is not None), self.addresses)

    @property
    def opens(self) -> bool:
        """True if it opens a connection, as far as is known: it may end before connection tracking."""
        states = {each.to for each in self.events if table.is_ours(each.table) and each.to in table.STATE_CHAINS}
        return states <= {table.STATE_NEW}


class Packets:
    """The packets of the trace that has a table, in the order in which they came."""

    def __init__(self, own_table: str) -> None:
        self._table = own_table
        self._packets: list[Packet] = []
        self._by_id: dict[int, Packet] = {}

    @property
    def all(self) -> list[Packet]:
        """Those of the flow that is traced."""
        return [each for each in self._packets if each.own]

    def add(self, event: Event) -> None:
        """Add an event to its packet.

        The kernel's id of a packet is that of a buffer: it changes on the way, and is used again.
        """
        known = self._by_id.get(event.id)
        if table.is_first(event) and event.addresses is not None:
            packet: Packet | None = self._begun(known, event.addresses, own=table.begins(event, self._table))
        else:
            packet = known if known is not None and not known.ended else self._open(event)
        if packet is None:
            return
        self._by_id[event.id] = packet
        # What the tables of other traces tell is about those.
        if event.table == self._table or not table.is_ours(event.table):
            packet.events.append(event)

    def _begun(self, known: Packet | None, addresses: Addresses, *, own: bool) -> Packet:
        """Return the packet that begins; one that two traces have begins in the table of each."""
        if known is not None and not known.ended and known.addresses == addresses and not (own and known.own):
            known.own |= own
            return known
        packet = Packet(addresses, own=own)
        self._packets.append(packet)
        return packet

    def _open(self, event: Event) -> Packet | None:
        """Return the packet on its way that an event with a new id belongs to, the latest one if there are several.

        A packet whose source is translated keeps its destination, and vice versa: each change is told before the next.
        """
        if event.addresses is None:
            # It is not the first event of a base chain: what comes before it is of another packet, or was not told.
            return None
        on_the_way = [each for each in reversed(self._packets) if not each.ended]
        same_source = (each for each in on_the_way if each.last_addresses[:2] == event.addresses[:2])
        same_destination = (each for each in on_the_way if each.last_addresses[2:] == event.addresses[2:])
        return next(itertools.chain(same_source, same_destination), None)
