"""Which nodes should hold an address, the best first. Pure, and the same on all nodes, from what all of them see."""

import zlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import NamedTuple


class Demand(NamedTuple):
    """What an address asks of its holder."""

    nodes: frozenset[str]
    """The nodes that the pool and the policy of the farms allow, that are ready and do not leave."""
    prefer: frozenset[str] = frozenset()
    """Those of them that the pool prefers."""


def candidates(demands: Mapping[str, Demand], held: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes for each address, preferred ones first.

    ``held`` has the holders there are. An address that has one stays there while it may (``address``), so nothing moves
    because a node joins; who watches the holder does not depend on what others hold, so that all nodes agree. For an
    address without one, the nodes that hold the fewest come first.
    """
    counts = Counter(held.values())
    ordered = {}
    for ip in sorted(demands):
        demand = demands[ip]
        if held.get(ip) in demand.nodes:
            ordered[ip] = _standbys(ip, demand)
            continue
        ordered[ip] = tuple(sorted(demand.nodes, key=partial(_rank, ip, demand, counts)))
        if ordered[ip]:
            # It is about to be held there: the next address counts it.
            counts[ordered[ip][0]] += 1
    return ordered


@lru_cache(maxsize=1 << 14)
def _standbys(ip: str, demand: Demand) -> tuple[str, ...]:
    return tuple(sorted(demand.nodes, key=partial(_rank, ip, demand, Counter[str]())))


def _rank(ip: str, demand: Demand, counts: Counter[str], node: str) -> tuple[bool, int, int]:
    return node not in demand.prefer, counts[node], zlib.crc32(f"{node}#{ip}".encode())
