"""The desired contents of the table for a farm. Pure: no I/O.

Endpoints keep their numbers while they are there, so that one that comes or goes changes an element or two per
listener; where that cannot be, because all nodes must agree on a hash, they have the order of their addresses.
"""

import itertools
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import gcd
from typing import NamedTuple, TypeVar

from kube_nftlb.agent.engine.nftables import layout, timeouts
from kube_nftlb.agent.engine.nftables.affinity import Known, Memory, Pick
from kube_nftlb.agent.engine.nftables.choice import Choice
from kube_nftlb.agent.engine.nftables.layout import TableFamily, Target
from kube_nftlb.agent.engine.nftables.scheduling import Schedule
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.table.layout import ALWAYS
from kube_nftlb.agent.table.traffic_policy import hairpins, masqueraded
from kube_nftlb.api.backend import Backend

_T = TypeVar("_T")

_COUNTERS = 16
"""Farms with as many endpoints share this many counters of the scheduler rr.

With a single one, clients that connect to two farms by turns would always get the same endpoints of each.
"""
_DEFAULT_FIELDS = "srcip"


class Entry(NamedTuple):
    """The names of the chains that serve a listener (see ``layout``).

    ``inside`` is empty if all clients are served alike; ``choice`` and ``memory`` if none is remembered.
    """

    key: bytes
    port: int
    chain: str
    inside: str = ""
    outside: str = ""
    masquerade: str = ""
    from_node: bool = True
    choice: str = ""
    memory: str = ""

    @property
    def all_ports(self) -> bool:
        """True if it is all of an address."""
        return not self.port


class Sticky(NamedTuple):
    """The farm's number, its endpoints by theirs, and the numbers of those that may be chosen."""

    farm: int
    endpoints: tuple[tuple[int, Target], ...]
    picks: tuple[int, ...]
    inside_picks: tuple[int, ...]
    sessions: tuple[tuple[bytes, int], ...] = ()
    """Clients that always get the same endpoint."""


class Placement(NamedTuple):
    """A farm in the table. ``endpoints`` are by number, and ``inside`` those for clients of this node."""

    name: str
    family: TableFamily
    entries: tuple[Entry, ...]
    endpoints: tuple[Target, ...] = ()
    inside: tuple[Target, ...] = ()
    hairpin: tuple[bytes, ...] = ()
    sticky: Sticky | None = None


def place(farm: NodeFarm, before: Placement | None, number: int) -> Placement:
    """Return what the table is to have of a farm; ``number`` is the farm's, should it need one."""
    return _Place(farm, before, number).placement()


class _Place:
    def __init__(self, farm: NodeFarm, before: Placement | None, number: int) -> None:
        self._farm = farm
        self._spec = farm.spec
        self._family: TableFamily = "ip6" if farm.spec.family == "ipv6" else "ip"
        self._before = before if before is not None and before.family == self._family else None
        self._number = number
        self._sticky = farm.spec.persistence != "none"

    def placement(self) -> Placement:
        main, inside = self._lists()
        sticky = self._remembered(main, inside) if self._sticky else None
        endpoints, inside_endpoints = self._endpoints(main, inside) if not self._sticky else ((), ())
        sizes = (len(sticky.picks), len(sticky.inside_picks)) if sticky else (len(endpoints), len(inside_endpoints))
        entries = tuple(sorted(self._entries(*sizes)))
        hairpin = self._hairpin()
        return Placement(self._farm.name, self._family, entries, endpoints, inside_endpoints, hairpin, sticky)

    def _lists(self) -> tuple[list[Backend], list[Backend]]:
        """Return the backends that may be chosen by anybody, and those for clients of this node where these differ."""
        farm = self._farm
        if farm.refuses:
            return [], []
        main = [each.backend for each in farm.endpoints if each.schedulable]
        if self._spec.traffic_policy == "Cluster":
            return main, []
        local, cluster = farm.candidates.local, farm.candidates.cluster
        outside = any(address.type != "ClusterIP" for address in farm.addresses)
        if not local:
            return [], list(cluster) if outside else []
        return main, list(cluster) if outside and cluster != local else []

    def _endpoints(
        self, main: Sequence[Backend], inside: Sequence[Backend]
    ) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
        before = self._before
        return (
            tuple(self._numbered(targets(main), before.endpoints if before else ())),
            tuple(self._numbered(targets(inside), before.inside if before else ())),
        )

    def _numbered(self, wanted: list[Target], before: Sequence[Target]) -> list[Target]:
        return sorted(wanted) if self._spec.scheduler in ("hash", "symhash") else renumber(before, wanted)

    def _remembered(self, main: Sequence[Backend], inside: Sequence[Backend]) -> Sticky:
        before = self._before.sticky if self._before else None
        reachable = {each.backend.name: _target(each.backend) for each in self._farm.endpoints}
        reachable |= {each.name: _target(each) for each in inside}
        numbers = stable_numbers(before.endpoints if before else (), reachable.values())
        picks = [numbers[to] for to in targets(main)]
        inside_picks = [numbers[to] for to in targets(inside)]
        if self._spec.scheduler not in ("hash", "symhash"):
            picks = renumber(before.picks if before else (), picks)
            inside_picks = renumber(before.inside_picks if before else (), inside_picks)
        sessions = sorted(
            (layout.packed(each.client), numbers[reachable[each.backend]])
            for each in self._spec.sessions
            if each.backend in reachable
        )
        return Sticky(
            before.farm if before else self._number,
            tuple(sorted((number, to) for to, number in numbers.items())),
            tuple(picks),
            tuple(inside_picks),
            tuple(sessions),
        )

    def _hairpin(self) -> tuple[bytes, ...]:
        return tuple(layout.packed(ip) for ip in hairpins(self._farm)) if not self._farm.refuses else ()

    def _entries(self, main: int, inside: int) -> Iterator[Entry]:
        masquerade = dict(masqueraded(self._farm))
        for address in self._farm.addresses:
            for listener in address.listeners():
                key = layout.listener_key(listener)
                all_ports = listener.protocol == "All"
                entry = Entry(key, listener.port, layout.REFUSE, from_node=self._spec.intra_connect)
                if self._farm.refuses:
                    yield entry
                    continue
                entry = entry._replace(
                    chain=self._chain(main, all_ports=all_ports, inside=False),
                    masquerade=ALWAYS if self._spec.mode == "snat" else masquerade.get(listener, ""),
                )
                if address.type != "ClusterIP" and inside:
                    entry = entry._replace(
                        chain=layout.name(layout.BY_CLIENT, self._family),
                        inside=self._chain(inside, all_ports=all_ports, inside=True),
                        outside=entry.chain,
                    )
                yield self._with_memory(entry) if self._sticky else entry

    def _chain(self, endpoints: int, *, all_ports: bool, inside: bool) -> str:
        """Return the name of the chain that chooses among a number of endpoints; none drops connections."""
        if not endpoints:
            return layout.DROP
        choice = self._choice(endpoints, inside=inside)
        kind = Pick if self._sticky else Schedule
        return kind(self._family, all_ports, choice).name

    def _with_memory(self, entry: Entry) -> Entry:
        """Return an entry that remembers clients, from one whose chains choose for all of them."""
        if entry.chain == layout.DROP:
            return entry
        timeout_s, namespace = timeouts.rounded(self._spec.persist_ttl), self._farm.key[0]
        place = (self._family, entry.all_ports, timeout_s, namespace)
        known = Known(*place, has_sessions=bool(self._spec.sessions)).name
        entry = entry._replace(memory=Memory(*place).name)
        if entry.inside and entry.outside == layout.DROP:
            # Who is dropped is not to be found among the clients that are remembered.
            return entry._replace(inside=known, choice=entry.inside)
        return entry._replace(chain=known, choice=entry.chain)

    def _choice(self, modulus: int, *, inside: bool) -> Choice:
        scheduler = self._spec.scheduler
        if modulus == 1 or scheduler == "weight":
            return Choice("random", modulus, inside=inside)
        if scheduler == "rr":
            counter = zlib.crc32(self._farm.name.encode()) % _COUNTERS
            return Choice("rr", modulus, counter=counter, inside=inside)
        if scheduler == "symhash":
            return Choice("symhash", modulus, inside=inside)
        fields = self._spec.sched_param if self._spec.sched_param != "none" else _DEFAULT_FIELDS
        return Choice("hash", modulus, fields, inside=inside)


def targets(backends: Iterable[Backend]) -> list[Target]:
    """Return where backends are, each as often as its share of the connections asks for."""
    backends = list(backends)
    common = reduce(gcd, (each.weight for each in backends), 0)
    return [_target(each) for each in backends for _ in range(each.weight // common)]


def _target(backend: Backend) -> Target:
    return layout.target(backend.ip, backend.port)


def renumber(before: Sequence[_T], wanted: Iterable[_T]) -> list[_T]:
    """Return what is wanted in an order in which as little as possible has another position than before."""
    missing = Counter(wanted)
    order: list[_T | None] = []
    for each in before:
        stays = missing[each] > 0
        missing[each] -= stays
        order.append(each if stays else None)
    new = [each for each, count in missing.items() for _ in range(count)]
    holes = [position for position, each in enumerate(order) if each is None]
    for position in holes:
        if not new:
            break
        order[position] = new.pop(0)
    order.extend(new)
    # What is left of the holes is filled from the end.
    for position in holes:
        while order and order[-1] is None:
            order.pop()
        if position < len(order) and order[position] is None:
            order[position] = order.pop()
    return [each for each in order if each is not None]


def stable_numbers(before: Iterable[tuple[int, Target]], wanted: Iterable[Target]) -> dict[Target, int]:
    """Return a number for each endpoint: the one that it has, or the lowest that is free."""
    wanted = set(wanted)
    numbers = {to: number for number, to in before if to in wanted}
    taken = set(numbers.values())
    free = (number for number in itertools.count(1) if number not in taken)
    for to in sorted(wanted - numbers.keys()):
        numbers[to] = next(free)
    return numbers
