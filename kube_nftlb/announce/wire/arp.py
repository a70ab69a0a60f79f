"""ARP over Ethernet: build and read frames. Pure. Addresses are packed; RFC 826, RFC 5227."""

import struct
from typing import Final

from kube_nftlb.announce.wire.heard import Asked, Heard, Statement, is_host

PROTOCOL: Final = 0x0806
BROADCAST: Final = b"\xff" * 6
_UNSPECIFIED: Final = bytes(4)
_NOBODY: Final = bytes(6)
_REQUEST, _REPLY = 1, 2
_FRAME: Final = struct.Struct("!6s6sH HHBBH 6s4s6s4s")
_KIND: Final = (1, 0x0800, 6, 4)
"""Ethernet, IPv4, and the lengths of their addresses."""


def answer(mac: bytes, ip: bytes, asked: Asked, *, outdated: bool = False) -> bytes:
    """Return the reply to whoever asked for ``ip``, which is at ``mac``.

    That it is ``outdated`` is told by the link-layer address of the target, which receivers ignore (RFC 826), and only
    to a probe, which is how nodes ask.
    """
    target = _NOBODY if outdated and asked.ip == _UNSPECIFIED else asked.mac
    return _frame(asked.mac, mac, _REPLY, (mac, ip), (target, asked.ip))


def announcement(mac: bytes, ip: bytes, *, reply: bool) -> bytes:
    """Return a gratuitous ARP frame: ``ip`` is at ``mac``.

    As a request, which RFC 5227 recommends, or as a reply, since some devices heed only one of them.
    """
    return _frame(BROADCAST, mac, _REPLY if reply else _REQUEST, (mac, ip), (BROADCAST if reply else _NOBODY, ip))


def question(mac: bytes, ip: bytes, to: bytes = BROADCAST) -> bytes:
    """Return the question who has ``ip``, to all or to one.

    It has the form of a probe (RFC 5227): without an address of the sender, so that nobody learns anything from it.
    """
    return _frame(to, mac, _REQUEST, (mac, _UNSPECIFIED), (_NOBODY, ip))


def read(frame: bytes) -> Heard | None:
    """Return what a frame asks or tells; None if it is not valid."""
    if len(frame) < _FRAME.size:
        return None
    to, _, protocol, *kind, operation, sender, sender_ip, target, ip = _FRAME.unpack_from(frame)
    if protocol != PROTOCOL or tuple(kind) != _KIND or not is_host(sender):
        return None
    to_all = bool(to[0] & 1)
    if operation == _REQUEST and sender_ip != ip:
        statement = Statement(sender_ip, sender, to_all) if sender_ip != _UNSPECIFIED else None
        return Heard(Asked(ip, sender, sender_ip), statement)
    if operation in (_REQUEST, _REPLY) and sender_ip != _UNSPECIFIED:
        return Heard(None, Statement(sender_ip, sender, to_all, operation == _REPLY and target == _NOBODY))
    return None


def _frame(to: bytes, mac: bytes, operation: int, sender: tuple[bytes, bytes], target: tuple[bytes, bytes]) -> bytes:
    return _FRAME.pack(to, mac, PROTOCOL, *_KIND, operation, *sender, *target)
