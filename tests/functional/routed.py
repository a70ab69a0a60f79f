"""What routers of a lab know of the addresses that nodes announce by BGP."""

import threading
import time
from collections.abc import Callable

from pyroute2 import IPRoute

from lab.routing import hops as of_router
from tests.functional.cluster import Cluster, eventually

_EVERY_S = 0.002


def hops(cluster: Cluster, router: str, ip: str) -> list[str]:
    """The nodes to which a router sends packets for an address; those of IPv6 by their link-local addresses."""

    def read() -> list[str]:
        with IPRoute() as netlink:
            return of_router.hops(netlink, ip)

    names = {str(node.addresses[0].ip): node.name for node in cluster.lab.nodes}
    return sorted(names.get(hop, hop) for hop in cluster.lab.inside(router, read))


def routed(cluster: Cluster, router: str, ip: str, *nodes: str) -> None:
    """Wait until a router sends packets for an address to these nodes, and no other."""
    eventually(lambda: hops(cluster, router, ip) == sorted(nodes), f"{router} has {ip} at {nodes}", 30)


class RouteWatch:
    """Sees when the number of nodes to which a router sends packets for an address is first as wanted."""

    def __init__(self, cluster: Cluster, router: str, ip: str, wanted: Callable[[int], bool]) -> None:
        self._cluster, self._router, self._ip, self._wanted = cluster, router, ip, wanted
        self._watching = threading.Event()
        self._thread = threading.Thread(target=lambda: cluster.lab.inside(router, self._until_met))
        self.took_s = 0.0

    def __enter__(self) -> "RouteWatch":
        self._thread.start()
        assert self._watching.wait(10)
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        assert self.took_s, "the route is as wanted"

    def _until_met(self) -> None:
        with IPRoute() as netlink:
            self._watching.set()
            until = time.monotonic() + 20
            while time.monotonic() < until:
                if self._wanted(len(of_router.hops(netlink, self._ip))):
                    self.took_s = time.monotonic() - self._began
                    return
                time.sleep(_EVERY_S)
