"""What the rules are that a packet matched, as far as the names of their chains do not tell. No I/O but ``read``."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kube_nftlb.netfilter import netlink, readback
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.tracing.events import Event

_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_NUMGEN_TYPE, _HASH_TYPE = 3, 7
_SET_NAME: Final = {"lookup": 1, "dynset": 1}


class Chain(NamedTuple):
    """A chain of a table."""

    family: str
    table: str
    name: str


class Rule(NamedTuple):
    """What a rule consists of: its expressions, such as ``lookup persist-web``, ``numgen 0`` (in turn), ``hash 1``."""

    expressions: tuple[str, ...]

    def looks_up(self, name: str) -> bool:
        """Return True if it looks a set or map up."""
        return f"lookup {name}" in self.expressions

    def sets(self, prefix: str) -> list[str]:
        """Return the names of the sets and maps with a prefix that it looks up."""
        names = [each.partition(" ")[2] for each in self.expressions if each.startswith("lookup ")]
        return [name for name in names if name.startswith(prefix)]


Rules = dict[tuple[Chain, int], Rule]
"""Rules by their chain and handle."""


def chain_of(event: Event) -> Chain:
    """Return the chain of an event."""
    return Chain(event.family, event.table, event.chain)


async def read(netfilter: NetfilterSocket, chains: Iterable[Chain]) -> Rules:
    """Read all rules of chains. Raises KernelError."""
    rules: Rules = {}
    for chain in chains:
        payload = netlink.text(_RULE_TABLE, chain.table) + netlink.text(_RULE_CHAIN, chain.name)
        for answer in await netfilter.ask(chain.family, netlink.GET_RULES, payload, dump=True):
            # If the chain does not exist, the kernel returns every rule of the table.
            if netlink.name(netlink.find(answer, _RULE_CHAIN)) == chain.name:
                handle = int.from_bytes(netlink.find(answer, _RULE_HANDLE) or b"", "big")
                rules[chain, handle] = Rule(tuple(_expressions(netlink.find(answer, _RULE_EXPRESSIONS) or b"")))
    return rules


def _expressions(data: bytes) -> Iterator[str]:
    for _, expression in netlink.attributes(data):
        name = netlink.name(netlink.find(expression, readback.EXPRESSION_NAME))
        if name in _SET_NAME:
            yield f"{name} {netlink.name(netlink.find(expression, readback.EXPRESSION_DATA, _SET_NAME[name]))}"
        elif name in ("numgen", "hash"):
            kind = netlink.find(expression, readback.EXPRESSION_DATA, _NUMGEN_TYPE if name == "numgen" else _HASH_TYPE)
            yield f"{name} {int.from_bytes(kind or b'', 'big')}"
        else:
            yield name
