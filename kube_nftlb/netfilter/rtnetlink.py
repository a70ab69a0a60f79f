"""Interfaces, addresses and routes of the kernel, by pyroute2, which runs an event loop of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyroute2 import IPRoute, NetlinkError


@contextmanager
def connected(*, strict: bool = False) -> Iterator[IPRoute]:
    """Yield a connection, in a thread without an event loop. Raises OSError, also in place of pyroute2's own errors.

    If it is strict, the kernel heeds what a dump of routes asks for (NETLINK_GET_STRICT_CHK in linux/netlink.h).
    """
    try:
        with IPRoute(strict_check=strict) as ip:
            yield ip
    except NetlinkError as error:
        raise OSError(error.code, str(error)) from error


def addresses() -> set[str]:
    """Return the addresses of this network namespace, in a thread without an event loop. Raises OSError."""
    with connected() as ip:
        return set(map(own_address, ip.get_addr()))


def own_address(entry: Any) -> str:
    """Return the host's own address in a message about one.

    Where there is a peer, as with PPP, IFA_ADDRESS is the peer's (linux/if_addr.h).
    """
    return str(entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS"))
