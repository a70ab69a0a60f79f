"""The kernel's table of connections, where nftlb leaves something behind in it (netlink, conntrack(8))."""

import socket
from typing import Self

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import AsyncNFCTSocket, NFCTAttrTuple

from kube_nftlb import errors
from kube_nftlb.nftlb import objects

_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}
_ENOENT = 2


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
        family = socket.AF_INET6 if farm.ipv6 else socket.AF_INET
        table = self._sockets[family]
        released = 0
        for claim in farm.claims():
            protocol = _PROTOCOLS[claim.protocol]
            listener = NFCTAttrTuple(family, daddr=claim.ip, proto=protocol, dport=claim.port)
            try:
                found = [
                    NFCTAttrTuple.from_netlink(family, entry.get_attr("CTA_TUPLE_ORIG"))
                    async for entry in await table.dump(tuple_orig=listener)
                    if (entry.get_attr("CTA_MARK") or 0) & objects.MARK_LAST in marks
                ]
                for connection in found:
                    if protocol == socket.IPPROTO_UDP:
                        await table.entry("del", tuple_orig=connection)
                    else:
                        await table.entry("set", mark=0, tuple_orig=connection)
            except NetlinkError as error:
                # One that ended meanwhile is no trouble; the others are found at the next attempt.
                if error.code != _ENOENT:
                    raise errors.KernelError(f"cannot change connections to {claim.ip}: {error}") from error
                continue
            released += len(found)
        return released
