"""Read what a table has, over netlink."""

import contextlib
from collections.abc import Callable
from typing import Protocol

from kube_nftlb import errors
from kube_nftlb.netfilter import netlink, rules
from kube_nftlb.netfilter.netlink import NetfilterClient, NetfilterSocket
from kube_nftlb.netfilter.nftables import contents, messages
from kube_nftlb.netfilter.nftables.contents import SetContents, TableContents

_FAMILY = "inet"
"""NFTA_GEN_ID."""
_ATTEMPTS = 5
"""Where others change nftables all the time, the last counts if no list is interrupted."""


class ContentsReader(Protocol):
    """Reads tables of the family inet in this network namespace."""

    async def contents(self, table: str, with_elements: Callable[[SetContents], bool]) -> TableContents:
        """Return what a table has, and the elements of those sets for which ``with_elements`` says so.

        Sets that belong to rules are with them.
        """


class KernelContents(NetfilterClient):
    """See ``ContentsReader``. Use ``open``."""

    async def contents(self, table: str, with_elements: Callable[[SetContents], bool]) -> TableContents:
        """See ``ContentsReader``. Reads again if anybody changes nftables meanwhile: the lists would not fit together.

        Raises InterruptedDumpError if that goes on.
        """
        for _ in range(_ATTEMPTS - 1):
            before = await self.generation()
            with contextlib.suppress(errors.InterruptedDumpError):
                found = await read(self._netfilter, table, with_elements)
                if await self.generation() == before:
                    return found
        return await read(self._netfilter, table, with_elements)

    async def generation(self) -> int:
        """Return the number of the last nftables transaction in this network namespace, whoever made it."""
        answers = await self._netfilter.ask(_FAMILY, netlink.GET_GENERATION)
        return netlink.generation(answers[0])


async def read(netfilter: NetfilterSocket, table: str, with_elements: Callable[[SetContents], bool]) -> TableContents:
    """See ``ContentsReader``. Raises KernelError if the kernel does not tell."""
    sets: dict[str, SetContents] = {}
    for answer in await netfilter.ask(_FAMILY, netlink.GET_SET, netlink.text(contents.SET_TABLE, table), dump=True):
        if netlink.name(netlink.find(answer, contents.SET_TABLE)) == table:
            sets[netlink.name(netlink.find(answer, contents.SET_NAME))] = contents.declared_set(answer)
    for name, each in sets.items():
        if each.is_anonymous or (with_elements(each) and not each.is_dynamic):
            sets[name] = each._replace(elements=await _elements(netfilter, table, name))
    chains = {
        netlink.name(netlink.find(answer, contents.CHAIN_NAME)): contents.declared_chain(answer)
        for answer in await netfilter.ask(_FAMILY, netlink.GET_CHAIN, dump=True)
        if netlink.name(netlink.find(answer, contents.CHAIN_TABLE)) == table
    }
    found: dict[str, list[contents.RuleContents]] = {}
    async for rule in rules.read(netfilter, _FAMILY, table, whole=True):
        found.setdefault(rule.chain, []).append(contents.rule(rule, sets))
    named = {name: each for name, each in sets.items() if not each.is_anonymous}
    return TableContents(named, chains, {name: tuple(each) for name, each in found.items()})


async def _elements(netfilter: NetfilterSocket, table: str, name: str) -> frozenset[bytes]:
    payload = messages.element_list(table, name, ())
    answers = await netfilter.ask(_FAMILY, netlink.GET_ELEMENTS, payload, dump=True)
    found = (each for answer in answers for each in contents.elements_of(answer))
    return frozenset(each for each in found if not contents.ends_nothing(each))
