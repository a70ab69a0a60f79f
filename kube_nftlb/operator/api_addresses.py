"""Keep Services from the addresses of the API server that no object of the cluster names.

The settings may have a name, behind which is a virtual IP or a load balancer. A Service with that as an external
IP would take the nodes' own connections to the API server.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable

import structlog

from kube_nftlb.operator.cache.affected import Affected

EVERY_S = 60.0
_RESOLVED_WITHIN_S = 5.0
_CONNECTION = "of the connection"

_log = structlog.get_logger()

Resolve = Callable[[str], Awaitable[Collection[str]]]
"""Returns the addresses of a name. Raises OSError or TimeoutError."""


async def resolved(name: str) -> frozenset[str]:
    """Return the addresses of a name, as the system resolves it. Raises OSError or TimeoutError."""
    async with asyncio.timeout(_RESOLVED_WITHIN_S):
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return frozenset(str(address[0]).partition("%")[0] for *_, address in found)


class ApiAddresses:
    """Looks again each minute, as names may change. A name that cannot be resolved keeps its addresses."""

    def __init__(
        self,
        hosts: Iterable[str],
        peers: Callable[[], Collection[str]],
        put: Callable[[str, Collection[str]], Affected],
        mark: Callable[[Affected], None],
        resolve: Resolve = resolved,
    ) -> None:
        """``hosts`` are those of the settings; ``peers`` returns the addresses of the operator's own connections.

        ``put`` reserves the addresses of a host, and returns what that makes out of date, for ``mark``.
        """
        self._names = [host for host in dict.fromkeys(hosts) if host and not _is_ip(host)]
        self._peers = peers
        self._put = put
        self._mark = mark
        self._resolve = resolve
        self._failed: set[str] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        self._mark(self._put(_CONNECTION, self._peers()))
        for name in self._names:
            try:
                ips = await self._resolve(name)
            except (OSError, TimeoutError) as error:
                if name not in self._failed:
                    _log.warning("cannot resolve the name of the API server", name=name, error=repr(error))
                self._failed.add(name)
            else:
                self._failed.discard(name)
                self._mark(self._put(name, ips))


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
