"""Replies to a traced connection, as connection tracking has them."""

import asyncio
import ipaddress
from typing import Final, Literal

from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.tracing.table import PROTOCOLS, Flow

_AGAIN_S: Final = 0.05

Reply = Literal["replied", "reset", "silent"]
"""reset: the entry is gone, as the kernel removes that of a connection whose only reply is a reset."""


async def wait_for_reply(netfilter: NetfilterSocket, flow: Flow, source_port: int, within_s: float) -> Reply:
    """Return how the other side has replied to the first packet of a connection. Raises KernelError."""
    conntrack = Conntrack(netfilter)
    client, ip = (ipaddress.ip_address(each).packed for each in (flow.client, flow.ip))
    loop = asyncio.get_running_loop()
    deadline, missing = loop.time() + within_s, 0
    while True:
        entry = await conntrack.one(PROTOCOLS[flow.protocol], (client, source_port), (ip, flow.port))
        if entry is not None and entry.has_reply:
            return "replied"
        # An entry is there a moment after the packet has left.
        missing += entry is None
        if missing > 1:
            return "reset"
        if loop.time() > deadline:
            return "silent"
        await asyncio.sleep(_AGAIN_S)
