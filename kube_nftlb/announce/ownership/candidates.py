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


_latest: dict[tuple[str, Demand, frozenset[str]], tuple[str, ...]] = {}
"""What was computed for the latest call: nodes change rarely, and to compare them is most of the work."""


def candidates(demands: Mapping[str, Demand], held: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes for each address, preferred ones first.

    ``held`` has the holders there are. An address that has one stays there while it may (``address``), so nothing moves
    because a node joins. Who watches the holder depends on nothing but whether a node holds any address at all, so that
    all nodes agree: one that does is able to, as one without an agent, or on another segment, is not. For an address
    without a holder, the nodes that hold the fewest come first.
    """
    counts, able = Counter(held.values()), frozenset(held.values())
    ordered, standbys = {}, {}
    for ip in sorted(demands):
        demand = demands[ip]
        if held.get(ip) in demand.nodes:
            key = ip, demand, able
            ordered[ip] = standbys[key] = _latest[key] if key in _latest else _standbys(ip, demand, able)
            continue
        ordered[ip] = tuple(sorted(demand.nodes, key=partial(_rank, ip, demand, counts)))
        if ordered[ip]:
            # It is about to be held there: the next address counts it.
            counts[ordered[ip][0]] += 1
    _latest.clear()
    _latest.update(standbys)
    return ordered


def _standbys(ip: str, demand: Demand, able: frozenset[str]) -> tuple[str, ...]:
    unable = Counter(demand.nodes - able)
    return tuple(sorted(demand.nodes, key=partial(_rank, ip, demand, unable)))


def _rank(ip: str, demand: Demand, counts: Counter[str], node: str) -> tuple[bool, int, int]:
    return node not in demand.prefer, counts[node], zlib.crc32(f"{node}#{ip}".encode())
