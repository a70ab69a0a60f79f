"""Events of new and ended connections whose destination is translated, in this network namespace."""

from collections.abc import Iterator
from typing import Final

from kube_nftlb.netfilter.conntrack.entries import DESTINATION_TRANSLATED, STATUS
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket

_GROUPS: Final = (1, 3)
"""NFNLGRP_CONNTRACK_NEW and NFNLGRP_CONNTRACK_DESTROY (nfnetlink.h)."""
_BUFFER: Final = 8 << 20
_HEADERS: Final = 20
"""Of a netlink message, and of the nfnetlink message in it."""
_FIND_ATTRIBUTE: Final = 0xFFFFF000 + 12
"""SKF_AD_OFF + SKF_AD_NLATTR (linux/filter.h)."""

# Keep events of connections with a translated destination. Others may be many more.
_FILTER: Final = (
    (0x00, 0, 0, _HEADERS),
    (0x01, 0, 0, STATUS),
    (0x20, 0, 0, _FIND_ATTRIBUTE),
    (0x15, 4, 0, 0),  # without a status
    (0x07, 0, 0, 0),
    (0x40, 0, 0, 4),  # load the value behind the attribute's header
    (0x45, 0, 1, DESTINATION_TRANSLATED),
    (0x06, 0, 0, 0xFFFFFFFF),
    (0x06, 0, 0, 0),
)


class Events:
    """A subscription, which begins with ``subscribe``. Raises OSError."""

    def __init__(self) -> None:
        self.socket = NetlinkSocket(receive_bytes=_BUFFER, keep=_FILTER)
        self.subscribed = False
        self.lost = 0
        """Times that the kernel had more events than fit."""

    def subscribe(self, *, on: bool) -> None:
        """Begin or end to receive events. The kernel makes them only while somebody does."""
        for group in _GROUPS if on != self.subscribed else ():
            (self.socket.join if on else self.socket.leave)(group)
        self.subscribed = on

    def read(self, most: int) -> Iterator[bytes]:
        """Yield the datagrams that are there, at most so many."""
        for data in self.socket.waiting(most):
            if data is None:
                self.lost += 1
            else:
                yield data

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
