"""Have the kernel trace a flow, and read what it tells."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kube_nftlb import errors
from kube_nftlb.netfilter import notifications
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.tracing import events, table
from kube_nftlb.netfilter.tracing.table import Flow

PROGRAM: Final = "nftlb-trace"
"""The name by which the kernel, and so the agent, knows the program that traces."""

_GROUP_TRACE: Final = 9
_DATAGRAM: Final = 1 << 16


class Tracer:
    """Reads the events of a flow that is traced. Use ``tracing``."""

    def __init__(self, opened: socket.socket, name: str) -> None:
        self._socket = opened
        self.table: Final = name

    async def read(self) -> list[events.Event]:
        """Wait for events, and return them."""
        data = await asyncio.get_running_loop().sock_recv(self._socket, _DATAGRAM)
        return list(events.parse(data))


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
