"""The agent's own table, ``inet kube-nftlb``: what nftlb has no way to say. The text is pure; ``OwnTable`` applies it.

It refuses new connections to a farm without a usable backend, where nftlb would let them run into a timeout; and it
holds two empty chains of the type nat, because established connections do not survive a moment in which the network
namespace has none, such as nftlb's start.
"""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb import errors
from kube_nftlb.agent.nft import Nft
from kube_nftlb.nftlb import objects

TABLE = "kube-nftlb"

PRIORITY = -160
"""Before nftlb's own chains (-150), which would give the connection a mark."""


class Refusal(NamedTuple):
    """A listener whose new connections are refused."""

    protocol: str
    ip: str
    port: int


def refusals(farm: objects.Farm) -> set[Refusal]:
    """The listeners of a farm, for when it has no usable backend."""
    return {Refusal(claim.protocol, claim.ip, claim.port) for claim in farm.claims()}


def table_text() -> str:
    """The commands that make the table, its chains and its empty maps."""
    return f"""
table inet {TABLE} {{
    map refused-ip {{ type inet_proto . ipv4_addr . inet_service : verdict; }}
    map refused-ip6 {{ type inet_proto . ipv6_addr . inet_service : verdict; }}
    chain refuse {{
        meta l4proto tcp reject with tcp reset
        reject with icmpx port-unreachable
    }}
    chain prerouting {{
        type filter hook prerouting priority {PRIORITY}; policy accept;
        ct state new meta l4proto . ip daddr . th dport vmap @refused-ip
        ct state new meta l4proto . ip6 daddr . th dport vmap @refused-ip6
    }}
    chain output {{
        type filter hook output priority {PRIORITY}; policy accept;
        ct state new meta l4proto . ip daddr . th dport vmap @refused-ip
        ct state new meta l4proto . ip6 daddr . th dport vmap @refused-ip6
    }}
    chain keep-nat-prerouting {{ type nat hook prerouting priority 100; policy accept; }}
    chain keep-nat-postrouting {{ type nat hook postrouting priority 200; policy accept; }}
}}
"""


def element_commands(verb: str, entries: Iterable[Refusal]) -> str:
    """The commands that ``add`` or ``delete`` refusals."""
    by_map: dict[str, list[str]] = {}
    for entry in sorted(entries):
        map_ = "refused-ip6" if ipaddress.ip_address(entry.ip).version == 6 else "refused-ip"
        key = f"{entry.protocol} . {entry.ip} . {entry.port}"
        by_map.setdefault(map_, []).append(f"{key} : goto refuse" if verb == "add" else key)
    return "\n".join(
        f"{verb} element inet {TABLE} {map_} {{ {', '.join(elements)} }}" for map_, elements in by_map.items()
    )


class OwnTable:
    """The table in the kernel, and what is known to be in it."""

    def __init__(self, nft: Nft) -> None:
        self._nft = nft
        self._entries: set[Refusal] = set()

    async def create(self) -> None:
        """Make the table anew, with the refusals that it is to have, in one transaction."""
        fresh = f"table inet {TABLE} {{}}\ndelete table inet {TABLE}\n{table_text()}"
        await self._nft.run(fresh + element_commands("add", self._entries))

    async def refuse(self, entries: set[Refusal]) -> None:
        """Refuse new connections to these listeners as well."""
        await self._change("add", entries - self._entries)
        self._entries |= entries

    async def admit(self, entries: set[Refusal]) -> None:
        """Refuse them no longer."""
        await self._change("delete", entries & self._entries)
        self._entries -= entries

    @property
    def entries(self) -> frozenset[Refusal]:
        """What is refused at present."""
        return frozenset(self._entries)

    async def _change(self, verb: str, entries: set[Refusal]) -> None:
        if not entries:
            return
        try:
            await self._nft.run(element_commands(verb, entries))
        except errors.KernelError:
            # Somebody has touched the table: the difference cannot be applied, the whole can.
            self._entries = self._entries | entries if verb == "add" else self._entries - entries
            await self.create()
