"""Count the open connections that the kernel translates to given backends (see conntrack(8))."""

import asyncio
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterClient
from kube_nftlb.netfilter.translated import DESTINATION_TRANSLATED, STATUS, TRANSLATED

Address = tuple[str, int]
"""The IP and port of a backend; port 0 stands for all ports."""

_TUPLE_REPLY, _PROTOCOL_INFO, _FILTER = 2, 4, 25
_TUPLE_IP, _TUPLE_PROTOCOL, _PROTOCOL_NUMBER, _PROTOCOL_FROM_PORT = 1, 2, 1, 2
_FROM_ADDRESS = {"ip": 1, "ip6": 3}
_INFO_TCP, _TCP_STATE = 1, 1
_FILTER_REPLY_FLAGS, _FLAG_FROM_ADDRESS = 2, 1 << 0
_TCP_OPEN: Final = range(1, 7)
"""The states SYN_SENT, SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT and LAST_ACK (nf_conntrack_tcp.h)."""
_ASKED_ONE_BY_ONE_MAX = 8
"""For more backends the whole table is read once; for fewer the kernel picks out what concerns each."""

_AT_ONCE = 500


class ConnectionCounter(NetfilterClient):
    """Counts in this network namespace. Use ``ConnectionCounter.open``."""

    async def count(self, backends: Collection[Address]) -> Counter[Address]:
        """Return the number of open connections to each backend that has any. Raises KernelError.

        A connection counts where it is translated, so on one node only. One that is closed, or waits after its end,
        does not count; flows of other protocols than TCP count until conntrack forgets them.
        """
        counted: Counter[Address] = Counter()
        for family in ("ip", "ip6"):
            packed = {
                (ipaddress.ip_address(ip).packed, port): (ip, port)
                for ip, port in backends
                if (":" in ip) == (family == "ip6")
            }
            for question in _questions(family, {ip for ip, _ in packed}):
                answers = await self._netfilter.ask(family, netlink.GET_CONNECTIONS, question, dump=True)
                for first in range(0, len(answers), _AT_ONCE):
                    some = answers[first : first + _AT_ONCE]
                    counted.update(packed[found] for each in some if (found := _counts(family, each, packed)))
                    # A node has hundreds of thousands: let other tasks run.
                    await asyncio.sleep(0)
        return counted


def _questions(family: str, ips: set[bytes]) -> Iterable[bytes]:
    if family == "ip" and len(ips) <= _ASKED_ONE_BY_ONE_MAX:
        return [_from(ip) + TRANSLATED for ip in sorted(ips)]
    # The kernel cannot filter by IPv6 addresses.
    return [TRANSLATED] if ips else []


def _from(ip: bytes) -> bytes:
    """Return a filter for connections that an IPv4 address answers."""
    address = netlink.attribute(_TUPLE_IP, netlink.attribute(_FROM_ADDRESS["ip"], ip), nested=True)
    flags = netlink.attribute(_FILTER_REPLY_FLAGS, struct.pack("=I", _FLAG_FROM_ADDRESS))
    return netlink.attribute(_TUPLE_REPLY, address, nested=True) + netlink.attribute(_FILTER, flags, nested=True)


def _counts(family: str, answer: bytes, wanted: Collection[tuple[bytes, int]]) -> tuple[bytes, int] | None:
    """Return the backend for which an entry counts, or None. An old kernel may ignore the filter."""
    told = dict(netlink.attributes(answer))
    if not int.from_bytes(told.get(STATUS, b""), "big") & DESTINATION_TRANSLATED:
        return None
    reply = told.get(_TUPLE_REPLY, b"")
    ip = netlink.find(reply, _TUPLE_IP, _FROM_ADDRESS[family])
    port = netlink.find(reply, _TUPLE_PROTOCOL, _PROTOCOL_FROM_PORT)
    protocol = netlink.find(reply, _TUPLE_PROTOCOL, _PROTOCOL_NUMBER)
    if not (ip and port and protocol):
        return None
    if protocol[0] == socket.IPPROTO_TCP:
        state = netlink.find(told.get(_PROTOCOL_INFO, b""), _INFO_TCP, _TCP_STATE)
        if state and state[0] not in _TCP_OPEN:
            return None
    exact, any_port = (ip, int.from_bytes(port, "big")), (ip, 0)
    return next((each for each in (exact, any_port) if each in wanted), None)
