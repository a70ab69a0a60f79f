"""A dump of the kernel's connections, by a thread or program that may wait: hundreds of thousands take a second."""

import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

from kube_nftlb import errors
from kube_nftlb.netfilter import netlink

_READ_BYTES: Final = 1 << 17
_TIMEOUT_S: Final = 10
_MESSAGE: Final = struct.Struct("=IHHII")
_ERROR, _DONE = 2, 3


def datagrams(family: str, payload: bytes) -> Iterator[bytes]:
    """Yield the connections of a family that pass the filter ``payload``, in datagrams of netlink.

    Uses a socket of its own, so that several threads may. Raises KernelError.
    """
    try:
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, netlink.NETLINK_NETFILTER
        ) as opened:
            opened.settimeout(_TIMEOUT_S)
            opened.bind((0, 0))
            opened.sendall(netlink.dump_request(family, netlink.GET_CONNECTIONS, payload))
            while True:
                data = opened.recv(_READ_BYTES)
                yield data
                if _is_last(data):
                    return
    except OSError as error:
        raise errors.KernelError(f"netfilter does not tell its connections: {error!r}") from error


def _is_last(data: bytes) -> bool:
    """Return True if a datagram ends the dump. Raises KernelError if the kernel refuses it."""
    position = 0
    while position + _MESSAGE.size <= len(data):
        length, kind, _, _, _ = _MESSAGE.unpack_from(data, position)
        if kind == _DONE:
            return True
        if kind == _ERROR:
            code = -struct.unpack_from("=i", data, position + _MESSAGE.size)[0]
            raise errors.KernelError(f"netfilter refused to tell its connections: {os.strerror(code)}")
        position += (max(length, _MESSAGE.size) + 3) & ~3
    return False
