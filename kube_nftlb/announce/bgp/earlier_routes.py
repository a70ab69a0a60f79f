"""The routes that an agent before this one left: they stay as they are until what they are for is known. Pure."""

import ipaddress
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from kube_nftlb.announce.bgp.routes import Metric, Route

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class EarlierRoutes:
    """Routes, and whether an address is of one: of its own, or of an aggregate."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        # The lower metric of a prefix counts.
        self._routes = {ipaddress.ip_network(each.prefix): each for each in sorted(routes, reverse=True)}
        self._lengths = sorted({(each.version, each.prefixlen) for each in self._routes}, reverse=True)
        self._taken: set[str] = set()
        self._met: set[_Network] = set()

    def __contains__(self, ip: object) -> bool:
        return isinstance(ip, str) and self._of(ip) is not None

    @property
    def rest(self) -> frozenset[Route]:
        """Return the routes of which no address was taken."""
        return frozenset(route for network, route in self._routes.items() if network not in self._met)

    def take(self, ips: Iterable[str]) -> Mapping[str, Metric]:
        """Return the metrics of those addresses that have a route, and were not taken before."""
        found = {}
        for ip in ips:
            if ip not in self._taken and (network := self._of(ip)) is not None:
                found[ip] = Metric.GOES if self._routes[network].metric == Metric.GOES else Metric.SERVES
                self._taken.add(ip)
                self._met.add(network)
        return found

    def _of(self, ip: str) -> _Network | None:
        address = ipaddress.ip_address(ip)
        lengths = (length for version, length in self._lengths if version == address.version)
        networks = (ipaddress.ip_network(f"{ip}/{length}", strict=False) for length in lengths)
        return next((each for each in networks if each in self._routes), None)


@dataclass(frozen=True)
class Union:
    """What is in one of two."""

    one: Container[str]
    other: Container[str]

    def __contains__(self, ip: object) -> bool:
        return ip in self.one or ip in self.other
