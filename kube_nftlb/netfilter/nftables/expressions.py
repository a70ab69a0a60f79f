"""The expressions of rules, as attributes. No I/O.

An expression reads and writes registers of four bytes, 0 to 15. A longer value, and each next part of a key, takes the
registers that follow. Only expressions that nft(8) lists, and reads back, are used together.
"""

import struct
from enum import IntEnum
from itertools import count

from kube_nftlb.netfilter.netlink import attribute, text

_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_LIST_ELEMENT = 1
_FIRST_REGISTER = 8
"""NFT_REG32_00."""
_VERDICT_REGISTER = 0
_VALUE, _VERDICT = 1, 2
_VERDICT_CODE, _VERDICT_CHAIN = 1, 2
_NUMBER = struct.Struct(">I")
_HOST_NUMBER = struct.Struct("=I")
_LONG = struct.Struct(">Q")

_META_PRIORITY, _META_TRACE, _META_FAMILY, _META_PROTOCOL = 2, 12, 15, 16
_CT_STATE = 0
_TCP_FLAGS_OFFSET = 13
_INCREMENTAL, _RANDOM = 0, 1
_JENKINS, _SYMMETRIC = 0, 1
_DESTINATION = 1
_EQUAL, _NOT_EQUAL = 0, 1


class Family(IntEnum):
    """An address family, by its number in netfilter (linux/netfilter.h)."""

    IP = 2
    IP6 = 10


class Verdict(IntEnum):
    """The verdict on a packet."""

    DROP = 0
    JUMP = -3
    """Continue in another chain, and come back at its end."""
    GOTO = -4


class Operation(IntEnum):
    """An operation by a packet on an element of a set or map."""

    UPDATE = 1
    """Add it; or renew its time, and leave its data as it is."""
    DELETE = 2


class Header(IntEnum):
    """The header that the offset of a payload counts from."""

    LINK = 0
    NETWORK = 1
    TRANSPORT = 2


class State(IntEnum):
    """A packet's state in connection tracking (NF_CT_STATE_BIT); it has one of them."""

    INVALID = 1
    ESTABLISHED = 2
    RELATED = 4
    NEW = 8
    UNTRACKED = 64


def is_family(family: Family) -> bytes:
    """Match packets of a family; uses register 0."""
    return _meta(0, _META_FAMILY) + is_equal(0, bytes((family,)))


def is_equal(source: int, value: bytes) -> bytes:
    """Match if the registers have this value."""
    return _expression("cmp", _register(source), _number(_EQUAL), attribute(_VALUE, value))


def has_state(state: State) -> bytes:
    """Match packets in a state of connection tracking; uses register 0."""
    return _expression("ct", _register(0), _number(_CT_STATE)) + is_equal(0, _HOST_NUMBER.pack(state))


def has_flags(mask: int, flags: int) -> bytes:
    """Match TCP packets with these flags among those of the mask; uses register 0."""
    load = payload(0, Header.TRANSPORT, _TCP_FLAGS_OFFSET, 1)
    masked = (attribute(_VALUE, bytes((mask,))), attribute(_VALUE, b"\0"))
    return load + _expression("bitwise", _register(0), _register(0), _number(1), *masked) + is_equal(0, bytes((flags,)))


def go_to(chain: str) -> bytes:
    """Continue in another chain, for good."""
    return _expression("immediate", _number(_VERDICT_REGISTER), verdict_data(Verdict.GOTO, chain))


def drop() -> bytes:
    """Drop the packet."""
    return _expression("immediate", _number(_VERDICT_REGISTER), verdict_data(Verdict.DROP))


def limited(packets: int, burst: int) -> bytes:
    """Match so many packets a second, after a first burst."""
    return _expression("limit", _LONG.pack(packets), _LONG.pack(1), _number(burst))


def trace() -> bytes:
    """Have the kernel tell what becomes of the packet; uses register 0."""
    load = _expression("immediate", _register(0), attribute(_VALUE, bytes((1,))))
    return load + _expression("meta", None, _number(_META_TRACE), _register(0))


def protocol(to: int) -> bytes:
    """Load the number of the transport protocol."""
    return _meta(to, _META_PROTOCOL)


def priority(to: int) -> bytes:
    """Load the priority of the packet."""
    return _meta(to, _META_PRIORITY)


def masked_priority(to: int, mask: int) -> bytes:
    """Load these bits of the priority of the packet."""
    bits = (attribute(_VALUE, _HOST_NUMBER.pack(mask)), attribute(_VALUE, _HOST_NUMBER.pack(0)))
    return priority(to) + _expression("bitwise", _register(to), _register(to), _number(_HOST_NUMBER.size), *bits)


def priority_has(mask: int) -> bytes:
    """Match if any of these bits of the packet's priority is set; uses register 0."""
    compare = _expression("cmp", _register(0), _number(_NOT_EQUAL), attribute(_VALUE, _HOST_NUMBER.pack(0)))
    return masked_priority(0, mask) + compare


def priority_is(bits: int, mask: int | None = None) -> bytes:
    """Match if the packet's priority has these bits, among those of the mask if there is one; uses register 0."""
    load = masked_priority(0, mask) if mask is not None else priority(0)
    return load + is_equal(0, _HOST_NUMBER.pack(bits))


def _meta(to: int, key: int) -> bytes:
    return _expression("meta", _register(to), _number(key))


def set_priority(source: int) -> bytes:
    """Set the priority of the packet from a register."""
    return _expression("meta", None, _number(_META_PRIORITY), _register(source))


def payload(to: int, header: Header, offset: int, length: int) -> bytes:
    """Load bytes of a header."""
    return _expression("payload", _register(to), _number(header), _number(offset), _number(length))


def counted(to: int, modulus: int, first: int) -> bytes:
    """Load the next of ``modulus`` numbers from ``first``, in turn."""
    return _expression("numgen", _register(to), _number(modulus), _number(_INCREMENTAL), _number(first))


def random(to: int, modulus: int, first: int) -> bytes:
    """Load a random one of ``modulus`` numbers from ``first``."""
    return _expression("numgen", _register(to), _number(modulus), _number(_RANDOM), _number(first))


def hashed(to: int, source: int, length: int, modulus: int, first: int, seed: int = 0) -> bytes:
    """Load one of ``modulus`` numbers from ``first``, by a hash of ``length`` bytes from a register.

    The hash is the same on every node, so that all send a client to the same backend. With another ``seed`` it does
    not depend on the one without.
    """
    numbers = (_number(length), _number(modulus), _number(seed), _number(first), _number(_JENKINS))
    return _expression("hash", _register(source), _register(to), *numbers)


def symmetrically_hashed(to: int, modulus: int, first: int) -> bytes:
    """Load one of ``modulus`` numbers from ``first``, by a hash that is the same in both directions."""
    return _expression("hash", None, _register(to), None, _number(modulus), None, _number(first), _number(_SYMMETRIC))


def found(name: str, key: int, to: int) -> bytes:
    """Load what a map has for the key in these registers; no match if it has none."""
    return _expression("lookup", _name(name), _register(key), _register(to))


def change(name: str, operation: Operation, key: int, data: int, timeout_s: int | None = None) -> bytes:
    """Change the element with the key in these registers; no match if the map is full."""
    timeout = _LONG.pack(timeout_s * 1000) if timeout_s is not None else None
    return _expression("dynset", _name(name), None, _number(operation), _register(key), _register(data), timeout)


def translate_destination(family: Family, address: int, port: int | None) -> bytes:
    """Translate the destination to the address, and the port if there is one, in these registers."""
    to_port = _register(port) if port is not None else None
    return _expression("nat", _number(_DESTINATION), _number(family), _register(address), None, to_port)


def verdict_data(code: Verdict, chain: str = "") -> bytes:
    """Return a verdict as the data of an element."""
    value = attribute(_VERDICT_CODE, struct.pack(">i", code))
    return attribute(_VERDICT, value + (text(_VERDICT_CHAIN, chain) if chain else b""))


def _expression(name: str, *values: bytes | None) -> bytes:
    """Return an expression; its attributes are numbered from 1, and those without a value left out."""
    data = b"".join(attribute(kind, each) for kind, each in zip(count(1), values, strict=False) if each is not None)
    return attribute(_LIST_ELEMENT, text(_EXPRESSION_NAME, name) + attribute(_EXPRESSION_DATA, data))


def _name(name: str) -> bytes:
    return name.encode() + b"\0"


def _number(number: int) -> bytes:
    return _NUMBER.pack(number)


def _register(number: int) -> bytes:
    return _number(_FIRST_REGISTER + number)
