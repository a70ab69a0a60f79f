"""The desired contents of the table for a farm. Pure: no I/O.

Endpoints keep their numbers while they are there, so that one that comes or goes changes an element or two per
listener; where that cannot be, because all nodes must agree on a hash, they have the order of their addresses.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kube_nftlb.agent.endpoints import shares
from kube_nftlb.agent.endpoints.selection import ANSWERS
from kube_nftlb.agent.engine.nftables import layout, timeouts
from kube_nftlb.agent.engine.nftables.affinity import Known, Memory, Pick
from kube_nftlb.agent.engine.nftables.choice import Choice
from kube_nftlb.agent.engine.nftables.groups import DROPPED, NONE, REFUSED, Draw, Group, Members
from kube_nftlb.agent.engine.nftables.layout import TableFamily, Target
from kube_nftlb.agent.engine.nftables.numbering import renumber, stable_numbers
from kube_nftlb.agent.engine.nftables.scheduling import Schedule
from kube_nftlb.agent.model import NodeFarm, NodeGroup
from kube_nftlb.agent.table.layout import ALWAYS
from kube_nftlb.agent.table.traffic_policy import hairpins, masqueraded
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import FarmSpec

_COUNTERS = 16
"""Farms with as many endpoints share this many counters of the scheduler rr.

With a single one, clients that connect to two farms by turns would always get the same endpoints of each.
"""
_DEFAULT_FIELDS = "srcip"
_FAR = 1024
"""An agent that starts does not know which numbers endpoints had that have just gone: hardly so many."""
_KINDS = {"rr": "rr", "weight": "random", "hash": "hash", "symhash": "symhash"}
"""The kinds of ``Choice``, by scheduler."""


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
    """The farm's number, its endpoints by theirs, and the numbers of those that may be chosen if it has no groups."""

    farm: int
    endpoints: tuple[tuple[int, Target], ...]
    picks: tuple[int, ...] = ()
    inside_picks: tuple[int, ...] = ()
    sessions: tuple[tuple[bytes, int], ...] = ()
    """Clients that always get the same endpoint."""
    last: int = 0
    """The number that an endpoint was given last; 0 if that is not known."""


class Placement(NamedTuple):
    """A farm in the table. ``endpoints`` are by number, and ``inside`` those for clients of this node."""

    name: str
    family: TableFamily
    entries: tuple[Entry, ...]
    endpoints: tuple[Target, ...] = ()
    inside: tuple[Target, ...] = ()
    hairpin: tuple[bytes, ...] = ()
    sticky: Sticky | None = None
    groups: tuple[Group, ...] = ()
    """If there are any, endpoints are in these alone."""

    @property
    def members(self) -> Members:
        """The endpoints without groups."""
        picks = (self.sticky.picks, self.sticky.inside_picks) if self.sticky is not None else ((), ())
        return Members(self.endpoints, self.inside, *picks)

    @property
    def lists(self) -> tuple[Members, ...]:
        """The endpoints of each group; of a farm without groups, those of the farm."""
        return (self.members, *(each.members for each in self.groups))

    @property
    def reachable(self) -> set[Target]:
        """All endpoints, those alone to which clients that are remembered go as well."""
        sticky = () if self.sticky is None else (to for _, to in self.sticky.endpoints)
        return {*sticky, *(to for each in self.lists for to in (*each.endpoints, *each.inside))}


def remembers(spec: FarmSpec) -> bool:
    """Return True if a farm remembers its clients: one that is off or down forgets them."""
    return spec.persistence != "none" and spec.state in ANSWERS


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
        self._sticky = remembers(farm.spec)
        self._hashes = farm.spec.scheduler in ("hash", "symhash")
        self._numbers: dict[Target, int] = {}
        """The numbers of all endpoints, if clients are remembered."""

    def placement(self) -> Placement:
        lists = [self._lists(each) for each in self._farm.groups or (self._farm,)]
        sticky = self._remembered(lists) if self._sticky else None
        groups: tuple[Group, ...] = ()
        members = Members()
        if self._farm.groups and not self._farm.refuses:
            groups = tuple(self._groups(lists))
            main, inside = self._draw(groups, inside=False), self._draw(groups, inside=True)
        else:
            members = self._members(*lists[0], self._before.members if self._before else members)
            main, inside = self._chain(members.size, inside=False), self._chain(members.inside_size, inside=True)
        if sticky is not None:
            sticky = sticky._replace(picks=members.picks, inside_picks=members.inside_picks)
        entries = tuple(sorted(self._entries(main, inside)))
        endpoints = (members.endpoints, members.inside)
        return Placement(self._farm.name, self._family, entries, *endpoints, self._hairpin(), sticky, groups)

    def _lists(self, some: NodeFarm | NodeGroup) -> tuple[list[Backend], list[Backend]]:
        """Return the backends that may be chosen by anybody, and those for clients of this node where these differ."""
        if self._farm.refuses:
            return [], []
        main = [each.backend for each in some.endpoints if each.schedulable]
        if self._spec.traffic_policy == "Cluster":
            return main, []
        local, cluster = some.candidates.local, some.candidates.cluster
        if not local:
            return [], list(cluster) if self._farm.has_outside else []
        return main, list(cluster) if self._farm.has_outside and cluster != local else []

    def _members(self, main: Sequence[Backend], inside: Sequence[Backend], before: Members) -> Members:
        if self._sticky:
            picks = [self._numbers[to] for to in targets(main)]
            inside_picks = [self._numbers[to] for to in targets(inside)]
            if not self._hashes:
                picks = renumber(before.picks, picks)
                inside_picks = renumber(before.inside_picks, inside_picks)
            return Members(picks=tuple(picks), inside_picks=tuple(inside_picks))
        return Members(
            tuple(self._numbered(targets(main), before.endpoints)),
            tuple(self._numbered(targets(inside), before.inside)),
        )

    def _numbered(self, wanted: list[Target], before: Sequence[Target]) -> list[Target]:
        return sorted(wanted) if self._hashes else renumber(before, wanted)

    def _groups(self, lists: Sequence[tuple[Sequence[Backend], Sequence[Backend]]]) -> Iterator[Group]:
        had = {each.number: each.members for each in self._before.groups} if self._before else {}
        of_node = any(inside for _, inside in lists)
        parts = shares.of_weights([each.weight for each in self._farm.groups])
        for group, share, (main, inside) in zip(self._farm.groups, parts, lists, strict=True):
            members = self._members(main, inside or main if of_node else (), had.get(group.number, Members()))
            yield Group(group.number, share, members)

    def _draw(self, groups: Sequence[Group], *, inside: bool) -> str:
        """Return the name of the chain that draws a group; none drops connections if nobody serves any."""
        sizes = {each.number: each.members.inside_size if inside else each.members.size for each in groups}
        if not any(sizes.values()):
            return layout.DROP
        to = [NONE] * (max(sizes) + 1)
        for group in self._farm.groups:
            number, size = group.number, sizes[group.number]
            choice = self._choice(size, f"{self._farm.name}/{number}", inside=inside)
            # To refuse a packet of UDP would be an error for all that its socket does.
            nobody = REFUSED if group.refuses and self._spec.protocol != "UDP" else DROPPED
            to[number] = f"{choice.counter}_{size}" if choice.kind == "rr" else str(size) if size else nobody
        within = Choice(_KINDS[self._spec.scheduler], 1, self._fields).way
        draw = f"hash-{_DEFAULT_FIELDS}" if self._sticky else within if self._hashes else "random"
        numbers = sum(each.share for each in groups)
        place = (self._family, self._all_ports, self._sticky)
        return Draw(*place, draw, numbers, within, tuple(to), inside).name

    def _remembered(self, lists: Iterable[tuple[Sequence[Backend], Sequence[Backend]]]) -> Sticky:
        before = self._before.sticky if self._before and self._before.sticky else Sticky(self._number, ())
        reachable = {each.backend.name: _target(each.backend) for each in self._farm.endpoints}
        reachable |= {each.name: _target(each) for _, inside in lists for each in inside}
        inside = {to for name, to in reachable.items() if name in self._farm.inside}
        # Clients that have got one from anywhere are not to go on to it: only those of this node may.
        chosen = self._chosen_by_anybody()
        had = [(number, to) for number, to in before.endpoints if to not in inside or number not in chosen]
        start = _last(before)
        numbers, last = stable_numbers(had, reachable.values(), start, layout.GROUP_MARK)
        self._numbers = numbers
        sessions = sorted(
            (layout.packed(client), numbers[reachable[backend]])
            for client, backend in self._farm.fixed_sessions
            if backend in reachable
        )
        return Sticky(
            before.farm,
            tuple(sorted((number, to) for to, number in numbers.items())),
            sessions=tuple(sessions),
            last=last if last != start else before.last,
        )

    def _chosen_by_anybody(self) -> set[int]:
        """Return the numbers of the endpoints among which connections from anywhere were scheduled."""
        if self._before is None:
            return set()
        return {number for each in self._before.lists for number in each.picks}

    def _hairpin(self) -> tuple[bytes, ...]:
        return tuple(layout.packed(ip) for ip in hairpins(self._farm)) if not self._farm.refuses else ()

    def _entries(self, main: str, inside: str) -> Iterator[Entry]:
        """Yield the listeners, by the chains for all clients, and for those of this node if these get others."""
        masquerade = dict(masqueraded(self._farm))
        for address in self._farm.addresses:
            for listener in address.listeners():
                key = layout.listener_key(listener)
                entry = Entry(key, listener.port, layout.REFUSE, from_node=self._spec.intra_connect)
                if self._farm.refuses:
                    yield self._remembering(entry)
                    continue
                entry = entry._replace(
                    chain=main,
                    masquerade=ALWAYS if self._spec.mode == "snat" else masquerade.get(listener, ""),
                )
                if address.type != "ClusterIP" and inside:
                    entry = entry._replace(
                        chain=layout.name(layout.BY_CLIENT, self._family),
                        inside=inside,
                        outside=entry.chain,
                    )
                yield self._with_memory(entry) if self._sticky else entry

    def _chain(self, endpoints: int, *, inside: bool) -> str:
        """Return the name of the chain that chooses among a number of endpoints; none drops connections."""
        if not endpoints:
            return layout.DROP
        choice = self._choice(endpoints, self._farm.name, inside=inside)
        kind = Pick if self._sticky else Schedule
        return kind(self._family, self._all_ports, choice).name

    def _with_memory(self, entry: Entry) -> Entry:
        """Return an entry that remembers clients, from one whose chains choose for all of them."""
        if entry.chain == layout.DROP:
            return self._remembering(entry)
        memory = self._memory(entry)
        known = Known(*memory, has_sessions=bool(self._spec.sessions)).name
        entry = entry._replace(memory=memory.name)
        if entry.inside and entry.outside == layout.DROP:
            # Who is dropped is not to be found among the clients that are remembered.
            return entry._replace(inside=known, choice=entry.inside)
        return entry._replace(chain=known, choice=entry.chain)

    def _remembering(self, entry: Entry) -> Entry:
        """Return an entry that serves nobody; it uses the map of clients, which goes with the last chain that does."""
        return entry._replace(memory=self._memory(entry).name) if self._numbers else entry

    def _memory(self, entry: Entry) -> Memory:
        timeout_s, namespace = timeouts.rounded(self._spec.persist_ttl), self._farm.key[0]
        return Memory(self._family, entry.all_ports, timeout_s, namespace)

    def _choice(self, modulus: int, name: str, *, inside: bool) -> Choice:
        scheduler = self._spec.scheduler
        if modulus <= 1 or scheduler == "weight":
            return Choice("random", modulus, inside=inside)
        if scheduler == "rr":
            counter = zlib.crc32(name.encode()) % _COUNTERS
            return Choice("rr", modulus, counter=counter, inside=inside)
        if scheduler == "symhash":
            return Choice("symhash", modulus, inside=inside)
        return Choice("hash", modulus, self._fields, inside=inside)

    @property
    def _fields(self) -> str:
        return self._spec.sched_param if self._spec.sched_param != "none" else _DEFAULT_FIELDS

    @property
    def _all_ports(self) -> bool:
        return self._spec.protocol == "All"


def _last(sticky: Sticky) -> int:
    """Return the number that was given last: if that is not known, one that is far from any in use."""
    if sticky.last or not sticky.endpoints:
        return sticky.last
    return (max(number for number, _ in sticky.endpoints) + _FAR) % layout.GROUP_MARK


def targets(backends: Iterable[Backend]) -> list[Target]:
    """Return where backends are, each as often as its share of the connections asks for."""
    backends = list(backends)
    numbers = shares.exact_shares([each.weight for each in backends])
    return [_target(each) for each, number in zip(backends, numbers, strict=True) for _ in range(number)]


def _target(backend: Backend) -> Target:
    return layout.target(backend.ip, backend.port)
