"""Chains of other programs: which there are, where they jump to, and how many rules they have.

Read over netlink: rules of iptables may have parts that libnftables does not know, and it reads all of them.
"""

from contextlib import aclosing
from typing import NamedTuple, Protocol

from kube_nftlb.netfilter import destinations, netlink, readback
from kube_nftlb.netfilter.destinations import Destination
from kube_nftlb.netfilter.netlink import NetfilterClient
from kube_nftlb.netfilter.readback import EXPRESSION_DATA, EXPRESSION_NAME

# The types of attributes, as linux/netfilter/nf_tables.h has them.
_TABLE_NAME, _TABLE_HANDLE = 1, 4
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

    async def table_handle(self, family: str, table: str) -> int | None:
        """Return the handle of a table, which one that is made anew does not have; None if there is no such table."""

    async def first_rule(self, family: str, table: str, chain: str) -> int | None:
        """Return the handle of a chain's first rule, unique in its table; None if there is no such chain or rule."""

    async def chains(self, family: str, table: str) -> list[ForeignChain]:
        """Return the chains of a table; none if it does not exist."""

    async def jumps(self, family: str, table: str) -> list[Jump]:
        """Return the rules of a table that lead to other chains."""

    async def destinations(self, family: str, table: str, chain: str) -> list[Destination]:
        """Return what the rules of a chain send to other chains; nothing if it does not exist."""

    async def mapped(self, family: str, table: str, name: str) -> list[Destination]:
        """Return what the elements of a map send to chains; nothing if it does not exist."""


class KernelChains(NetfilterClient):
    """Reads chains. Use ``open``. All raise KernelError if the kernel does not tell."""

    async def table_handle(self, family: str, table: str) -> int | None:
        """See ``ChainReader``."""
        for found in await self._netfilter.ask(family, netlink.GET_TABLE, netlink.text(_TABLE_NAME, table)):
            return _number(found, _TABLE_HANDLE)
        return None

    async def first_rule(self, family: str, table: str, chain: str) -> int | None:
        """See ``ChainReader``."""
        names = netlink.text(_CHAIN_TABLE, table) + netlink.text(_CHAIN_NAME, chain)
        if not await self._netfilter.ask(family, netlink.GET_CHAIN, names):
            return None
        of = netlink.text(_RULE_TABLE, table) + netlink.text(_RULE_CHAIN, chain)
        # There may be a rule for each of thousands of Services: the rest is not read.
        async with aclosing(self._netfilter.dump(family, netlink.GET_RULES, of)) as rules:
            async for rule in rules:
                return _number(rule, _RULE_HANDLE)
        return None

    async def chains(self, family: str, table: str) -> list[ForeignChain]:
        """See ``ChainReader``."""
        async with aclosing(self._netfilter.dump(family, netlink.GET_CHAIN)) as chains:
            return [
                ForeignChain(
                    netlink.name(netlink.find(chain, _CHAIN_NAME)), netlink.find(chain, _CHAIN_HOOK) is not None
                )
                async for chain in chains
                if netlink.name(netlink.find(chain, _CHAIN_TABLE)) == table
            ]

    async def jumps(self, family: str, table: str) -> list[Jump]:
        """See ``ChainReader``."""
        payload = netlink.text(_RULE_TABLE, table)
        async with aclosing(self._netfilter.dump(family, netlink.GET_RULES, payload)) as rules:
            return [
                Jump(netlink.name(netlink.find(rule, _RULE_CHAIN)), _number(rule, _RULE_HANDLE), target)
                async for rule in rules
                # If the table does not exist, the kernel returns the rules of all.
                if netlink.name(netlink.find(rule, _RULE_TABLE)) == table and (target := _target(rule))
            ]

    async def destinations(self, family: str, table: str, chain: str) -> list[Destination]:
        """See ``ChainReader``."""
        payload = netlink.text(_RULE_TABLE, table) + netlink.text(_RULE_CHAIN, chain)
        async with aclosing(self._netfilter.dump(family, netlink.GET_RULES, payload)) as rules:
            return [
                destination
                async for rule in rules
                # If the chain does not exist, the kernel returns every rule of the table.
                if netlink.name(netlink.find(rule, _RULE_CHAIN)) == chain
                and netlink.name(netlink.find(rule, _RULE_TABLE)) == table
                and (destination := destinations.of_rule(rule)) is not None
            ]

    async def mapped(self, family: str, table: str, name: str) -> list[Destination]:
        """See ``ChainReader``."""
        payload = readback.set_payload(table, name)
        async with aclosing(self._netfilter.dump(family, netlink.GET_ELEMENTS, payload)) as answers:
            return [
                destinations.of_element(element) async for answer in answers for element in readback.elements_of(answer)
            ]


def _number(data: bytes, kind: int) -> int:
    return int.from_bytes(netlink.find(data, kind) or b"", "big")


def _target(rule: bytes) -> str:
    """Return the chain that a rule leads to; empty if it leads to none."""
    for _, expression in netlink.attributes(netlink.find(rule, _RULE_EXPRESSIONS) or b""):
        if netlink.name(netlink.find(expression, EXPRESSION_NAME)) == "immediate":
            data = netlink.find(expression, EXPRESSION_DATA, _IMMEDIATE_DATA, _DATA_VERDICT, _VERDICT_CHAIN)
            if data is not None:
                return netlink.name(data)
    return ""
