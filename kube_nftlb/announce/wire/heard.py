"""What a frame of ARP or NDP says. Pure. Addresses are packed."""

from typing import Final, NamedTuple

_MAC_BYTES: Final = 6


class Asked(NamedTuple):
    """Somebody asks who has an address."""

    target: bytes
    mac: bytes
    """Of who asks."""
    ip: bytes
    """Of who asks; unspecified in a probe before first use."""


class Statement(NamedTuple):
    """Somebody says that it has an address."""

    ip: bytes
    mac: bytes
    to_all: bool
    """False if it was sent to this node alone."""
    outdated: bool = False
    """What the sender serves there may be out of date, if it is one of us: it cannot reach the API server."""


class Heard(NamedTuple):
    """A question, a statement, or both: who asks by ARP also tells its own address."""

    asked: Asked | None
    statement: Statement | None


def is_host(mac: bytes) -> bool:
    """Return whether a link-layer address can be that of one host: it is no group's, and not zero."""
    return len(mac) == _MAC_BYTES and not mac[0] & 1 and any(mac)
