"""From what the kernel tells of a packet to what happened, in our words. Pure: no I/O."""

from typing import Final

from kube_nftlb import addresses
from kube_nftlb.agent.engine.nftables import layout as nftables_layout
from kube_nftlb.agent.table import layout
from kube_nftlb.commands.trace import outcomes
from kube_nftlb.commands.trace.agent_table import AgentTableReader
from kube_nftlb.commands.trace.engine_rules import NftablesReader, NftlbReader
from kube_nftlb.commands.trace.result import Outcome, TraceResult
from kube_nftlb.netfilter.tracing import table
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.packets import Packet
from kube_nftlb.netfilter.tracing.rules import Rules
from kube_nftlb.nftlb import layout as nftlb_layout

_INET: Final = "inet"


def interpret(packet: Packet, rules: Rules, protocol: str = "TCP", farm: str = "") -> TraceResult:
    """Return what happened to a packet.

    ``rules`` are those of the chains that it passed; ``farm`` is the name on the node of the farm that the engine
    nftables has at the packet's destination, empty if there is none.
    """
    came = packet.addresses
    result = TraceResult(
        addresses.with_port(came.source, came.source_port),
        addresses.with_port(came.destination, came.destination_port),
        protocol,
    )
    ends = _Ends(result, came)
    agent, nftlb = AgentTableReader(result, rules), NftlbReader(result, rules)
    nftables = NftablesReader(result, rules, farm)
    for event in packet.events:
        if table.is_ours(event.table):
            ends.read(event)
        elif (event.family, event.table) == (_INET, layout.TABLE):
            agent.read(event)
        elif (event.family, event.table) == (_INET, nftables_layout.TABLE):
            nftables.read(event)
        elif event.family in nftlb_layout.FAMILIES and event.table == nftlb_layout.TABLE:
            nftlb.read(event)
        else:
            _other_program(result, event)
    if result.established:
        # Packets of an open connection do not come by the chains that would tell.
        result.serve(farm, "nftables")
    ends.conclude()
    return result


def _other_program(result: TraceResult, event: Event) -> None:
    where = f"the chain {event.chain} of the table {event.family} {event.table}"
    if event.verdict == "drop" and result.outcome is None:
        which = f"rule {event.rule} of {where}" if event.rule else f"the policy of {where}"
        text = f"{which} dropped or rejected the packet; it is another program's (nft -a list chain shows it)"
        result.outcome = Outcome("Dropped", "OtherProgram", text)
    elif event.verdict == "queue":
        result.step("queue", f"{where}, another program's, passed the packet to a program", event.chain)


class _Ends:
    """The addresses that a packet was translated to, and those that it ended with."""

    def __init__(self, result: TraceResult, came: Addresses) -> None:
        self._result = result
        self._came = came
        self._translated: Addresses | None = None
        self._last: Addresses | None = None
        self._delivered = False

    def read(self, event: Event) -> None:
        """Note the state and the addresses that an event of the trace's own table tells."""
        if event.to in table.STATE_CHAINS and event.to != table.STATE_NEW:
            self._result.established = True
            state = table.STATE_CHAINS[event.to].name.lower()
            text = {
                "established": "established earlier: the choice of then holds",
                "invalid": "the packet belongs to no connection and opens none (invalid)",
            }.get(state, state)
            self._result.step("connection", text)
        elif event.to == table.STATE_NEW:
            self._result.step("connection", "new")
        if event.addresses is None:
            return
        if event.chain.startswith(table.TRANSLATED):
            self._translated = event.addresses
        elif event.chain in (table.SENT_ON, table.DELIVERED):
            self._last = event.addresses
            self._delivered = event.chain == table.DELIVERED

    def conclude(self) -> None:
        """Add the backend, who it sees as the client, and the outcome if no rule ended the packet's way."""
        result, to = self._result, self._last or self._translated
        moved = to is not None and to[2:] != self._came[2:]
        if to is not None and moved:
            result.backend = addresses.with_port(to.destination, to.destination_port)
            if to.destination == self._came.source:
                result.step("hairpin", "the client is its own backend")
        if self._last is not None and moved:
            self._source(self._last)
        if result.outcome is None:
            result.outcome = self._outcome(moved=moved)

    def _source(self, last: Addresses) -> None:
        self._result.seen_as = last.source
        if last.source != self._came.source:
            self._result.step("source", f"masqueraded: the backend sees {last.source}")
        else:
            self._result.step("source", "not masqueraded: the backend sees the client")

    def _outcome(self, *, moved: bool) -> Outcome:
        result = self._result
        if self._last is None:
            before = f"to {result.backend}" if moved else "to the destination"
            text = (
                f"it was never sent on: there is no route {before} (see `ip route get`), or the kernel's reverse path "
                "filter or a rule of iptables dropped it"
            )
            return Outcome("Lost", "NotRouted", text)
        if moved and result.established:
            return Outcome("Served", "EstablishedConnection", f"its connection is with {result.backend}")
        if moved and result.engine:
            return Outcome("Served", "BackendChosen", f"sent to {result.backend}")
        if moved:
            return Outcome("NotServed", "OtherProgram", f"another program translated it, to {result.backend}")
        if result.engine and self._delivered:
            return outcomes.NODE_ITSELF
        if result.engine:
            text = "the farm has the destination, but has not translated it: no backend is where its mark leads"
            return Outcome("NotServed", "NotTranslated", text)
        went = "delivered to the node itself" if self._delivered else "routed as any other packet"
        return Outcome("NotServed", "NoListener", f"no farm has the destination on this node: it was {went}")
