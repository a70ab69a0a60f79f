"""nftables over plain netlink, without a library: the minimum that the kernel takes for a query and for a change."""

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

_NETLINK_NETFILTER = 12
_NFTABLES = 10 << 8
_BATCH_BEGIN, _BATCH_END = 16, 17
_NEWTABLE, _NEWSET, _NEWSETELEM, _GETGEN = _NFTABLES | 0, _NFTABLES | 9, _NFTABLES | 12, _NFTABLES | 16
_REQUEST, _ACK, _CREATE = 0x1, 0x4, 0x400
_ERROR = 2
_INET = 1
_IPV4_ADDR = 7
_NESTED = 0x8000


class _Message(NamedTuple):
    kind: int
    flags: int
    body: bytes = b""
    family: int = _INET
    subsystem: int = 0


class Wire:
    """A netlink socket of this network namespace. Raises OSError on errors from the kernel."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._socket.bind((0, 0))
        self._socket.settimeout(10)
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def generation(self) -> None:
        """Query the generation of the ruleset: one request and its reply."""
        self._send([_Message(_GETGEN, _REQUEST, family=0)])
        self._socket.recv(65536)

    def create_set(self, table: str, name: str) -> None:
        """Create a table with an empty set of IPv4 addresses."""
        key = [(4, struct.pack("!I", _IPV4_ADDR)), (5, struct.pack("!I", 4)), (10, struct.pack("!I", 1))]
        fields = [(1, _text(table)), (2, _text(name)), (3, struct.pack("!I", 0)), *key]
        self._transact(
            [
                _Message(_NEWTABLE, _REQUEST | _CREATE | _ACK, _attributes([(1, _text(table))])),
                _Message(_NEWSET, _REQUEST | _CREATE | _ACK, _attributes(fields)),
            ]
        )

    def add_element(self, table: str, name: str, address: str) -> None:
        """Add an address to the set, in a transaction of its own."""
        key = _attributes([(1 | _NESTED, _attributes([(1, socket.inet_aton(address))]))])
        elements = _attributes([(1 | _NESTED, key)])
        body = _attributes([(1, _text(table)), (2, _text(name)), (3 | _NESTED, elements)])
        self._transact([_Message(_NEWSETELEM, _REQUEST | _CREATE | _ACK, body)])

    def _transact(self, messages: list[_Message]) -> None:
        begin = _Message(_BATCH_BEGIN, _REQUEST, family=0, subsystem=10)
        self._send([begin, *messages, begin._replace(kind=_BATCH_END)])
        for _ in messages:
            answer = self._socket.recv(65536)
            kind, error = struct.unpack_from("=4xH10xi", answer)
            if kind != _ERROR or error:
                raise OSError(-error, f"netlink message of type {kind}")

    def _send(self, messages: Iterable[_Message]) -> None:
        data = b""
        for message in messages:
            self._sequence += 1
            body = struct.pack("!BBH", message.family, 0, message.subsystem) + message.body
            data += struct.pack("=IHHII", 16 + len(body), message.kind, message.flags, self._sequence, 0) + body
        self._socket.send(data)


def _attributes(pairs: Iterable[tuple[int, bytes]]) -> bytes:
    data = b""
    for kind, value in pairs:
        data += struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
    return data


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
