"""Read the table's elements: quickly, as there may be hundreds of thousands."""

import asyncio
import struct
from typing import Protocol

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.netfilter import netlink, readback
from kube_nftlb.netfilter.nftables import contents, messages
from kube_nftlb.netfilter.nftables.reading import KernelContents
from kube_nftlb.netfilter.readback import TableReader

_LENGTH = struct.Struct("=H")
_SET_COUNT = 20
"""NFTA_SET_COUNT, which kernels before 6.16 lack."""
_COUNT = struct.Struct(">I")
_KEY_OFFSET = 12
"""The headers of the element, its key and the key's value, of four bytes each."""


class ElementReader(TableReader, Protocol):
    """Reads the table."""

    async def has_chain(self, name: str) -> bool:
        """Return True if the table has a chain."""

    async def dump(self, name: str, key_bytes: int) -> list[tuple[bytes, bytes]]:
        """Return the elements of a map or set: keys, and data as attributes."""

    async def has_element(self, name: str, key: bytes) -> bool:
        """Return True if a map or set has this key."""

    async def count(self, name: str) -> int:
        """Return the number of elements of a map or set whose elements are all as large; 0 if there is none."""


class TableElements(KernelContents):
    """See ``ElementReader``. Use ``open``."""

    async def has_chain(self, name: str) -> bool:
        """See ``ElementReader``."""
        return bool(await self._netfilter.ask("inet", netlink.GET_CHAIN, messages.chain_names(TABLE, name)))

    async def dump(self, name: str, key_bytes: int) -> list[tuple[bytes, bytes]]:
        """See ``ElementReader``."""
        payload = readback.set_payload(TABLE, name)
        found: list[tuple[bytes, bytes]] = []
        for answer in await self._netfilter.ask("inet", netlink.GET_ELEMENTS, payload, dump=True):
            found.extend(_elements(netlink.find(answer, contents.ELEMENTS_LIST) or b"", key_bytes))
            # Hundreds of thousands of elements must not keep all others waiting.
            await asyncio.sleep(0)
        return found

    async def has_element(self, name: str, key: bytes) -> bool:
        """See ``ElementReader``."""
        payload = messages.element_list(TABLE, name, [messages.element(key)])
        return bool(await self._netfilter.ask("inet", netlink.GET_ELEMENTS, payload))

    async def count(self, name: str) -> int:
        """See ``ElementReader``."""
        payload = readback.set_payload(TABLE, name)
        (found,) = await self._netfilter.ask("inet", netlink.GET_SET, payload) or (b"",)
        if (count := netlink.find(found, _SET_COUNT)) is not None:
            number: int = _COUNT.unpack(count)[0]
            return number
        lists = await self._netfilter.ask("inet", netlink.GET_ELEMENTS, payload, dump=True)
        return sum(_listed(netlink.find(each, contents.ELEMENTS_LIST) or b"") for each in lists)


def _listed(data: bytes) -> int:
    """Return the number of elements in a list, by the length of the first."""
    return len(data) // (_LENGTH.unpack_from(data)[0] + 3 & ~3) if data else 0


def _elements(data: bytes, key_bytes: int) -> list[tuple[bytes, bytes]]:
    found = []
    position, end, after_key = 0, len(data), _KEY_OFFSET + key_bytes
    while position < end:
        (length,) = _LENGTH.unpack_from(data, position)
        if length < after_key:
            break
        key = data[position + _KEY_OFFSET : position + after_key]
        found.append((key, data[position + after_key : position + length]))
        position += (length + 3) & ~3
    return found


def key_bytes() -> dict[str, int]:
    """Return the length of the keys of each map and set, by name."""
    lengths = {}
    for family in layout.FAMILIES:
        for all_ports in (False, True):
            listener = layout.key_bytes(family, all_ports=all_ports)
            for map_ in (
                layout.SERVICES,
                layout.INSIDE,
                layout.OUTSIDE,
                layout.MASQUERADE,
                layout.NOT_FROM_NODE,
                layout.STICKY,
                layout.CHOICES,
                layout.MEMORIES,
            ):
                lengths[layout.name(map_, family, all_ports=all_ports)] = listener
            for map_ in (layout.ENDPOINTS, layout.STICKY_ENDPOINTS, layout.PICKS, layout.SHARES):
                lengths[layout.name(map_, family, all_ports=all_ports)] = listener + layout.NUMBER.size
        address = layout.ADDRESS_BYTES[family]
        lengths[layout.name(layout.SESSIONS, family)] = layout.NUMBER.size + address
        lengths[layout.name(layout.HAIRPIN, family)] = 2 * address
    return lengths
