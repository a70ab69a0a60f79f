"""The hops of a route, as the kernel of a router has it."""

from pyroute2 import IPRoute

_MAIN = 254
_FAMILIES = {4: 2, 6: 10}
"""AF_INET and AF_INET6."""


def hops(netlink: IPRoute, ip: str) -> list[str]:
    """Return the gateways of the route to an address in the network namespace of the connection; empty without one."""
    family = _FAMILIES[6 if ":" in ip else 4]
    found: list[str] = []
    for entry in netlink.get_routes(family=family, table=_MAIN):
        if entry.get_attr("RTA_DST") == ip:
            found += [hop.get_attr("RTA_GATEWAY") for hop in entry.get_attr("RTA_MULTIPATH") or [entry]]
    return found
