"""Addresses as numbers, and ranges of them. Pure."""

import ipaddress
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from kube_nftlb.api.base import Family
from kube_nftlb.environment import IpNetwork

V = TypeVar("V")

LEADING_ZEROS = re.compile(r"(?<![\w:])0+(?=\d)")
"""Kubernetes admits leading zeros in IPv4 addresses, and reads the numbers as decimal ones."""


class Ip(NamedTuple):
    """An address."""

    family: Family
    number: int

    def __str__(self) -> str:
        """Return it in canonical form."""
        return str(ipaddress.IPv6Address(self.number) if self.family == "ipv6" else ipaddress.IPv4Address(self.number))


class AddressRange(NamedTuple):
    """All addresses from first to last, as numbers."""

    family: Family
    first: int
    last: int

    def __str__(self) -> str:
        """Return it as nftables has it in a set of intervals: one address, or the first and the last."""
        first, last = Ip(self.family, self.first), Ip(self.family, self.last)
        return str(first) if first == last else f"{first}-{last}"


def ip_of(text: str) -> Ip:
    """Return an address in canonical form. Raises ValueError with a sentence for any other text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id or address.ipv4_mapped:
            raise ValueError(f"{text!r} has a zone, or is an IPv4 address within an IPv6 address")
        return Ip("ipv6", _canonical(text, address))
    return Ip("ipv4", _canonical(text, address))


def known_ip_of(text: str) -> Ip:
    """Return an address in any spelling that Kubernetes admits in a status. Raises ValueError for any other text."""
    address = ipaddress.ip_address(LEADING_ZEROS.sub("", text.strip()))
    if isinstance(address, ipaddress.IPv4Address):
        return Ip("ipv4", int(address))
    if address.ipv4_mapped is not None:
        return Ip("ipv4", int(address.ipv4_mapped))
    return ip_of(str(address))


def _canonical(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    if str(address) != text:
        raise ValueError(f"{text!r} must be written {address}")
    return int(address)


def address_range(cidr: str) -> AddressRange:
    """Return the range of a CIDR. Bits behind its prefix are ignored, as in loadBalancerSourceRanges.

    Raises ValueError if it is not valid.
    """
    text, slash, prefix = cidr.partition("/")
    address = ipaddress.ip_address(text)
    if not slash or not (prefix.isascii() and prefix.isdecimal()) or int(prefix) > address.max_prefixlen:
        raise ValueError(f"{cidr!r} must end with the length of its prefix, from /0 to /{address.max_prefixlen}")
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise ValueError(f"{cidr!r} must have neither a zone nor an IPv4 address within the IPv6 address")
    host = (1 << (address.max_prefixlen - int(prefix))) - 1
    return AddressRange("ipv6" if address.version == 6 else "ipv4", int(address) & ~host, int(address) | host)


# All ranges of all pools are read again whenever one pool has changed.
@lru_cache(maxsize=1 << 13)
def range_of(text: str) -> AddressRange:
    """Return the range that a pool has as text. Raises ValueError with a sentence if the last address is not last."""
    if "-" not in text:
        return address_range(text)
    first, last = map(ip_of, text.split("-"))
    if first.number > last.number:
        raise ValueError(f"{text!r} ends before it begins: write {last}-{first}")
    return AddressRange(first.family, first.number, last.number)


def valid_ranges(texts: Iterable[str]) -> Iterator[AddressRange]:
    """Yield the ranges that a pool has as texts, without those that end before they begin: the operator tells of them.

    The schema of a pool does not refuse them, so nodes must live with them.
    """
    for text in texts:
        with suppress(ValueError):
            yield range_of(text)


def range_of_network(network: IpNetwork) -> AddressRange:
    """Return the range of a network."""
    first, last = int(network.network_address), int(network.broadcast_address)
    return AddressRange("ipv6" if network.version == 6 else "ipv4", first, last)


def overlap(one: AddressRange, other: AddressRange) -> bool:
    """Return true if two ranges have an address in common."""
    return one.family == other.family and one.first <= other.last and other.first <= one.last


def without(ranges: Iterable[AddressRange], removed: Iterable[AddressRange]) -> list[AddressRange]:
    """Return what is left of the ranges, in their order, without those that are removed."""
    taken = RangeSet(removed)
    return [part for each in ranges for part in taken.rest(each)]


def intervals(ranges: Iterable[AddressRange], family: Family) -> tuple[str, ...]:
    """Return the addresses of a family as elements of an nftables set of intervals, in order.

    Ranges that overlap or are adjacent are merged: nft(8) refuses some of them, and merges others.
    """
    return tuple(map(str, _merged(sorted(each for each in ranges if each.family == family))))


def _merged(ranges: Iterable[AddressRange]) -> Iterator[AddressRange]:
    """Merge sorted ranges of a family that overlap or are adjacent."""
    open_: AddressRange | None = None
    for each in ranges:
        if open_ is None:
            open_ = each
        elif each.first <= open_.last + 1:
            open_ = open_._replace(last=max(open_.last, each.last))
        else:
            yield open_
            open_ = each
    if open_ is not None:
        yield open_


def size(ranges: Iterable[AddressRange], family: Family) -> int:
    """Return the number of addresses of a family."""
    return sum(each.last - each.first + 1 for each in ranges if each.family == family)


class RangeSet:
    """Addresses, in ranges that do not overlap."""

    def __init__(self, ranges: Iterable[AddressRange] = ()) -> None:
        self._ranges: list[AddressRange] = []
        for each in ranges:
            self.add(each)

    def rest(self, wanted: AddressRange) -> Iterator[AddressRange]:
        """Yield the parts of a range that it does not have, in order."""
        first, index = wanted.first, bisect_left(self._ranges, wanted._replace(last=-1))
        # The one before may reach into it.
        for number in range(max(0, index - 1), len(self._ranges)):
            family, taken_first, taken_last = self._ranges[number]
            if (family, taken_first) > (wanted.family, wanted.last):
                break
            if family == wanted.family and taken_last >= first:
                if taken_first > first:
                    yield AddressRange(family, first, taken_first - 1)
                first = taken_last + 1
        if first <= wanted.last:
            yield wanted._replace(first=first)

    def add(self, new: AddressRange) -> list[AddressRange]:
        """Add a range. Return the parts that it did not have."""
        parts = list(self.rest(new))
        for each in parts:
            insort(self._ranges, each)
        return parts


class RangeMap(Generic[V]):
    """Finds the value of the range that has an address. No two of the ranges may overlap."""

    def __init__(self, ranges: Iterable[tuple[AddressRange, V]] = ()) -> None:
        self._ranges = sorted(ranges, key=lambda entry: entry[0])
        self._firsts = [(each.family, each.first) for each, _ in self._ranges]

    def find(self, ip: Ip) -> V | None:
        """Return the value of the range with an address, or None."""
        return self._before(ip.family, ip.number, ip.number)

    def overlapping(self, wanted: AddressRange) -> V | None:
        """Return the value of a range that has an address in common with another, or None."""
        return self._before(wanted.family, wanted.first, wanted.last)

    def _before(self, family: Family, first: int, last: int) -> V | None:
        index = bisect_right(self._firsts, (family, last)) - 1
        if index < 0:
            return None
        found, value = self._ranges[index]
        return value if found.family == family and found.last >= first else None
