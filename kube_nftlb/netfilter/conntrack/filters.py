"""Filters of entries, in requests for a dump: the kernel picks out what passes. Pure.

Attributes and flags are named as in linux/netfilter/nfnetlink_conntrack.h.
"""

import struct
from collections.abc import Collection
from typing import Final

from kube_nftlb.netfilter.conntrack.entries import DESTINATION_TRANSLATED, SEEN_REPLY, STATUS, Endpoint
from kube_nftlb.netfilter.netlink import attribute

Target = tuple[bytes, int, int]
"""A destination of clients: the address as the kernel has it, the protocol's number, and the port, or 0 for all."""

_TUPLE_ORIGINAL, _TUPLE_REPLY, MARK, _MARK_MASK, _FILTER, _STATUS_MASK = 1, 2, 8, 21, 25, 26
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_PROTOCOL_NUMBER, _FROM_PORT, _TO_PORT = 1, 2, 3
_FROM_IP, _TO_IP = {4: 1, 16: 3}, {4: 2, 16: 4}
"""The attribute of an address, by its length."""
_ORIGINAL_FLAGS, _REPLY_FLAGS = 1, 2
_FROM_ADDRESS, _TO_ADDRESS, _PROTOCOL, _PORT = 1 << 0, 1 << 1, 1 << 3, 1 << 5
_IPV4_BYTES: Final = 4

_ONE_BY_ONE_MAX: Final = 8
"""For more of anything the whole table is read once, which takes the kernel ten times as long as to walk through it."""


def _with_status(status: int, mask: int = DESTINATION_TRANSLATED) -> bytes:
    return attribute(STATUS, number(status)) + attribute(_STATUS_MASK, number(mask))


def number(value: int) -> bytes:
    """Return a number as an attribute has it."""
    return struct.pack(">I", value)


TRANSLATED: Final = _with_status(DESTINATION_TRANSLATED)
"""The filter of connections with a translated destination; an older kernel ignores it, and returns all."""
UNTRANSLATED: Final = _with_status(0)
UNANSWERED: Final = _with_status(DESTINATION_TRANSLATED, DESTINATION_TRANSLATED | SEEN_REPLY)
"""The filter of connections with a translated destination that nobody has answered."""


def with_mark(mark: int, mask: int) -> bytes:
    """Return the filter of connections with these bits in their mark."""
    return attribute(MARK, number(mark)) + attribute(_MARK_MASK, number(mask))


def to_targets(targets: Collection[Target], narrowed: bytes) -> list[bytes]:
    """Return the filters for connections to targets of one family; they may pass others too, all ``narrowed``."""
    # Few connections are unanswered, so that all of them are read in the time of walking through the table once more.
    if len(targets) > (1 if narrowed == UNANSWERED else _ONE_BY_ONE_MAX):
        protocols = {protocol for _, protocol, _ in targets}
        return [_of_protocol(protocols.pop()) + narrowed] if len(protocols) == 1 else [narrowed]
    return sorted({_to(*target) + narrowed for target in targets})


def from_backends(ips: Collection[bytes]) -> list[bytes]:
    """Return the filters for translated connections that addresses of one family answer; they may pass others too."""
    if len(ips) > _ONE_BY_ONE_MAX or any(len(ip) != _IPV4_BYTES for ip in ips):
        # The kernel cannot filter by IPv6 addresses.
        return [TRANSLATED]
    return [_from(ip) + TRANSLATED for ip in sorted(ips)]


def connection(protocol: int, client: Endpoint, server: Endpoint) -> bytes:
    """Return the attributes by which the kernel finds one connection."""
    (source, source_port), (ip, port) = client, server
    addresses = attribute(_FROM_IP[len(source)], source) + attribute(_TO_IP[len(ip)], ip)
    ports = attribute(_FROM_PORT, source_port.to_bytes(2, "big")) + attribute(_TO_PORT, port.to_bytes(2, "big"))
    return _original(addresses, attribute(_PROTOCOL_NUMBER, bytes((protocol,))) + ports)


def _to(ip: bytes, protocol: int, port: int) -> bytes:
    addresses, flags = b"", _PROTOCOL
    if len(ip) == _IPV4_BYTES:
        addresses = attribute(_TO_IP[len(ip)], ip)
        flags |= _TO_ADDRESS
    ports = attribute(_PROTOCOL_NUMBER, bytes((protocol,)))
    if port:
        ports += attribute(_TO_PORT, port.to_bytes(2, "big"))
        flags |= _PORT
    return _original(addresses, ports) + _flags(_ORIGINAL_FLAGS, flags)


def _of_protocol(protocol: int) -> bytes:
    return _original(b"", attribute(_PROTOCOL_NUMBER, bytes((protocol,)))) + _flags(_ORIGINAL_FLAGS, _PROTOCOL)


def _from(ip: bytes) -> bytes:
    address = attribute(_TUPLE_IP, attribute(_FROM_IP[len(ip)], ip), nested=True)
    return attribute(_TUPLE_REPLY, address, nested=True) + _flags(_REPLY_FLAGS, _FROM_ADDRESS)


def _original(addresses: bytes, ports: bytes) -> bytes:
    parts = attribute(_TUPLE_IP, addresses, nested=True) if addresses else b""
    return attribute(_TUPLE_ORIGINAL, parts + attribute(_TUPLE_PROTOCOL, ports, nested=True), nested=True)


def _flags(direction: int, flags: int) -> bytes:
    return attribute(_FILTER, attribute(direction, struct.pack("=I", flags)), nested=True)
