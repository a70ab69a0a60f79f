"""The kernel's table of routes to announced addresses. No ip rule names it, so no packet takes them."""

from collections.abc import Iterator
from errno import EEXIST, ESRCH
from socket import AF_INET, AF_INET6
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kube_nftlb.announce.bgp.routes import PROTOCOL, Changes, Route

_UNREACHABLE: Final = 7
"""RTN_UNREACHABLE (linux/rtnetlink.h): the only kind of route that needs no interface, and that daemons take over."""
_LENGTHS: Final = {AF_INET: 32, AF_INET6: 128}


class RouteTable:
    """A table. Not for a thread with a running event loop: pyroute2 runs one of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def read(self) -> frozenset[Route]:
        """Return our routes in it. Raises OSError."""
        with IPRoute() as ip:
            return frozenset(route for number, route in _ours(ip) if number == self._number)

    def apply(self, changes: Changes) -> None:
        """Make changes. Raises OSError; then some of them may be made."""
        with IPRoute() as ip:
            for route in changes.add:
                _change(ip, "add", self._number, route, EEXIST)
            for route in changes.delete:
                _change(ip, "del", self._number, route, ESRCH)


def remove_all() -> None:
    """Remove our routes from all tables. Raises OSError."""
    with IPRoute() as ip:
        for number, route in _ours(ip):
            _change(ip, "del", number, route, ESRCH)


def _ours(ip: IPRoute) -> Iterator[tuple[int, Route]]:
    for family, length in _LENGTHS.items():
        for entry in list(ip.get_routes(family=family, proto=PROTOCOL)):
            if entry["proto"] == PROTOCOL and entry["type"] == _UNREACHABLE:
                number = entry.get_attr("RTA_TABLE") or entry["table"]
                prefix = f"{entry.get_attr('RTA_DST')}/{entry['dst_len'] or length}"
                yield number, Route(prefix, entry.get_attr("RTA_PRIORITY") or 0)


def _change(ip: IPRoute, command: str, number: int, route: Route, already: int) -> None:
    try:
        ip.route(
            command,
            family=AF_INET6 if ":" in route.prefix else AF_INET,
            dst=route.prefix,
            type="unreachable",
            proto=PROTOCOL,
            table=number,
            priority=route.metric,
        )
    except NetlinkError as error:
        if error.code != already:
            raise OSError(error.code, f"{command} {route.prefix}: {error}") from error
