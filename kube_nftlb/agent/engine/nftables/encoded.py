"""The elements of farms as they are sent, kept so that a table that somebody deletes is written anew at once.

To make them takes longer than all else together, and clients wait meanwhile. No I/O.
"""

from collections.abc import Iterable, Iterator

from kube_nftlb.agent.engine.nftables.elements import elements
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.agent.engine.nftables.placement import Placement
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.messages import Message

_BYTES_MAX = 16 << 20
"""What is kept at most: the elements of 10,000 farms of ten endpoints. Those of the others are made when needed."""
_PART_BYTES = 8 << 10
"""The least bytes of a part, unless it is the last: a message has room for several."""

Encoded = dict[str, tuple[bytes, ...]]
"""The elements of a farm by map, as attributes of a list, in parts."""


class EncodedFarms:
    """Keeps the elements of farms that do not change."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: dict[str, Encoded] = {}
        self._size = 0

    def forget(self, name: str) -> None:
        """Forget a farm that changes."""
        if (known := self._known.pop(name, None)) is not None:
            self._size -= _size(known)

    def keep(self, placement: Placement) -> None:
        """Keep the elements of a farm, if there is room."""
        if self._size < self._bytes_max and placement.name not in self._known:
            self._known[placement.name] = new = encoded(placement)
            self._size += _size(new)

    def of(self, placement: Placement) -> Encoded:
        """Return the elements of a farm, as it is now."""
        return self._known.get(placement.name) or encoded(placement)


def encoded(placement: Placement) -> Encoded:
    """Return all elements of a farm, except those that it shares with others."""
    by_map: dict[str, list[bytes]] = {}
    for each in {(each.map, each.key): each for each in elements(placement)}.values():
        by_map.setdefault(each.map, []).append(messages.element(each.key, each.data))
    return {name: tuple(_parts(some)) for name, some in by_map.items()}


def added(farms: Iterable[Encoded]) -> Iterator[Message]:
    """Yield what adds the elements of farms."""
    by_map: dict[str, list[bytes]] = {}
    for farm in farms:
        for name, parts in farm.items():
            by_map.setdefault(name, []).extend(parts)
    for name, of_all in by_map.items():
        yield from messages.new_parts(TABLE, name, of_all)


def _parts(some: Iterable[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for each in some:
        part.append(each)
        size += len(each)
        if size >= _PART_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def _size(farm: Encoded) -> int:
    return sum(len(part) for parts in farm.values() for part in parts)
