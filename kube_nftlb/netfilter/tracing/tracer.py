"""Have the kernel trace a flow, and read what it tells."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kube_nftlb import errors
from kube_nftlb.netfilter import notifications
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.tracing import events, table
from kube_nftlb.netfilter.tracing.table import Flow

PROGRAM: Final = "nftlb-trace"
"""The name by which the kernel, and so the agent, knows the program that traces."""

_GROUP_TRACE: Final = 9


class Tracer:
    """Reads the events of a flow that is traced. Use ``tracing``."""

    def __init__(self, opened: NetlinkSocket, name: str) -> None:
        self._socket = opened
        self.table: Final = name

    async def read(self) -> list[events.Event]:
        """Wait for events, and return them."""
        return list(events.parse(await self._socket.receive_later()))


@asynccontextmanager
async def tracing(flow: Flow) -> AsyncIterator[Tracer]:
    """Trace a flow in this network namespace. Whatever ends this process ends that too: the table goes with its socket.

    Raises KernelError if the kernel refuses the table.
    """
    name = table.name(os.getpid())
    with notifications.subscribed(events.NEW_TRACE, _GROUP_TRACE) as opened:
        nftables = NftSocket.open()
        try:
            try:
                await nftables.commit(list(table.creation(name, flow)))
            except errors.KernelError as error:
                raise errors.KernelError(f"{error}; tracing needs Linux 5.12 and the capability NET_ADMIN") from None
            yield Tracer(opened, name)
        finally:
            nftables.close()
