"""The kernel's table of routes to announced addresses. No ip rule names it, so no packet takes them."""

from collections.abc import Iterator
from errno import EEXIST, ESRCH
from socket import AF_INET, AF_INET6
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kube_nftlb.announce.bgp.routes import PROTOCOL, Changes, Route
from kube_nftlb.netfilter import rtnetlink

_UNREACHABLE: Final = 7
"""RTN_UNREACHABLE (linux/rtnetlink.h): the only kind of route that needs no interface, and that daemons take over."""
_LENGTHS: Final = {AF_INET: 32, AF_INET6: 128}
_ALREADY: Final = {"add": EEXIST, "del": ESRCH}
"""What the kernel says of a route that is as wanted."""


class RouteTable:
    """A table. Not for a thread with a running event loop: pyroute2 runs one of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def read(self) -> frozenset[Route]:
        """Return our routes in it. Raises OSError."""
        with rtnetlink.connected(strict=True) as ip:
            return frozenset(route for number, route in _ours(ip) if number == self._number)

    def apply(self, changes: Changes) -> None:
        """Make changes. Raises OSError once all are made that can be.

        A route is not deleted if the one that replaces it could not be added.
        """
        failed: list[str] = []
        missing = set()
        with rtnetlink.connected() as ip:
            for route in changes.add:
                if not _change(ip, "add", self._number, route, failed):
                    missing.add(route.prefix)
            for route in changes.delete:
                if route.prefix not in missing:
                    _change(ip, "del", self._number, route, failed)
        _raise(failed)


def remove_all(but: int | None = None) -> None:
    """Remove our routes from all tables, but one if it is given. Raises OSError once all are removed that can be."""
    failed: list[str] = []
    with rtnetlink.connected(strict=True) as ip:
        for number, route in _ours(ip):
            if number != but:
                _change(ip, "del", number, route, failed)
    _raise(failed)


def _raise(failed: list[str]) -> None:
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise OSError(f"{failed[0]}{more}")


def _ours(ip: IPRoute) -> Iterator[tuple[int, Route]]:
    for family, length in _LENGTHS.items():
        # Without a filter pyroute2 leaves what is asked for to the kernel, which else sends a router's whole table.
        for entry in list(ip.route("dump", family=family, proto=PROTOCOL, dump_filter={})):
            if entry["proto"] == PROTOCOL and entry["type"] == _UNREACHABLE:
                number = entry.get_attr("RTA_TABLE") or entry["table"]
                prefix = f"{entry.get_attr('RTA_DST')}/{entry['dst_len'] or length}"
                yield number, Route(prefix, entry.get_attr("RTA_PRIORITY") or 0)


def _change(ip: IPRoute, command: str, number: int, route: Route, failed: list[str]) -> bool:
    """Return whether the kernel has a route as wanted; what it says if not goes to ``failed``."""
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
        if error.code != _ALREADY[command]:
            failed.append(f"{command} {route.prefix}: {error}")
            return False
    return True
