"""The traffic counts of a node, as one line of JSON. Pure.

A report has a bounded size, however many ports and backends clients use: the busiest listeners, and of each the busiest
backends. What a listener sums up is exact, also where not all of its backends are listed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from kube_nftlb.netfilter.traffic.tally import Counts, unpacked

LISTENERS_MAX: Final = 1024
LISTENER_BACKENDS_MAX: Final = 100
BACKENDS_MAX: Final = 8192
LINE_MAX: Final = 1 << 21
"""Bytes that a line has at most."""

_T = TypeVar("_T")


class BackendCounts(NamedTuple):
    """The connections to a backend of a listener."""

    ip: str
    port: int
    counts: Counts


class ListenerCounts(NamedTuple):
    """The connections to a listener, and to its busiest backends."""

    protocol: str
    """TCP, UDP or SCTP."""
    ip: str
    port: int
    counts: Counts
    backends: tuple[BackendCounts, ...]


class Report(NamedTuple):
    """The traffic counts of a node."""

    seconds: float
    """The time since the last report."""
    listeners: tuple[ListenerCounts, ...] = ()
    omitted: int = 0
    """Listeners with connections that are not listed."""
    bytes_counted: bool = True
    """False if the kernel does not count bytes: net.netfilter.nf_conntrack_acct is 0."""
    events: bool = True
    """False if only the table was read, as there were too many events."""
    lost: int = 0
    """Times that the kernel could not tell of connections."""
    connections: int = 0
    """Translated connections in the table."""
    reading_s: float = 0
    """Time in seconds that reading the table took."""


def listeners(flows: Mapping[bytes, Counts]) -> tuple[tuple[ListenerCounts, ...], int]:
    """Return the busiest listeners, the busiest first, and the number of the others."""
    by_listener: dict[tuple[str, str, int], list[BackendCounts]] = defaultdict(list)
    for packed, counts in flows.items():
        flow = unpacked(packed)
        by_listener[flow[:3]].append(BackendCounts(flow.backend_ip, flow.backend_port, counts))
    summed = [ListenerCounts(*key, total(each.counts for each in found), ()) for key, found in by_listener.items()]
    room, chosen = BACKENDS_MAX, []
    for each in busiest(summed, LISTENERS_MAX, _counts_of):
        backends = busiest(by_listener[each[:3]], min(LISTENER_BACKENDS_MAX, room), _counts_of)
        room -= len(backends)
        chosen.append(each._replace(backends=tuple(backends)))
    return tuple(chosen), len(summed) - len(chosen)


def total(some: Iterable[Counts]) -> Counts:
    """Return the sum."""
    return Counts(*(sum(column) for column in zip(*some, strict=True)))


def shares(counts: Mapping[_T, Counts]) -> dict[_T, float]:
    """Return how busy each is: its shares of all new connections, of all that are open, and of all bytes, added up."""
    whole = total(counts.values())
    volume = whole.sent + whole.answered
    return {
        key: each.new / (whole.new or 1) + each.open / (whole.open or 1) + (each.sent + each.answered) / (volume or 1)
        for key, each in counts.items()
    }


def busiest(some: list[_T], most: int, counts_of: Callable[[_T], Counts]) -> list[_T]:
    """Return the busiest, the busiest first."""
    share = shares({number: counts_of(each) for number, each in enumerate(some)})
    return [some[number] for number in sorted(share, key=lambda number: -share[number])[:most]]


def encode(report: Report) -> bytes:
    """Return a line."""
    return msgspec.json.encode(report) + b"\n"


def decode(line: bytes) -> Report:
    """Return the report in a line. Raises ValueError."""
    return msgspec.json.decode(line, type=Report)


def _counts_of(each: ListenerCounts | BackendCounts) -> Counts:
    return each.counts
