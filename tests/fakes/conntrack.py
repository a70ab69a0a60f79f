"""A table of connections without a kernel."""

from collections import Counter
from collections.abc import Callable, Collection
from ipaddress import ip_address

from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.netfilter.conntrack.entries import DESTINATION_TRANSLATED, TCP, Endpoint, Entry
from kube_nftlb.netfilter.conntrack.filters import Target
from kube_nftlb.netfilter.conntrack.table import Address
from tests.fakes.clock import FakeClock

ESTABLISHED = 3


def endpoint(ip: str, port: int = 8080) -> Endpoint:
    return ip_address(ip).packed, port


def entry(
    answerer: Endpoint,
    *,
    server: Endpoint = endpoint("10.96.0.10", 80),  # noqa: B008 - immutable
    port: int = 1,
    protocol: int = TCP,
    state: int = ESTABLISHED,
    translated: bool = True,
) -> Entry:
    """A connection of the client's ``port``."""
    client = endpoint("10.244.9.9", port)
    status = DESTINATION_TRANSLATED if translated else 0
    tcp_state = state if protocol == TCP else None
    key = f"{port}".encode()
    return Entry(protocol, client, server, answerer, status, tcp_state, 0, 0, 0, key, b"", key, key, ended=False)


class FakeConntrack:
    """Connections, and what happens to them, in order; also challenges their clients."""

    def __init__(self, *entries: Entry) -> None:
        self.entries = list(entries)
        self.events: list[tuple[object, ...]] = []
        self.problem: Exception | None = None

    async def find(
        self, to: Collection[Target], chosen: Callable[[Entry], bool], narrowed: bytes = b"", limit: int | None = None
    ) -> list[Entry]:
        self.events.append(("looked", set(to), narrowed))
        if self.problem is not None:
            raise self.problem
        found = [each for each in self.entries if _targets(each) & set(to) and chosen(each)]
        return found[:limit]

    async def forget(self, connections: Collection[Entry]) -> int:
        if connections:
            self.events.append(("forgot", len(connections)))
        self.entries = [each for each in self.entries if each not in connections]
        return len(connections)

    async def unmark(self, connections: Collection[Entry]) -> int:
        if connections:
            self.events.append(("unmarked", len(connections)))
        return len(connections)

    async def count(self, backends: Collection[Address]) -> Counter[Address]:
        return Counter()

    def challenge(self, client: Endpoint, server: Endpoint) -> None:
        self.events.append(("challenged", client[1], server))
        if isinstance(self.problem, OSError):
            raise self.problem

    @property
    def looks(self) -> int:
        """The number of times that connections were looked for."""
        return sum(event[0] == "looked" for event in self.events)


def _targets(each: Entry) -> set[Target]:
    ip, port = each.server
    return {(ip, each.protocol, port), (ip, each.protocol, 0)}


def no_connections(clock: Clock | None = None) -> Connections:
    """The connections of a node that has none."""
    return Connections(FakeConntrack(), FakeConntrack(), clock or FakeClock())
