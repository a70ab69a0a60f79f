"""The TCP connections that the kernel translates, found and forgotten over netlink (see conntrack(8)).

Attributes are named as in linux/netfilter/nfnetlink_conntrack.h, states as in nf_conntrack_tcp.h.
"""

import socket
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.conntrack import questions
from kube_nftlb.netfilter.netlink import Change, NetfilterClient
from kube_nftlb.netfilter.translated import DESTINATION_TRANSLATED, STATUS, TRANSLATED

Family = Literal["ip", "ip6"]
Endpoint = tuple[bytes, int]
"""An address as the kernel has it, and a port; where that is said, port 0 stands for all."""

_TUPLE_ORIGINAL, _TUPLE_REPLY, _PROTOCOL_INFO, _ID, _ZONE = 1, 2, 4, 12, 18
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_PROTOCOL_NUMBER, _FROM_PORT, _TO_PORT = 1, 2, 3
_INFO_TCP, _TCP_STATE = 1, 1
_FROM_ADDRESS = {"ip": 1, "ip6": 3}
_TO_ADDRESS = {"ip": 2, "ip6": 4}
_OPEN: Final = frozenset(bytes((state,)) for state in range(2, 7))
"""The states SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT and LAST_ACK: the client may be connected."""


class TcpConnection(NamedTuple):
    """A connection of a client to a server; ``key`` identifies it.

    With ``is_open`` the client may be connected; otherwise it still tries to, or the connection has ended.
    """

    client: Endpoint
    server: Endpoint
    is_open: bool
    key: bytes


class TcpConnections(NetfilterClient):
    """This network namespace's connections. Use ``TcpConnections.open``."""

    async def others(
        self, family: Family, kept: Mapping[Endpoint, frozenset[Endpoint]], limit: int
    ) -> list[TcpConnection]:
        """Return up to ``limit`` connections to these servers that others answer than are ``kept`` for the server.

        Port 0 of a server, and of a kept endpoint, stands for all. Raises KernelError.
        """
        found: dict[bytes, TcpConnection] = {}
        for question in questions(family, {(ip, socket.IPPROTO_TCP, port) for ip, port in kept}, TRANSLATED):
            async for answer in self._netfilter.dump(family, netlink.GET_CONNECTIONS, question):
                # All answers must be read, also those above the limit.
                if len(found) < limit and (each := _other(family, answer, kept)) is not None:
                    found[each.key] = each
        return list(found.values())

    async def forget(self, family: Family, connections: list[TcpConnection]) -> int:
        """Forget connections. Return how many there were. Raises KernelError."""
        return await self._netfilter.change(
            family, [Change(netlink.DELETE_CONNECTION, each.key) for each in connections]
        )


def _other(family: Family, answer: bytes, kept: Mapping[Endpoint, frozenset[Endpoint]]) -> TcpConnection | None:
    """Return the connection of an answer if it is to a server, and others answer than are kept."""
    server = _endpoint(answer, _TUPLE_ORIGINAL, _TO_ADDRESS[family], _TO_PORT)
    # Most connections of a node are of others.
    if server is None or ((endpoints := kept.get(server)) is None and (endpoints := kept.get((server[0], 0))) is None):
        return None
    told = dict(netlink.attributes(answer))
    asked = told.get(_TUPLE_ORIGINAL, b"")
    client = _endpoint(answer, _TUPLE_ORIGINAL, _FROM_ADDRESS[family], _FROM_PORT)
    answerer = _endpoint(answer, _TUPLE_REPLY, _FROM_ADDRESS[family], _FROM_PORT)
    status = int.from_bytes(told.get(STATUS, b""), "big")
    protocol = netlink.find(asked, _TUPLE_PROTOCOL, _PROTOCOL_NUMBER)
    if not (client and answerer and status & DESTINATION_TRANSLATED):
        return None
    if protocol != bytes((socket.IPPROTO_TCP,)) or not endpoints.isdisjoint((answerer, (answerer[0], 0))):
        return None
    # By its replies, which a later connection of the same client to another endpoint does not share: its number alone
    # does not tell them apart, as the kernel makes it of the addresses and of the memory that it may use again.
    key = netlink.attribute(_TUPLE_REPLY, told.get(_TUPLE_REPLY, b""), nested=True)
    key += b"".join(netlink.attribute(kind, told[kind]) for kind in (_ZONE, _ID) if kind in told)
    state = netlink.find(told.get(_PROTOCOL_INFO, b""), _INFO_TCP, _TCP_STATE)
    return TcpConnection(client, server, state is not None and state[:1] in _OPEN, key)


def _endpoint(answer: bytes, direction: int, address: int, port: int) -> Endpoint | None:
    ip = netlink.find(answer, direction, _TUPLE_IP, address)
    number = netlink.find(answer, direction, _TUPLE_PROTOCOL, port)
    return (ip, int.from_bytes(number, "big")) if ip and number else None
