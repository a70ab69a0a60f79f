"""The connection tracking table of this network namespace: find connections, count them, and change or forget them."""

import asyncio
import ipaddress
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from kube_nftlb import errors
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.conntrack import filters
from kube_nftlb.netfilter.conntrack.entries import Endpoint, Entry, entries, entry
from kube_nftlb.netfilter.conntrack.filters import Target
from kube_nftlb.netfilter.netlink import Change, NetfilterClient
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket

Address = tuple[str, int]
"""The IP and port of a backend; port 0 stands for all ports."""

_FAMILIES: Final = {4: "ip", 16: "ip6"}
"""By the length of an address."""
_SEARCHED_MAX: Final = 32
"""Maximum number of addresses that a datagram is searched for: it costs less than to parse it."""
_TIMEOUT_S: Final = 10


class Conntrack(NetfilterClient):
    """This network namespace's connections. Use ``open``. All raise KernelError if the kernel refuses or is silent."""

    async def find(
        self,
        to: Collection[Target],
        chosen: Callable[[Entry], bool],
        narrowed: bytes = b"",
        limit: int | None = None,
    ) -> list[Entry]:
        """Return the connections to targets that are chosen, at most ``limit`` of each family.

        ``narrowed`` is a filter that all of them pass. An old kernel may ignore it: ``chosen`` decides.
        """
        found = []
        for family in _FAMILIES.values():
            if of_family := {each for each in to if _family(each[0]) == family}:
                found += await asyncio.to_thread(_find, family, of_family, chosen, narrowed, limit)
        return found

    async def one(self, protocol: int, client: Endpoint, server: Endpoint) -> Entry | None:
        """Return a connection by what its client sees of it."""
        family = _family(client[0])
        question = filters.connection(protocol, client, server)
        for answer in await self._netfilter.ask(family, netlink.GET_CONNECTIONS, question):
            return entry(netlink.FAMILIES[family], answer, 0, len(answer))
        return None

    async def forget(self, connections: Iterable[Entry]) -> int:
        """Forget connections. Return how many there were."""
        return await self._change(netlink.DELETE_CONNECTION, connections, b"")

    async def unmark(self, connections: Iterable[Entry]) -> int:
        """Take the marks from connections. Return how many there were."""
        unmarked = netlink.attribute(filters.MARK, filters.number(0))
        return await self._change(netlink.SET_CONNECTION, connections, unmarked)

    async def _change(self, kind: int, connections: Iterable[Entry], change: bytes) -> int:
        changes: dict[str, list[Change]] = {}
        for each in connections:
            changes.setdefault(_family(each.client[0]), []).append(Change(kind, each.key + change))
        return sum([await self._netfilter.change(family, of_family) for family, of_family in changes.items()])

    async def count(self, backends: Collection[Address]) -> Counter[Address]:
        """Return the number of open connections to each backend that has any.

        A connection counts where it is translated, so on one node only. One that is closed, or waits after its end,
        does not count; flows of other protocols than TCP count until conntrack forgets them.
        """
        return await asyncio.to_thread(_count, backends)


def dump(family: str, payload: bytes) -> Iterator[bytes]:
    """Yield the connections of a family that pass the filter ``payload``, in datagrams of netlink.

    For a thread or program that may wait: hundreds of thousands take a second. Each dump has a socket of its own, so
    several threads may. Raises KernelError.
    """
    try:
        with NetlinkSocket(timeout_s=_TIMEOUT_S) as opened:
            opened.sendall(netlink.request(family, netlink.GET_CONNECTIONS, payload, dump=True))
            while True:
                data = opened.receive()
                yield data
                if _is_last(data):
                    return
    except OSError as error:
        raise errors.KernelError(f"netfilter does not tell its connections: {error!r}") from error


def _is_last(data: bytes) -> bool:
    """Return True if a datagram ends the dump. Raises KernelError if the kernel refuses it."""
    for kind, _, _, start, _ in netlink.parts(data):
        if kind == netlink.DONE:
            return True
        if kind == netlink.ERROR:
            refusal = os.strerror(netlink.code(data, start))
            raise errors.KernelError(f"netfilter refused to tell its connections: {refusal}")
    return False


def _find(
    family: str, targets: Collection[Target], chosen: Callable[[Entry], bool], narrowed: bytes, limit: int | None
) -> list[Entry]:
    """See ``Conntrack.find``. The kernel may have a million others."""
    ips = {ip for ip, _, _ in targets}
    found: dict[bytes, Entry] = {}
    for question in filters.to_targets(targets, narrowed):
        for data in dump(family, question):
            if len(ips) <= _SEARCHED_MAX and not any(ip in data for ip in ips):
                continue
            for each in entries(data, ips):
                if _is_to(each, targets) and chosen(each):
                    found[each.key] = each
            if limit is not None and len(found) >= limit:
                return list(found.values())[:limit]
    return list(found.values())


def _is_to(each: Entry, targets: Collection[Target]) -> bool:
    ip, port = each.server
    return (ip, each.protocol, port) in targets or (ip, each.protocol, 0) in targets


def _count(backends: Collection[Address]) -> Counter[Address]:
    packed = {(ipaddress.ip_address(ip).packed, port): (ip, port) for ip, port in backends}
    counted: Counter[Address] = Counter()
    for family in _FAMILIES.values():
        ips = {ip for ip, _ in packed if _family(ip) == family}
        for question in filters.from_backends(ips) if ips else ():
            # An old kernel may ignore the filter.
            found = (each for data in dump(family, question) for each in entries(data))
            counted.update(
                backend
                for each in found
                if each.is_translated and each.is_open
                if (backend := packed.get(each.answerer) or packed.get((each.answerer[0], 0))) is not None
            )
    return counted


def _family(ip: bytes) -> str:
    return _FAMILIES[len(ip)]
