"""Parse environment variables. Empty ones count as unset; invalid ones raise UsageError, which says what is allowed."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kube_nftlb import errors

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_T = TypeVar("_T")


class ListenAddress(NamedTuple):
    """The address of a server: an IP address or host name, and a TCP port."""

    host: str
    port: int


def listen_address(environ: Mapping[str, str], name: str, default: str) -> ListenAddress:
    """Read a variable of the form ``host:port``."""
    value = environ.get(name) or default
    return _address(name, value, value)


def server_addresses(environ: Mapping[str, str], name: str) -> tuple[ListenAddress, ...]:
    """Read a variable with comma-separated ``host:port``."""
    value = environ.get(name) or ""
    return tuple(_address(name, value, text.strip()) for text in value.split(",") if text.strip())


def _address(name: str, value: str, text: str) -> ListenAddress:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise errors.UsageError(f"{name}={value!r}: must be host:port or [IPv6]:port, with a port from 1 to 65535")
    return ListenAddress(host, int(port))


def seconds(environ: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    """Read a number of seconds."""
    value = environ.get(name) or str(default)
    sentence = f"{name}={value!r}: must be a number of seconds from {low} to {high}"
    try:
        number = float(value)
    except ValueError:
        raise errors.UsageError(sentence) from None
    # This way around, "nan" is refused too.
    if not low <= number <= high:
        raise errors.UsageError(sentence)
    return number


def number(environ: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    """Read a whole number."""
    value = environ.get(name) or str(default)
    if not value.isdecimal() or not low <= int(value) <= high:
        raise errors.UsageError(f"{name}={value!r}: must be a whole number from {low} to {high}")
    return int(value)


def networks(environ: Mapping[str, str], name: str, default: str) -> tuple[IpNetwork, ...]:
    """Read comma-separated address ranges."""
    value = environ.get(name) or default
    try:
        return tuple(ipaddress.ip_network(text.strip()) for text in value.split(",") if text.strip())
    except ValueError as error:
        raise errors.UsageError(f"{name}={value!r}: must be CIDRs such as 10.0.0.0/8,fd00::/64: {error}") from None


def choice(environ: Mapping[str, str], name: str, default: str, allowed: Mapping[str, _T]) -> _T:
    """Read one of the allowed words."""
    value = environ.get(name) or default
    if value not in allowed:
        raise errors.UsageError(f"{name}={value!r}: must be one of {', '.join(allowed)}")
    return allowed[value]


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """Some numbers, as ranges with their first and last."""

    ranges: tuple[tuple[int, int], ...] = ()
    text: str = "none"
    """As an administrator writes them."""

    def include(self, number: int) -> bool:
        """Return True if a number is one of them."""
        return any(first <= number <= last for first, last in self.ranges)


def number_ranges(environ: Mapping[str, str], name: str, *, low: int, high: int) -> NumberRanges:
    """Read comma-separated numbers and ranges, decimal or hexadecimal; ``all``, or ``none``, which is the default."""
    value = (environ.get(name) or "none").strip()
    if value in ("none", "all"):
        return NumberRanges(((low, high),) if value == "all" else (), value)
    ranges = []
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            ends = int(first, 0), int(last if dash else first, 0)
        except ValueError:
            ends = (0, -1)
        if not low <= ends[0] <= ends[1] <= high:
            sentence = f"{name}={value!r}: must be all, none, or numbers and ranges from {low} to {high}"
            raise errors.UsageError(f"{sentence}, such as 0x1000,0x10000-0xf0000")
        ranges.append(ends)
    return NumberRanges(tuple(ranges), value)


def words(environ: Mapping[str, str], name: str, allowed: Iterable[str]) -> frozenset[str]:
    """Read comma-separated words of those allowed; ``none``, or ``all``, which is the default."""
    value, known = (environ.get(name) or "all").strip(), frozenset(allowed)
    if value in ("none", "all"):
        return known if value == "all" else frozenset()
    chosen = frozenset(part.strip() for part in value.split(","))
    if not chosen <= known:
        raise errors.UsageError(f"{name}={value!r}: must be all, none, or words from {', '.join(sorted(known))}")
    return chosen
