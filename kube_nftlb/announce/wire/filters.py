"""Classic BPF programs that pass what the responder must see of a link, and nothing else. Pure.

They run in the kernel before a frame is queued, so the packets of connections never wake the responder.
"""

import struct
from typing import Final

from kube_nftlb.announce.wire.ndp import ADVERTISEMENT, HOP_LIMIT, ICMPV6, SOLICITATION

_LOAD_BYTE, _LOAD_WORD, _EQUAL, _GREATER, _RETURN = 0x30, 0x20, 0x15, 0x25, 0x06
_PACKET_TYPE: Final = 0xFFFFF000 + 4
"""SKF_AD_OFF + SKF_AD_PKTTYPE (linux/filter.h)."""
_INTERFACE: Final = 0xFFFFF000 + 8
"""SKF_AD_OFF + SKF_AD_IFINDEX: the interface that a frame has come to. The socket of a link also gets those of a VLAN
on it, without their tags, and of other interfaces above it."""
_MULTICAST: Final = 2
"""Of the types: for this host, broadcast, multicast; the others are for other hosts, or from this one."""
_NEXT_HEADER, _HOPS, _TYPE = 14 + 6, 14 + 7, 14 + 40
_LENGTH: Final = 512
"""Bytes of a frame that are read: ARP has 42, a solicitation 86."""

_Instruction = tuple[int, int, int, int]


def arp(index: int) -> bytes:
    """Return the program for a socket that gets ARP alone: that of the link with this index."""
    return _packed(
        (
            (_LOAD_WORD, 0, 0, _PACKET_TYPE),
            (_GREATER, 3, 0, _MULTICAST),
            (_LOAD_WORD, 0, 0, _INTERFACE),
            (_EQUAL, 0, 1, index),
            *_VERDICTS,
        )
    )


def ndp(index: int) -> bytes:
    """Return the program for a socket that gets IPv6: solicitations and advertisements of neighbours on the link."""
    return _packed(
        (
            (_LOAD_WORD, 0, 0, _PACKET_TYPE),
            (_GREATER, 10, 0, _MULTICAST),
            (_LOAD_WORD, 0, 0, _INTERFACE),
            (_EQUAL, 0, 8, index),
            (_LOAD_BYTE, 0, 0, _NEXT_HEADER),
            (_EQUAL, 0, 6, ICMPV6),
            (_LOAD_BYTE, 0, 0, _HOPS),
            (_EQUAL, 0, 4, HOP_LIMIT),
            (_LOAD_BYTE, 0, 0, _TYPE),
            (_EQUAL, 1, 0, SOLICITATION),
            (_EQUAL, 0, 1, ADVERTISEMENT),
            *_VERDICTS,
        )
    )


_VERDICTS: Final[tuple[_Instruction, ...]] = ((_RETURN, 0, 0, _LENGTH), (_RETURN, 0, 0, 0))


def _packed(instructions: tuple[_Instruction, ...]) -> bytes:
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)
