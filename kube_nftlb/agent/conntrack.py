"""The kernel's table of connections, where nftlb leaves something behind in it (netlink, conntrack(8))."""

import socket
from collections.abc import Awaitable, Callable
from typing import Any, Self

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import AsyncNFCTSocket, NFCTAttrTuple

from kube_nftlb import errors, metrics
from kube_nftlb.nftlb import objects

_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}
_ENOENT = 2

_QUESTIONS_MAX = 8

_Change = Callable[[AsyncNFCTSocket, NFCTAttrTuple], Awaitable[None]]


class Conntrack:
    """This network namespace's connections. Use ``Conntrack.open``."""

    def __init__(self, sockets: dict[int, AsyncNFCTSocket]) -> None:
        self._sockets = sockets

    @classmethod
    async def open(cls) -> Self:
        """Open the sockets, in the running event loop."""
        sockets = {int(family): AsyncNFCTSocket(family) for family in (socket.AF_INET, socket.AF_INET6)}
        for each in sockets.values():
            await each.setup_endpoint()
        return cls(sockets)

    def close(self) -> None:
        """Close the sockets."""
        for each in self._sockets.values():
            each.close()

    async def release(self, farm: objects.Farm, marks: set[int]) -> int:
        """Part a farm's connections from backends that are gone, known by their marks; how many that were.

        A UDP flow is forgotten: a client that keeps its port would be sent to the old backend for ever. Any other
        connection goes on, but without its mark: with it, each packet would renew the session that leads there.
        """
        released = await self._each(farm, lambda entry: _mark(entry) in marks, self._released)
        return _counted("BackendGone", released)

    async def cut(self, farm: objects.Farm, addresses: frozenset[str]) -> int:
        """Forget a farm's connections to these addresses; how many that were. Their next packet is refused or reset."""
        if not addresses:
            return 0
        ended = await self._each(farm, lambda entry: _answerer(entry) in addresses, self._forgotten)
        return _counted("BackendDown", ended)

    async def forget_untranslated(self, farm: objects.Farm) -> int:
        """Forget connections to a farm from before it was there; how many that were.

        What the kernel once let pass as it was it never translates. Marks prove nothing: it may have got one since.
        """
        ips = {claim.ip for claim in farm.claims()}
        forgotten = await self._each(farm, lambda entry: _answerer(entry) in ips, self._forgotten)
        return _counted("Untranslated", forgotten)

    async def _each(self, farm: objects.Farm, chosen: Callable[[Any], bool], change: _Change) -> int:
        family = socket.AF_INET6 if farm.ipv6 else socket.AF_INET
        table = self._sockets[family]
        listeners = {
            (claim.ip, _PROTOCOLS[protocol], claim.port)
            for claim in farm.claims()
            for protocol in objects.PROTOCOLS[claim.protocol]
        }
        # Asked for an IPv6 address the kernel tells of nothing, and a thousand questions take longer than all answers.
        asked: list[NFCTAttrTuple | None] = [None]
        if family == socket.AF_INET and len(listeners) <= _QUESTIONS_MAX:
            asked = [NFCTAttrTuple(family, daddr=ip, proto=proto, dport=port or None) for ip, proto, port in listeners]
        changed = 0
        for question in asked:
            try:
                found = [
                    connection
                    async for entry in await table.dump(tuple_orig=question)
                    if chosen(entry)
                    and (connection := NFCTAttrTuple.from_netlink(family, entry.get_attr("CTA_TUPLE_ORIG")))
                    and not listeners.isdisjoint(
                        (connection.daddr, connection.proto, port) for port in (connection.dport, 0)
                    )
                ]
                for connection in found:
                    await change(table, connection)
            except NetlinkError as error:
                # One that ended meanwhile is no trouble; the others are found at the next attempt.
                if error.code != _ENOENT:
                    raise errors.KernelError(f"cannot change connections of {farm.name}: {error}") from error
                continue
            changed += len(found)
        return changed

    @staticmethod
    async def _released(table: AsyncNFCTSocket, connection: NFCTAttrTuple) -> None:
        if connection.proto == socket.IPPROTO_UDP:
            await table.entry("del", tuple_orig=connection)
        else:
            await table.entry("set", mark=0, tuple_orig=connection)

    @staticmethod
    async def _forgotten(table: AsyncNFCTSocket, connection: NFCTAttrTuple) -> None:
        await table.entry("del", tuple_orig=connection)


def _counted(reason: str, connections: int) -> int:
    metrics.CONNECTIONS_PARTED.labels(reason).inc(connections)
    return connections


def _mark(entry: Any) -> int:
    """The backend's part of a connection's mark."""
    mark: int = entry.get_attr("CTA_MARK") or 0
    return mark & objects.MARK_LAST


def _answerer(entry: Any) -> str:
    """The address that answers a connection, which is the backend's once it was translated."""
    ip = entry.get_attr("CTA_TUPLE_REPLY").get_attr("CTA_TUPLE_IP")
    address: str = ip.get_attr("CTA_IP_V4_SRC") or ip.get_attr("CTA_IP_V6_SRC") or ""
    return address
