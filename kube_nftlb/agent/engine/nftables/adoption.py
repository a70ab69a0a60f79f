"""Read placements off what the kernel has, for an agent that starts. Pure: no I/O."""

from collections import Counter
from collections.abc import Iterator, Mapping

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.groups import Group, Members
from kube_nftlb.agent.engine.nftables.layout import NUMBER, TableFamily, Target
from kube_nftlb.agent.engine.nftables.placement import Entry, Placement, Sticky
from kube_nftlb.agent.table.layout import ALWAYS
from kube_nftlb.netfilter import netlink

_DATA, _USERDATA = 2, 6
_VALUE, _VERDICT, _VERDICT_CHAIN = 1, 2, 2

Dump = Mapping[str, Mapping[bytes, bytes]]
"""The elements of each map and set, by name: data as attributes, by key."""


def placements(dump: Dump) -> dict[str, Placement]:
    """Return the farms in the table, by name.

    What does not fit together is left out: the caller compares the elements of the result with those that there are.
    """
    found: dict[str, Placement] = {}
    for family in layout.FAMILIES:
        farms: dict[str, list[Entry]] = {}
        for all_ports in (False, True):
            for name, entry in _entries(dump, family, all_ports=all_ports):
                farms.setdefault(name, []).append(entry)
        numbered = _Numbered(dump, family)
        for name, entries in farms.items():
            found[name] = numbered.placement(name, entries)
    return found


def _entries(dump: Dump, family: TableFamily, *, all_ports: bool) -> Iterator[tuple[str, Entry]]:
    def of(map_: str) -> Mapping[bytes, bytes]:
        return dump.get(layout.name(map_, family, all_ports=all_ports), {})

    inside, outside, masquerade = of(layout.INSIDE), of(layout.OUTSIDE), of(layout.MASQUERADE)
    choices, memories = of(layout.CHOICES), of(layout.MEMORIES)
    not_from_node = of(layout.NOT_FROM_NODE)
    for key, data in of(layout.SERVICES).items():
        entry = Entry(
            key,
            0 if all_ports else layout.listener(family, key).port,
            _chain(data),
            _chain(inside.get(key, b"")),
            _chain(outside.get(key, b"")),
            _chain(masquerade.get(key, b"")),
            key not in not_from_node,
            _chain(choices.get(key, b"")),
            _chain(memories.get(key, b"")),
        )
        yield _comment(data), entry


class _Numbered:
    """The elements of a family that belong to a listener and a number."""

    def __init__(self, dump: Dump, family: TableFamily) -> None:
        self._dump = dump
        self._family = family
        self._sessions: dict[int, list[tuple[bytes, int]]] = {}
        for key, data in dump.get(layout.name(layout.SESSIONS, family), {}).items():
            farm = _number(key[: NUMBER.size])
            self._sessions.setdefault(farm, []).append((key[NUMBER.size :], _endpoint(_number(_value(data)))))
        self._sticky_endpoints = {all_ports: self._by_listener(all_ports=all_ports) for all_ports in (False, True)}

    def _by_listener(self, *, all_ports: bool) -> dict[bytes, list[tuple[int, bytes]]]:
        """Return the endpoints of each listener of a farm that remembers clients: their numbers, and elements."""
        found: dict[bytes, list[tuple[int, bytes]]] = {}
        elements = self._dump.get(layout.name(layout.STICKY_ENDPOINTS, self._family, all_ports=all_ports), {})
        for key, data in elements.items():
            number = _endpoint(_number(key[-NUMBER.size :]))
            found.setdefault(key[: -NUMBER.size], []).append((number, data))
        return found

    def placement(self, name: str, entries: list[Entry]) -> Placement:
        entries.sort()
        first = entries[0]
        farm = self._of(layout.STICKY, first).get(first.key)
        groups = tuple(self._groups(first))
        # The first group has the numbers that endpoints have without groups.
        members = self._members(first) if not groups else Members()
        picks = (members.picks, members.inside_picks)
        sticky = self._sticky(_number(_value(farm)), first, picks) if farm is not None else None
        placement = Placement(
            name,
            self._family,
            tuple(entries),
            members.endpoints,
            members.inside,
            sticky=sticky,
            groups=groups,
        )
        return placement._replace(hairpin=self._hairpin(placement))

    def _hairpin(self, placement: Placement) -> tuple[bytes, ...]:
        """Return the endpoints of a farm that are masqueraded when they are their own clients."""
        if {entry.masquerade for entry in placement.entries} <= {"", ALWAYS}:
            return ()
        elements = self._dump.get(f"{layout.HAIRPIN}-{self._family}", {})
        endpoints = {to.ip for to in placement.reachable}
        return tuple(sorted(ip for ip in (key[: len(key) // 2] for key in elements) if ip in endpoints))

    def _groups(self, entry: Entry) -> Iterator[Group]:
        """Yield the groups of a listener."""
        drawn = Counter(layout.group_of(_number(_value(data))) for data in self._counted(layout.SHARES, entry, 0))
        for number, share in drawn.items():
            yield Group(number, share, self._members(entry, number))

    def _members(self, entry: Entry, group: int = 0) -> Members:
        """Return the endpoints among which connections are scheduled, of a group or of all."""
        first, of_node = layout.first_number(group), layout.first_number(group, inside=True)
        return Members(
            tuple(self._endpoints(entry, first)),
            tuple(self._endpoints(entry, of_node)),
            tuple(self._picks(entry, first)),
            tuple(self._picks(entry, of_node)),
        )

    def _of(self, map_: str, entry: Entry) -> Mapping[bytes, bytes]:
        return self._dump.get(layout.name(map_, self._family, all_ports=entry.all_ports), {})

    def _endpoints(self, entry: Entry, first: int) -> Iterator[Target]:
        for data in self._counted(layout.ENDPOINTS, entry, first):
            yield layout.shared_target(layout.read_endpoint(self._family, _value(data)))

    def _counted(self, map_: str, entry: Entry, number: int) -> Iterator[bytes]:
        elements = self._of(map_, entry)
        while (data := elements.get(entry.key + NUMBER.pack(number))) is not None:
            yield data
            number += 1

    def _picks(self, entry: Entry, first: int) -> Iterator[int]:
        return (_endpoint(_number(_value(data))) for data in self._counted(layout.PICKS, entry, first))

    def _sticky(self, farm: int, entry: Entry, picks: tuple[tuple[int, ...], tuple[int, ...]]) -> Sticky:
        endpoints = self._sticky_endpoints[entry.all_ports].get(entry.key, ())
        return Sticky(
            farm,
            tuple(sorted((number, layout.read_endpoint(self._family, _value(data))) for number, data in endpoints)),
            *picks,
            tuple(sorted(self._sessions.get(farm, ()))),
        )


def _value(data: bytes) -> bytes:
    return netlink.find(data, _DATA, _VALUE) or b""


def _number(value: bytes) -> int:
    number: int = NUMBER.unpack(value)[0]
    return number


def _endpoint(number: int) -> int:
    """Return the number of an endpoint within its farm."""
    return number & layout.ENDPOINT_MASK


def _chain(data: bytes) -> str:
    return netlink.name(netlink.find(data, _DATA, _VERDICT, _VERDICT_CHAIN))


def _comment(data: bytes) -> str:
    return netlink.name((netlink.find(data, _USERDATA) or b"\0\0")[2:])
