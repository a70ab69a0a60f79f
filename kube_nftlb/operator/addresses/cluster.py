"""The cluster's own addresses, which no pool may have. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress

from kube_nftlb.api.address_ranges import AddressRange, Ip, ip_of, overlap, range_of_network
from kube_nftlb.environment import IpNetwork


class ClusterAddresses:
    """A snapshot of them."""

    def __init__(self, addresses: Iterable[tuple[str, str]], ranges: Iterable[tuple[IpNetwork, str]]) -> None:
        """Both come with what they are."""
        found: dict[Ip, str] = {}
        for text, what in addresses:
            # The API server may be known by a name.
            with suppress(ValueError):
                found.setdefault(ip_of(text), what)
        self._addresses = sorted(found.items())
        self._ranges = [(range_of_network(network), f"{network}, the range of {whose}") for network, whose in ranges]

    def overlapping(self, wanted: AddressRange) -> str | None:
        """Return what has an address of a range: a range of the cluster, or a single address; None for nothing."""
        for each, what in self._ranges:
            if overlap(each, wanted):
                return what
        index = bisect_left(self._addresses, (Ip(wanted.family, wanted.first), ""))
        if index < len(self._addresses):
            ip, what = self._addresses[index]
            if ip.family == wanted.family and ip.number <= wanted.last:
                return f"{ip}, {what}"
        return None
