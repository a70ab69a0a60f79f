"""Replies to a traced connection, as connection tracking has them (nfnetlink_conntrack.h)."""

import asyncio
import ipaddress
from typing import Final, Literal

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterSocket, attribute
from kube_nftlb.netfilter.tracing.table import PROTOCOLS, Flow

_TUPLE_ORIGINAL, _STATUS = 1, 3
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_NUMBER, _FROM_PORT, _TO_PORT = 1, 2, 3
_ADDRESSES: Final = {4: ("ip", 1, 2), 6: ("ip6", 3, 4)}
"""By version: the family, and the attributes of source and destination."""
_SEEN_REPLY: Final = 1 << 1
_AGAIN_S: Final = 0.05

Reply = Literal["replied", "reset", "silent"]
"""reset: the entry is gone, as the kernel removes that of a connection whose only reply is a reset."""


async def wait_for_reply(netfilter: NetfilterSocket, flow: Flow, source_port: int, within_s: float) -> Reply:
    """Return how the other side has replied to the first packet of a connection. Raises KernelError."""
    version = ipaddress.ip_address(flow.ip).version
    loop = asyncio.get_running_loop()
    deadline, missing = loop.time() + within_s, 0
    while True:
        answers = await netfilter.ask(_ADDRESSES[version][0], netlink.GET_CONNECTIONS, _question(flow, source_port))
        status = int.from_bytes(netlink.find(answers[0], _STATUS) or b"", "big") if answers else 0
        if status & _SEEN_REPLY:
            return "replied"
        # An entry is there a moment after the packet has left.
        missing += not answers
        if missing > 1:
            return "reset"
        if loop.time() > deadline:
            return "silent"
        await asyncio.sleep(_AGAIN_S)


def _question(flow: Flow, source_port: int) -> bytes:
    ip = ipaddress.ip_address(flow.ip)
    _, source, destination = _ADDRESSES[ip.version]
    addresses = attribute(source, ipaddress.ip_address(flow.client).packed) + attribute(destination, ip.packed)
    protocol = attribute(_NUMBER, bytes((PROTOCOLS[flow.protocol],)))
    protocol += attribute(_FROM_PORT, source_port.to_bytes(2, "big")) + attribute(
        _TO_PORT, flow.port.to_bytes(2, "big")
    )
    both = attribute(_TUPLE_IP, addresses, nested=True) + attribute(_TUPLE_PROTOCOL, protocol, nested=True)
    return attribute(_TUPLE_ORIGINAL, both, nested=True)
