"""The elements of a placement, and the chains that they lead to. Pure: no I/O."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import NUMBER, TABLE, Target
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
        yield from _endpoints(placement, entry, placement.endpoints, 0)
        yield from _endpoints(placement, entry, placement.inside, layout.INSIDE_FIRST)
        if placement.sticky is not None:
            yield from _sticky(placement, entry, placement.sticky)
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

    yield of(layout.SERVICES, entry.chain, placement.name, and_back=bool(entry.memory or entry.inside))
    if entry.inside:
        yield of(layout.INSIDE, entry.inside)
        yield of(layout.OUTSIDE, entry.outside)
    if entry.choice:
        yield of(layout.CHOICES, entry.choice, and_back=True)
        yield of(layout.MEMORIES, entry.memory)
    if entry.masquerade:
        yield of(layout.MASQUERADE, entry.masquerade)
    if not entry.from_node:
        yield Element(layout.name(layout.NOT_FROM_NODE, placement.family, all_ports=entry.all_ports), entry.key)


def _endpoints(placement: Placement, entry: Entry, endpoints: tuple[Target, ...], first: int) -> Iterator[Element]:
    name = layout.name(layout.ENDPOINTS, placement.family, all_ports=entry.all_ports)
    for number, to in enumerate(endpoints, first):
        yield Element(name, entry.key + NUMBER.pack(number), layout.endpoint_value(placement.family, to, entry.port))


def _sticky(placement: Placement, entry: Entry, sticky: Sticky) -> Iterator[Element]:
    def name(map_: str) -> str:
        return layout.name(map_, placement.family, all_ports=entry.all_ports)

    yield Element(name(layout.STICKY), entry.key, messages.value(NUMBER.pack(sticky.farm)))
    for number, to in sticky.endpoints:
        key = entry.key + NUMBER.pack(sticky.farm | number)
        yield Element(name(layout.STICKY_ENDPOINTS), key, layout.endpoint_value(placement.family, to, entry.port))
    for first, picks in ((0, sticky.picks), (layout.INSIDE_FIRST, sticky.inside_picks)):
        for position, number in enumerate(picks, first):
            picked = messages.value(NUMBER.pack(sticky.farm | number))
            yield Element(name(layout.PICKS), entry.key + NUMBER.pack(position), picked)


def chains(placement: Placement) -> set[str]:
    """Return the names of the chains that the elements of a farm lead to, but for those that are always there."""
    names = {
        chain
        for entry in placement.entries
        for chain in (entry.chain, entry.inside, entry.outside, entry.choice, entry.memory)
    }
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
