"""The table that has the kernel trace one flow, as messages. No I/O.

The first chain sets the packet's trace flag. The others tell what no rule of anybody else tells: the state of the
connection, and the addresses after each translation, as the kernel shows a packet's header in the trace of each base
chain.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final, NamedTuple

from kube_nftlb.netfilter.nftables import expressions, messages
from kube_nftlb.netfilter.nftables.expressions import Family, Header, State
from kube_nftlb.netfilter.nftables.messages import Hook, Message
from kube_nftlb.netfilter.tracing.events import Event

PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132}

STATE_CHAINS: Final = {f"state-{state.name.lower()}": state for state in State}
"""The chains that packets are sent to by the state of their connection."""
STATE_NEW: Final = "state-new"
TRANSLATED: Final = "translated"
"""The chain after the destination was translated."""
DELIVERED: Final = "delivered"
"""The chain of packets for the node itself, the last one."""
SENT_ON: Final = "left"
"""The chain of packets that leave, after the source was translated, the last one."""
_FIRST: Final = "first"
_STATE: Final = "state"

_PREROUTING, _INPUT, _OUTPUT, _POSTROUTING = 0, 1, 3, 4
_FIRST_PRIORITY = -450
"""Before everything, also what others do before connection tracking."""
_STATE_PRIORITY = -165
"""After connection tracking (-200), before the agent table (-160)."""
_LAST_PRIORITY = 450

_OPENING, _OTHERS = (5, 10), (1, 2)
"""Limits of traced packets, per second and for the first burst: a busy client must not slow the node down."""
_SYN_ACK, _SYN = 0x12, 0x02

_ADDRESSES = {4: (Family.IP, 12, 16, 4), 6: (Family.IP6, 8, 24, 16)}
"""By version: the family, the offsets of source and destination in the header, and their length."""


class Flow(NamedTuple):
    """The packets from a client to a listener; the protocol is TCP, UDP or SCTP."""

    client: str
    ip: str
    protocol: str
    port: int


_PREFIX: Final = "kube-nftlb-trace-"


def is_ours(table: str) -> bool:
    """Return True if a table is of a trace, also of one that another process runs."""
    return table.startswith(_PREFIX)


def is_first(event: Event) -> bool:
    """Return True if an event is the first that a trace's table tells of a packet, of its own flow or of another."""
    return is_ours(event.table) and event.chain.startswith(_FIRST) and event.addresses is not None


def begins(event: Event, own: str) -> bool:
    """Return True if an event is the first one of a packet of the flow that the table ``own`` traces."""
    return event.table == own and is_first(event) and event.kind == "rule" and event.rule != 0


def name(process: int) -> str:
    """Return the name of the table of a process."""
    return f"{_PREFIX}{process}"


def creation(table: str, flow: Flow) -> Iterator[Message]:
    """Yield what creates the table for a flow."""
    match = _match(flow)
    yield messages.new_owned_table(table)
    for chain in STATE_CHAINS:
        yield from messages.new_chain(table, chain, [])
    states = [match + expressions.has_state(state) + expressions.go_to(chain) for chain, state in STATE_CHAINS.items()]
    for hook, suffix in ((_PREROUTING, ""), (_OUTPUT, "-output")):
        yield from messages.new_base_chain(table, _FIRST + suffix, Hook(hook, _FIRST_PRIORITY), _traced(flow, match))
        yield from messages.new_base_chain(table, _STATE + suffix, Hook(hook, _STATE_PRIORITY), states)
        yield from messages.new_base_chain(table, TRANSLATED + suffix, Hook(hook, _LAST_PRIORITY), [])
    yield from messages.new_base_chain(table, DELIVERED, Hook(_INPUT, _LAST_PRIORITY), [])
    yield from messages.new_base_chain(table, SENT_ON, Hook(_POSTROUTING, _LAST_PRIORITY), [])


def _traced(flow: Flow, match: bytes) -> Iterator[bytes]:
    """Yield the rules that have packets traced; those that open connections do not wait behind others."""
    if flow.protocol == "TCP":
        yield match + expressions.has_flags(_SYN_ACK, _SYN) + expressions.limited(*_OPENING) + expressions.trace()
        yield match + expressions.has_flags(_SYN, 0) + expressions.limited(*_OTHERS) + expressions.trace()
    else:
        yield match + expressions.limited(*_OPENING) + expressions.trace()


def _match(flow: Flow) -> bytes:
    client, ip = ipaddress.ip_address(flow.client), ipaddress.ip_address(flow.ip)
    family, source, destination, length = _ADDRESSES[ip.version]
    return (
        expressions.is_family(family)
        + expressions.payload(0, Header.NETWORK, destination, length)
        + expressions.is_equal(0, ip.packed)
        + expressions.payload(0, Header.NETWORK, source, length)
        + expressions.is_equal(0, client.packed)
        + expressions.protocol(0)
        + expressions.is_equal(0, bytes((PROTOCOLS[flow.protocol],)))
        + expressions.payload(0, Header.TRANSPORT, 2, 2)
        + expressions.is_equal(0, flow.port.to_bytes(2, "big"))
    )
