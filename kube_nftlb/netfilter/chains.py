"""Chains of other programs: which there are, where they jump to, and how many rules they have.

Read over netlink: rules of iptables may have parts that libnftables does not know, and it reads all of them.
"""

from contextlib import aclosing
from typing import NamedTuple, Protocol

from kube_nftlb.netfilter import destinations, netlink, readback, rules
from kube_nftlb.netfilter.destinations import Destination
from kube_nftlb.netfilter.netlink import NetfilterClient
from kube_nftlb.netfilter.nftables import contents

# The types of attributes, as linux/netfilter/nf_tables.h has them.
_TABLE_NAME, _TABLE_HANDLE = 1, 4
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK = 1, 3, 4


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
            return int.from_bytes(netlink.find(found, _TABLE_HANDLE) or b"", "big")
        return None

    async def first_rule(self, family: str, table: str, chain: str) -> int | None:
        """See ``ChainReader``."""
        names = netlink.text(_CHAIN_TABLE, table) + netlink.text(_CHAIN_NAME, chain)
        if not await self._netfilter.ask(family, netlink.GET_CHAIN, names):
            return None
        # There may be a rule for each of thousands of Services: the rest is not read.
        async with aclosing(rules.read(self._netfilter, family, table, chain)) as found:
            async for rule in found:
                return rule.handle
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
        return [
            Jump(rule.chain, rule.handle, target)
            async for rule in rules.read(self._netfilter, family, table)
            if (target := rule.target)
        ]

    async def destinations(self, family: str, table: str, chain: str) -> list[Destination]:
        """See ``ChainReader``."""
        return [
            destination
            async for rule in rules.read(self._netfilter, family, table, chain)
            if (destination := destinations.of_rule(rule)) is not None
        ]

    async def mapped(self, family: str, table: str, name: str) -> list[Destination]:
        """See ``ChainReader``."""
        payload = readback.set_payload(table, name)
        async with aclosing(self._netfilter.dump(family, netlink.GET_ELEMENTS, payload)) as answers:
            return [
                destinations.of_element(element) async for answer in answers for element in contents.elements_of(answer)
            ]
