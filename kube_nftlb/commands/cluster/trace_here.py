"""Trace a flow in this network namespace, and tell what happened to its connections."""

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kube_nftlb import addresses
from kube_nftlb.agent.engine.nftables import layout as nftables_layout
from kube_nftlb.agent.table import layout
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.commands.trace.interpret import interpret
from kube_nftlb.commands.trace.result import Outcome, TraceResult
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.nftables import contents, messages
from kube_nftlb.netfilter.notifications import set_own_name
from kube_nftlb.netfilter.tracing import replies, rules
from kube_nftlb.netfilter.tracing.events import Event
from kube_nftlb.netfilter.tracing.packets import Packet, Packets
from kube_nftlb.netfilter.tracing.rules import Chain, RemovedRules, Rule
from kube_nftlb.netfilter.tracing.table import Flow
from kube_nftlb.netfilter.tracing.tracer import PROGRAM, Tracer, tracing
from kube_nftlb.nftlb import layout as nftlb_layout

Probe = Callable[[Flow], str]

_QUIET_S: Final = 0.5
"""If nothing more comes of a packet for so long, it went astray."""
_REPLY_S: Final = 1.0
_PROBE_S: Final = 5.0
"""Maximum time in seconds to wait for the packet of a probe."""
_USERDATA: Final = 6
_OURS: Final = (layout.TABLE, nftables_layout.TABLE, nftlb_layout.TABLE)


class Traced(NamedTuple):
    """What happened to a packet, and the events and rules that tell it."""

    result: TraceResult
    events: tuple[Event, ...] = ()
    rules: Mapping[tuple[Chain, int], Rule] = {}


async def trace(flow: Flow, seconds: float, probe: Probe | None, ready: Callable[[], None]) -> Traced:
    """Return what happened to the first connection that the client opens, within ``seconds``, or that ``probe`` opens.

    If it opens none, but sends packets of one that is open, these count. ``ready`` is called once packets are traced.
    Raises KernelError if the kernel refuses to trace.
    """
    # The agent knows this program by its name: the table of a trace is no change of its rules.
    set_own_name(PROGRAM)
    with contextlib.closing(NetfilterSocket.open()) as netfilter, contextlib.closing(RemovedRules.open()) as removed:
        async with tracing(flow) as tracer:
            ready()
            packet, sent = await _packet(tracer, flow, seconds, probe)
            if packet is not None:
                traced = await _interpreted(netfilter, removed, flow, packet)
            else:
                traced = _unseen(flow, seconds, sent)
            if sent is not None:
                traced.result.step("probe", sent)
            return traced


async def _packet(tracer: Tracer, flow: Flow, seconds: float, probe: Probe | None) -> tuple[Packet | None, str | None]:
    """Return the packet that tells most, and what came of the probe."""
    sending = asyncio.create_task(asyncio.to_thread(probe, flow)) if probe is not None else None
    packets = Packets(tracer.table)
    found = await _first_of_connection(tracer, packets, min(seconds, _PROBE_S) if probe is not None else seconds)
    return found or next(iter(packets.all), None), (await sending if sending is not None else None)


async def _first_of_connection(tracer: Tracer, packets: Packets, seconds: float) -> Packet | None:
    """Return the first packet that opens a connection, once nothing more comes of it; None if there is none."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while (remaining_s := deadline - loop.time()) > 0:
        coming = next((each for each in packets.all if each.opens), None)
        if coming is not None and coming.ended:
            return coming
        try:
            async with asyncio.timeout(remaining_s if coming is None else min(remaining_s, _QUIET_S)):
                for event in await tracer.read():
                    packets.add(event)
        except TimeoutError:
            # It went astray between two hooks.
            return coming
    return None


async def _interpreted(netfilter: NetfilterSocket, removed: RemovedRules, flow: Flow, packet: Packet) -> Traced:
    chains = {rules.chain_of(event) for event in packet.events if event.table in _OURS}
    present = await rules.read(netfilter, sorted(chains))
    # Afterwards: a rule that was not there any more has been told of by now. A table gives no handle twice.
    known = removed.read() | present
    result = interpret(packet, known, flow.protocol, await farm_of(netfilter, flow))
    if packet.opens and result.outcome is not None and result.outcome.verdict in ("Served", "NotServed"):
        reply = await replies.wait_for_reply(netfilter, flow, packet.addresses.source_port, _REPLY_S)
        result.reply = {
            "replied": "the other side has replied",
            "reset": "the other side has refused the connection: nothing listens there, or it was reset",
            "silent": f"no reply within {_REPLY_S:.0f} s",
        }[reply]
        result.step("reply", result.reply)
    return Traced(result, tuple(packet.events), known)


def _unseen(flow: Flow, seconds: float, sent: str | None) -> Traced:
    result = TraceResult(flow.client, addresses.with_port(flow.ip, flow.port), flow.protocol)
    if sent is not None:
        text = "the probe did not come as far as the first rule: is there a route to the address?"
    else:
        text = (
            f"no packet came within {seconds:.0f} s: the client sent none, it came to another node, or it bypasses "
            "these hooks (mode dsr)"
        )
    result.outcome = Outcome("Unseen", "NoPacket", text)
    return Traced(result)


async def farm_of(netfilter: NetfilterSocket, flow: Flow) -> str:
    """Return the name on the node of the farm that the engine nftables has at a destination, empty if none."""
    family: nftables_layout.TableFamily = "ip6" if ipaddress.ip_address(flow.ip).version == 6 else "ip"
    protocol: Protocol = "UDP" if flow.protocol == "UDP" else "SCTP" if flow.protocol == "SCTP" else "TCP"
    for listener in (Listener(flow.ip, protocol, flow.port), Listener(flow.ip, "All", ALL_PORTS)):
        name = nftables_layout.name(nftables_layout.SERVICES, family, all_ports=listener.protocol == "All")
        key = messages.element(nftables_layout.listener_key(listener))
        payload = messages.element_list(nftables_layout.TABLE, name, [key])
        for answer in await netfilter.ask("inet", netlink.GET_ELEMENTS, payload):
            for element in contents.elements_of(answer):
                return netlink.name((netlink.find(element, _USERDATA) or b"\0\0")[2:])
    return ""
