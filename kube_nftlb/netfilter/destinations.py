"""What rules and maps of other programs send where: the destination that they match, and the chain that they lead to.

By hand, upon ``netlink``: libnftables does not know the matches of ``iptables`` that such rules have. No I/O.
"""

import socket
import struct
from typing import NamedTuple

from kube_nftlb.netfilter import netlink, readback, rules
from kube_nftlb.netfilter.nftables import contents
from kube_nftlb.netfilter.rules import KernelRule

# The types of attributes of expressions, as linux/netfilter/nf_tables.h and nf_tables_compat.h have them.
_PAYLOAD_REGISTER, _PAYLOAD_BASE, _PAYLOAD_OFFSET = 1, 2, 3
_META_REGISTER, _META_KEY = 1, 2
_CMP_REGISTER, _CMP_OPERATION, _CMP_DATA = 1, 2, 3
_MATCH_NAME, _MATCH_INFO = 1, 3
_PROTOCOL = 16
"""NFT_META_L4PROTO."""
_EQUAL = 0
_NETWORK, _TRANSPORT = 1, 2
_ADDRESSES = {16: 4, 24: 16}
"""The bytes of the destination's address, by its offset in the headers of IPv4 and IPv6."""
_PORT_OFFSET = 2
_PORTS_OF_MATCH = {"tcp": 4, "udp": 4, "sctp": 0}
"""Where ``iptables`` has the first and last destination port, in its structures xt_tcp, xt_udp and xt_sctp_info."""
_PORTS = struct.Struct("=HH")

PROTOCOLS = {socket.IPPROTO_TCP: "TCP", socket.IPPROTO_UDP: "UDP", socket.IPPROTO_SCTP: "SCTP"}
_KEY_SIZES = {8: 0, 12: 4, 24: 16}
"""The bytes of the address in a key of an address, if any, a protocol and a port, each padded to four bytes."""


class Destination(NamedTuple):
    """What packets go to, and where they are sent."""

    ip: str | None
    """The address; None if it does not matter."""
    protocol: str
    """TCP, UDP or SCTP; empty if it cannot be read."""
    port: int
    """0 if it cannot be read."""
    chain: str
    """The chain that these packets go to."""
    comment: str = ""


def of_rule(rule: KernelRule) -> Destination | None:
    """Return the destination of a rule that leads to another chain; None for others."""
    loaded: dict[bytes, tuple[int, int]] = {}
    found: dict[tuple[int, int], bytes] = {}
    comment, port = "", 0
    chain: str | None = None
    for name, attributes in rule.named:
        data = dict(netlink.attributes(attributes))
        if name == "payload":
            loaded[data[_PAYLOAD_REGISTER]] = _number(data, _PAYLOAD_BASE), _number(data, _PAYLOAD_OFFSET)
        elif name == "meta" and _META_REGISTER in data:
            loaded[data[_META_REGISTER]] = _PROTOCOL, _number(data, _META_KEY)
        elif name == "cmp" and _number(data, _CMP_OPERATION) == _EQUAL and data[_CMP_REGISTER] in loaded:
            found[loaded[data[_CMP_REGISTER]]] = netlink.find(data[_CMP_DATA], contents.VALUE) or b""
        elif name == "match":
            match, info = netlink.name(data.get(_MATCH_NAME)), data.get(_MATCH_INFO, b"")
            if match == "comment":
                comment = info.partition(b"\0")[0].decode(errors="replace")
            elif match in _PORTS_OF_MATCH:
                port = _one_port(info, _PORTS_OF_MATCH[match])
        elif name == "immediate":
            chain = rules.leads_to(attributes)
    if chain is None:
        return None
    protocol = PROTOCOLS.get(int.from_bytes(found.get((_PROTOCOL, _PROTOCOL), b""), "big"), "")
    port = int.from_bytes(found.get((_TRANSPORT, _PORT_OFFSET), b""), "big") or port
    return Destination(_address(found), protocol, port, chain, comment)


def of_element(element: bytes) -> Destination:
    """Return the destination of an element whose key is an address, protocol and port, or a protocol and port."""
    key, chain = readback.verdict(element)
    size = _KEY_SIZES.get(len(key))
    if size is None:
        return Destination(None, "", 0, chain)
    ip = _text(key[:size]) if size else None
    return Destination(ip, PROTOCOLS.get(key[size], ""), int.from_bytes(key[size + 4 : size + 6], "big"), chain)


def _address(found: dict[tuple[int, int], bytes]) -> str | None:
    for offset, size in _ADDRESSES.items():
        value = found.get((_NETWORK, offset))
        if value is not None and len(value) == size:
            return _text(value)
    return None


def _text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


def _one_port(info: bytes, offset: int) -> int:
    """Return the destination port of a match of ``iptables``; 0 if it is a range."""
    if len(info) < offset + _PORTS.size:
        return 0
    first, last = _PORTS.unpack_from(info, offset)
    return int(first) if first == last else 0


def _number(data: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(data.get(kind, b""), "big")
