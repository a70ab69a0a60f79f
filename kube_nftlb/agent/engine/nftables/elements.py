"""The elements of a placement, and the chains that they lead to. Pure: no I/O."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.groups import Draw, Members
from kube_nftlb.agent.engine.nftables.layout import NUMBER, TABLE
from kube_nftlb.agent.engine.nftables.placement import Entry, Placement, Sticky
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.messages import Message


class Element(NamedTuple):
    """An element: its map or set, its key, and its data as attributes (see ``messages``), which are empty in a set."""

    map: str
    key: bytes
    data: bytes = b""


def elements(placement: Placement) -> Iterator[Element]:
    """Yield all elements of a farm, except those that it shares with others (``shared``)."""
    for entry in placement.entries:
        yield from _entry(placement, entry)
        yield from _members(placement, entry, placement.members)
        if placement.sticky is not None:
            yield from _sticky(placement, entry, placement.sticky)
        yield from _groups(placement, entry)
    if placement.sticky is not None:
        for client, number in placement.sticky.sessions:
            key = NUMBER.pack(placement.sticky.farm) + client
            to = NUMBER.pack(placement.sticky.farm | number)
            yield Element(f"{layout.SESSIONS}-{placement.family}", key, messages.value(to))


def shared(placement: Placement) -> Iterator[Element]:
    """Yield the elements that other farms may have too."""
    for ip in placement.hairpin:
        yield Element(f"{layout.HAIRPIN}-{placement.family}", ip + ip)


def _entry(placement: Placement, entry: Entry) -> Iterator[Element]:
    def of(map_: str, chain: str, comment: str = "", *, and_back: bool = False) -> Element:
        name = layout.name(map_, placement.family, all_ports=entry.all_ports)
        return Element(name, entry.key, messages.leads_to(chain, comment, and_back=and_back))

    yield of(layout.SERVICES, entry.chain, placement.name, and_back=bool(entry.choice or entry.inside))
    if entry.inside:
        yield of(layout.INSIDE, entry.inside)
        yield of(layout.OUTSIDE, entry.outside)
    if entry.choice:
        yield of(layout.CHOICES, entry.choice, and_back=True)
    if entry.memory:
        yield of(layout.MEMORIES, entry.memory)
    if entry.masquerade:
        yield of(layout.MASQUERADE, entry.masquerade)
    if not entry.from_node:
        yield Element(layout.name(layout.NOT_FROM_NODE, placement.family, all_ports=entry.all_ports), entry.key)


def _members(placement: Placement, entry: Entry, members: Members, group: int = 0) -> Iterator[Element]:
    """Yield the elements of the endpoints among which connections are scheduled, of a group or of all."""
    endpoints = layout.name(layout.ENDPOINTS, placement.family, all_ports=entry.all_ports)
    picks = layout.name(layout.PICKS, placement.family, all_ports=entry.all_ports)
    farm = placement.sticky.farm if placement.sticky is not None else 0
    of_node = layout.first_number(group, inside=True)
    for first, targets in ((layout.first_number(group), members.endpoints), (of_node, members.inside)):
        for number, to in enumerate(targets, first):
            value = layout.endpoint_value(placement.family, to, entry.port)
            yield Element(endpoints, entry.key + NUMBER.pack(number), value)
    for first, numbers in ((layout.first_number(group), members.picks), (of_node, members.inside_picks)):
        for position, number in enumerate(numbers, first):
            yield Element(picks, entry.key + NUMBER.pack(position), messages.value(NUMBER.pack(farm | number)))


def _sticky(placement: Placement, entry: Entry, sticky: Sticky) -> Iterator[Element]:
    def name(map_: str) -> str:
        return layout.name(map_, placement.family, all_ports=entry.all_ports)

    yield Element(name(layout.STICKY), entry.key, messages.value(NUMBER.pack(sticky.farm)))
    for number, to in sticky.endpoints:
        key = entry.key + NUMBER.pack(sticky.farm | number)
        yield Element(name(layout.STICKY_ENDPOINTS), key, layout.endpoint_value(placement.family, to, entry.port))


def _groups(placement: Placement, entry: Entry) -> Iterator[Element]:
    shares = layout.name(layout.SHARES, placement.family, all_ports=entry.all_ports)
    farm, first = placement.sticky.farm if placement.sticky is not None else layout.NUMBER_MARK, 0
    for group in placement.groups:
        yield from _members(placement, entry, group.members, group.number)
        code = messages.value(NUMBER.pack(layout.group_code(farm, group.number)))
        for number in range(first, first + group.share):
            yield Element(shares, entry.key + NUMBER.pack(number), code)
        first += group.share


def chains(placement: Placement) -> set[str]:
    """Return the names of the chains that the elements of a farm lead to, but for those that are always there."""
    names = {
        chain
        for entry in placement.entries
        for chain in (entry.chain, entry.inside, entry.outside, entry.choice, entry.memory)
    }
    if placement.groups:
        names |= {chain for name in names if (draw := Draw.parse(name)) for chain in draw.chains.values()}
    return {
        name for name in names if name not in (layout.DROP, layout.REFUSE) and not name.startswith(layout.BY_CLIENT)
    }


def deleted(gone: Iterable[Element]) -> Iterator[Message]:
    """Yield what deletes elements."""
    for name, some in _by_map(gone).items():
        yield from messages.delete_elements(TABLE, name, (each.key for each in some))


def added(fresh: Iterable[Element]) -> Iterator[Message]:
    """Yield what adds elements."""
    for name, some in _by_map(fresh).items():
        yield from messages.new_elements(TABLE, name, ((each.key, each.data) for each in some))


def _by_map(found: Iterable[Element]) -> dict[str, list[Element]]:
    by_map: dict[str, list[Element]] = {}
    for each in found:
        by_map.setdefault(each.map, []).append(each)
    return by_map
