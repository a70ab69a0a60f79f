"""Which nodes should hold an address, the best first. Pure, and the same on all nodes, from what all of them see."""

import zlib
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple


class Demand(NamedTuple):
    """What an address asks of its holder."""

    nodes: frozenset[str]
    """The nodes that the pool and the policy of the farms allow, that are ready and do not leave."""
    prefer: frozenset[str] = frozenset()
    """Those of them that the pool prefers."""


def candidates(demands: Mapping[str, Demand], held: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes for each address: preferred ones first, then those that hold the fewest.

    ``held`` has the holders there are. An address that has one stays there while it may (``address``), so this order
    counts when a new holder is sought, and nothing moves because a node joins.
    """
    counts = Counter(held.values())
    ordered = {}
    for ip in sorted(demands):
        demand = demands[ip]
        ordered[ip] = tuple(sorted(demand.nodes, key=partial(_rank, ip, demand, counts)))
        if ordered[ip] and held.get(ip) not in demand.nodes:
            # It is about to be held there: the next address counts it.
            counts[ordered[ip][0]] += 1
    return ordered


def _rank(ip: str, demand: Demand, counts: Counter[str], node: str) -> tuple[bool, int, int]:
    return node not in demand.prefer, counts[node], zlib.crc32(f"{node}#{ip}".encode())
