"""Chains of other programs: which there are, where they jump to, and how many rules they have.

Read over netlink: rules of iptables may have parts that libnftables does not know, and it reads all of them.
"""

from typing import NamedTuple, Protocol, Self

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.readback import EXPRESSION_DATA, EXPRESSION_NAME

# The types of attributes, as linux/netfilter/nf_tables.h has them.
_TABLE_NAME = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK = 1, 3, 4
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_IMMEDIATE_DATA, _DATA_VERDICT, _VERDICT_CHAIN = 2, 2, 2


class ForeignChain(NamedTuple):
    """A chain; ``base`` if it is hooked in."""

    name: str
    base: bool


class Jump(NamedTuple):
    """A rule that jumps, or goes, to another chain."""

    chain: str
    handle: int
    target: str


class ChainReader(Protocol):
    """Reads tables of the families ip, ip6 and inet in this network namespace."""

    async def has_table(self, family: str, table: str) -> bool:
        """Return True if there is such a table."""

    async def has_rules(self, family: str, table: str, chain: str) -> bool:
        """Return True if there is such a chain, and it has a rule."""

    async def chains(self, family: str, table: str) -> list[ForeignChain]:
        """Return the chains of a table; none if it does not exist."""

    async def jumps(self, family: str, table: str) -> list[Jump]:
        """Return the rules of a table that lead to other chains."""


class KernelChains:
    """Reads chains. Use ``open``. All raise KernelError if the kernel does not tell."""

    def __init__(self, nftables: NetfilterSocket) -> None:
        self._nftables = nftables

    @classmethod
    def open(cls) -> Self:
        """Open the socket. Raises OSError."""
        return cls(NetfilterSocket.open())

    def close(self) -> None:
        """Close the socket."""
        self._nftables.close()

    async def has_table(self, family: str, table: str) -> bool:
        """See ``ChainReader``."""
        return bool(await self._nftables.ask(family, netlink.GET_TABLE, netlink.text(_TABLE_NAME, table)))

    async def has_rules(self, family: str, table: str, chain: str) -> bool:
        """See ``ChainReader``."""
        names = netlink.text(_CHAIN_TABLE, table) + netlink.text(_CHAIN_NAME, chain)
        if not await self._nftables.ask(family, netlink.GET_CHAIN, names):
            return False
        of = netlink.text(_RULE_TABLE, table) + netlink.text(_RULE_CHAIN, chain)
        return bool(await self._nftables.ask(family, netlink.GET_RULES, of, dump=True))

    async def chains(self, family: str, table: str) -> list[ForeignChain]:
        """See ``ChainReader``."""
        return [
            ForeignChain(netlink.name(netlink.find(chain, _CHAIN_NAME)), netlink.find(chain, _CHAIN_HOOK) is not None)
            for chain in await self._nftables.ask(family, netlink.GET_CHAIN, dump=True)
            if netlink.name(netlink.find(chain, _CHAIN_TABLE)) == table
        ]

    async def jumps(self, family: str, table: str) -> list[Jump]:
        """See ``ChainReader``."""
        rules = await self._nftables.ask(family, netlink.GET_RULES, netlink.text(_RULE_TABLE, table), dump=True)
        return [
            Jump(
                netlink.name(netlink.find(rule, _RULE_CHAIN)),
                int.from_bytes(netlink.find(rule, _RULE_HANDLE) or b"", "big"),
                target,
            )
            for rule in rules
            # If the table does not exist, the kernel returns the rules of all.
            if netlink.name(netlink.find(rule, _RULE_TABLE)) == table and (target := _target(rule))
        ]


def _target(rule: bytes) -> str:
    """Return the chain that a rule leads to; empty if it leads to none."""
    for _, expression in netlink.attributes(netlink.find(rule, _RULE_EXPRESSIONS) or b""):
        if netlink.name(netlink.find(expression, EXPRESSION_NAME)) == "immediate":
            data = netlink.find(expression, EXPRESSION_DATA, _IMMEDIATE_DATA, _DATA_VERDICT, _VERDICT_CHAIN)
            if data is not None:
                return netlink.name(data)
    return ""
