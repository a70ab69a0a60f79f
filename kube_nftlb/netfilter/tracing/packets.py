"""Tell the packets apart whose events the kernel mixes. No I/O."""

from dataclasses import dataclass, field

from kube_nftlb.netfilter.tracing import table
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.table import DELIVERED, LEFT


@dataclass(slots=True)
class Packet:
    """A traced packet: its addresses as it came, and its events so far."""

    addresses: Addresses
    events: list[Event] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """True if there is nothing more to come: it left, was delivered, or was dropped."""
        last = self.events[-1]
        return last.verdict == "drop" or (table.is_ours(last.table) and last.chain in (DELIVERED, LEFT))

    @property
    def opens(self) -> bool:
        """True if it opens a connection, as far as is known: it may end before connection tracking."""
        states = {each.to for each in self.events if table.is_ours(each.table) and each.to in table.STATE_CHAINS}
        return states <= {table.STATE_NEW}


class Packets:
    """The packets of a trace, in the order in which they came."""

    def __init__(self) -> None:
        self.all: list[Packet] = []
        self._by_id: dict[int, Packet] = {}

    def add(self, event: Event) -> None:
        """Add an event to its packet.

        The kernel's id of a packet is that of a buffer: it changes on the way, and is used again.
        """
        if table.begins(event) and event.addresses is not None:
            packet = Packet(event.addresses)
            self.all.append(packet)
        else:
            known = self._by_id.get(event.id)
            found = known if known is not None and not known.ended else self._open(event)
            if found is None:
                return
            packet = found
        packet.events.append(event)
        self._by_id[event.id] = packet

    def _open(self, event: Event) -> Packet | None:
        """Return the packet on its way that an event with a new id belongs to: from the same port, if possible."""
        on_the_way = [each for each in self.all if not each.ended]
        port = event.addresses.source_port if event.addresses is not None else 0
        same = [each for each in on_the_way if each.addresses.source_port == port]
        return next(iter(same or on_the_way), None)
