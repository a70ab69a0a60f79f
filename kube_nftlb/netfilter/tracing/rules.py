"""The expressions of the rules that a packet matched, for what the names of their chains do not tell."""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from kube_nftlb.netfilter import netlink, notifications, rules
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.netlink_socket import NetlinkSocket
from kube_nftlb.netfilter.rules import KernelRule
from kube_nftlb.netfilter.tracing.events import Event

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
    return dict(
        [
            _rule(chain.family, rule)
            for chain in chains
            async for rule in rules.read(netfilter, chain.family, chain.table, chain.name)
        ]
    )


class RemovedRules:
    """The rules that are removed meanwhile: a chain may be written anew before anyone reads what a packet matched.

    Use ``RemovedRules.open``.
    """

    def __init__(self, opened: NetlinkSocket) -> None:
        self._socket = opened

    @classmethod
    def open(cls) -> Self:
        """Note the rules that are removed from now on in this network namespace. Raises OSError."""
        return cls(notifications.subscribed(_RULE_REMOVED))

    def read(self) -> Rules:
        """Return those since the last call. If there were too many for the kernel to tell, some are missing."""
        events = (data for data in self._socket.waiting() if data is not None)
        removed = (message for data in events for message in netlink.messages(data, _RULE_REMOVED))
        return dict(_rule(netlink.FAMILY_NAMES.get(family, ""), KernelRule.parse(rule)) for family, rule in removed)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _rule(family: str, rule: KernelRule) -> tuple[tuple[Chain, int], Rule]:
    words = tuple(_word(name, data) for name, data in rule.named)
    return (Chain(family, rule.table, rule.chain), rule.handle), Rule(words)


def _word(name: str, data: bytes) -> str:
    if name in _SET_NAME:
        return f"{name} {netlink.name(netlink.find(data, _SET_NAME[name]))}"
    if name in ("numgen", "hash"):
        kind = netlink.find(data, _NUMGEN_TYPE if name == "numgen" else _HASH_TYPE)
        return f"{name} {int.from_bytes(kind or b'', 'big')}"
    return name
