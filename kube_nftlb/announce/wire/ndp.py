"""Neighbour Discovery for IPv6: build and read frames. Pure. Addresses are packed; RFC 4861, RFC 4862."""

import struct
from typing import Final

from kube_nftlb.announce.wire.heard import Asked, Heard, Statement, is_host

PROTOCOL: Final = 0x86DD
SOLICITATION, ADVERTISEMENT = 135, 136
ICMPV6: Final = 58
HOP_LIMIT: Final = 255
"""A router would have lowered it: the sender is on the link."""
UNSPECIFIED: Final = bytes(16)
_ALL_NODES: Final = bytes.fromhex("ff02" + "00" * 13 + "01")
_ETHERNET: Final = struct.Struct("!6s6sH")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_MESSAGE: Final = struct.Struct("!BBHI16s")
"""Type, code, checksum, flags or nothing, target."""
_BODY: Final = _ETHERNET.size + _IPV6.size
_SOLICITED, _OVERRIDE = 1 << 30, 1 << 29
_SOURCE_MAC, _TARGET_MAC = 1, 2
_VERSION: Final = 6 << 28


def group(ip: bytes) -> bytes:
    """Return the solicited-node multicast address of an address (RFC 4291, 2.7.1)."""
    return bytes.fromhex("ff02" + "00" * 9 + "01ff") + ip[-3:]


def answer(mac: bytes, ip: bytes, asked: Asked, *, outdated: bool = False) -> bytes:
    """Return the advertisement for whoever asked for ``ip``, which is at ``mac``; for all, if it was a probe.

    One that is ``outdated`` does not override: who has no other link-layer address for ``ip`` takes it all the same.
    """
    if asked.ip == UNSPECIFIED:
        return announcement(mac, ip)
    flags = _SOLICITED | (0 if outdated else _OVERRIDE)
    return _frame(asked.mac, mac, ip, asked.ip, _advertisement(mac, ip, flags))


def announcement(mac: bytes, ip: bytes) -> bytes:
    """Return an unsolicited advertisement to all nodes, which overrides what they know (RFC 4861, 7.2.6)."""
    return _frame(_multicast_mac(_ALL_NODES), mac, ip, _ALL_NODES, _advertisement(mac, ip, _OVERRIDE))


def question(mac: bytes, ip: bytes, source: bytes, to: bytes) -> bytes:
    """Return a unicast solicitation: whether ``to`` still has ``ip``. ``source`` is an address of our own."""
    option = bytes((_SOURCE_MAC, 1)) + mac
    return _frame(to, mac, source, ip, (SOLICITATION, 0, ip, option))


def probe(mac: bytes, ip: bytes) -> bytes:
    """Return the question whether anybody has ``ip``, as of a host that wants it (RFC 4862, 5.4.2)."""
    to = group(ip)
    return _frame(_multicast_mac(to), mac, UNSPECIFIED, to, (SOLICITATION, 0, ip, b""))


def read(frame: bytes) -> Heard | None:
    """Return what a frame asks or tells; None if it is not valid (RFC 4861, 7.1), or its sender is no host."""
    if len(frame) < _BODY + _MESSAGE.size:
        return None
    to, sender, protocol = _ETHERNET.unpack_from(frame)
    version, length, following, hops, source, destination = _IPV6.unpack_from(frame, _ETHERNET.size)
    payload = frame[_BODY : _BODY + length]
    if protocol != PROTOCOL or version >> 28 != 6 or following != ICMPV6 or hops != HOP_LIMIT:
        return None
    if len(payload) < max(length, _MESSAGE.size) or _checksum(source, destination, payload) != 0:
        return None
    kind, code, _, flags, target = _MESSAGE.unpack_from(payload)
    options = _options(payload[_MESSAGE.size :])
    if code != 0 or target[0] == 0xFF or options is None:
        return None
    mac = options.get(_SOURCE_MAC if kind == SOLICITATION else _TARGET_MAC, sender)
    if not (is_host(sender) and is_host(mac)):
        return None
    if kind == SOLICITATION:
        return _solicitation(target, source, destination, mac, probes=_SOURCE_MAC not in options)
    if kind == ADVERTISEMENT and not (flags & _SOLICITED and destination[0] == 0xFF):
        outdated = bool(flags & _SOLICITED) and not flags & _OVERRIDE
        return Heard(None, Statement(target, mac, bool(to[0] & 1), outdated))
    return None


def _solicitation(target: bytes, source: bytes, destination: bytes, mac: bytes, *, probes: bool) -> Heard | None:
    if source == UNSPECIFIED:
        # A probe has no option with the sender's link-layer address.
        return Heard(Asked(target, mac, source), None) if probes and destination == group(target) else None
    # Whose address this is tells nothing new of the target, but it does of the source.
    return Heard(Asked(target, mac, source), Statement(source, mac, destination[0] == 0xFF))


def _advertisement(mac: bytes, ip: bytes, flags: int) -> tuple[int, int, bytes, bytes]:
    return ADVERTISEMENT, flags, ip, bytes((_TARGET_MAC, 1)) + mac


def _frame(to: bytes, mac: bytes, source: bytes, destination: bytes, message: tuple[int, int, bytes, bytes]) -> bytes:
    kind, flags, target, option = message
    body = _MESSAGE.pack(kind, 0, 0, flags, target) + option
    body = _MESSAGE.pack(kind, 0, _checksum(source, destination, body), flags, target) + option
    header = _IPV6.pack(_VERSION, len(body), ICMPV6, HOP_LIMIT, source, destination)
    return _ETHERNET.pack(to, mac, PROTOCOL) + header + body


def _multicast_mac(ip: bytes) -> bytes:
    return b"\x33\x33" + ip[-4:]


def _checksum(source: bytes, destination: bytes, message: bytes) -> int:
    """Return the checksum over message and pseudo-header; 0 for a message that has the right one (RFC 4443, 2.3)."""
    data = source + destination + struct.pack("!II", len(message), ICMPV6) + message
    if len(data) % 2:
        data += b"\x00"
    # The sum of 16-bit words, with carries added, is the remainder by 65535; 0 and 65535 are the same number.
    return 0xFFFF - (int.from_bytes(data, "big") % 0xFFFF or 0xFFFF)


def _options(data: bytes) -> dict[int, bytes] | None:
    """Return the link-layer addresses by their kind; None if an option has no length."""
    found: dict[int, bytes] = {}
    position = 0
    while position + 2 <= len(data):
        kind, length = data[position], data[position + 1] * 8
        if length == 0 or position + length > len(data):
            return None
        if length == 8:
            found[kind] = data[position + 2 : position + 8]
        position += length
    return found
