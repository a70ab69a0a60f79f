"""The expressions of the rules that a packet matched, for what the names of their chains do not tell."""

import socket
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

from kube_nftlb.netfilter import netlink, notifications, readback
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.tracing.events import Event

_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_RULE_REMOVED: Final = 10 << 8 | 8  # NFNL_SUBSYS_NFTABLES, NFT_MSG_DELRULE
_NUMGEN_TYPE, _HASH_TYPE = 3, 7
_SET_NAME: Final = {"lookup": 1, "dynset": 1}


class Chain(NamedTuple):
    """A chain of a table."""

    family: str
    table: str
    name: str


class Rule(NamedTuple):
    """A rule as its expressions, such as ``lookup persist-web``, ``numgen 0`` (in turn), ``hash 1``."""

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
                rules.update([_rule(chain.family, answer)])
    return rules


class RemovedRules:
    """The rules that are removed meanwhile: a chain may be written anew before anyone reads what a packet matched.

    Use ``RemovedRules.open``.
    """

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    @classmethod
    def open(cls) -> Self:
        """Note the rules that are removed from now on in this network namespace. Raises OSError."""
        return cls(notifications.subscribed(_RULE_REMOVED))

    def read(self) -> Rules:
        """Return those since the last call. If there were too many for the kernel to tell, some are missing."""
        told = (data for data in notifications.waiting(self._socket) if data is not None)
        messages = (message for data in told for message in netlink.messages(data, _RULE_REMOVED))
        return dict(_rule(netlink.FAMILY_NAMES.get(family, ""), rule) for family, rule in messages)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _rule(family: str, attributes: bytes) -> tuple[tuple[Chain, int], Rule]:
    told = dict(netlink.attributes(attributes))
    chain = Chain(family, netlink.name(told.get(_RULE_TABLE)), netlink.name(told.get(_RULE_CHAIN)))
    handle = int.from_bytes(told.get(_RULE_HANDLE, b""), "big")
    return (chain, handle), Rule(tuple(_expressions(told.get(_RULE_EXPRESSIONS, b""))))


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
