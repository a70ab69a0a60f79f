"""kube-proxy's rules in this network namespace: found, and removed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kube_nftlb.agent.kube_proxy import chains as iptables
from kube_nftlb.netfilter.chains import ChainReader
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import Transactions

FAMILIES = ("ip", "ip6")
_LEGACY = tuple(Path("/proc/net", f"{family}_tables_names") for family in FAMILIES)
TABLE = "kube-proxy"
"""The table of kube-proxy in nftables mode, in each family."""


class Ipvs(Protocol):
    """What kube-proxy has in IPVS."""

    def found(self) -> bool:
        """Return True if kube-proxy's interface exists."""

    def remove(self) -> str:
        """Remove its virtual servers, then the interface. Return what was removed. Raises KernelError.

        Not for a thread with a running event loop: pyroute2 runs one of its own.
        """


class ProxyRules:
    """Finds and removes rules of kube-proxy, in all of its modes. All methods raise KernelError.

    Rules of the program iptables-legacy are in another part of the kernel, which takes the capability NET_RAW to read:
    they are neither found nor removed (``has_legacy_nat``).
    """

    def __init__(self, reader: ChainReader, transactions: Transactions, ipvs: Ipvs) -> None:
        self._reader = reader
        self._transactions = transactions
        self._ipvs = ipvs

    async def found(self) -> list[str]:
        """Return what there is, by its name."""
        found = []
        for family in FAMILIES:
            if await self._reader.has_table(family, TABLE):
                found.append(f"table {family} {TABLE}")
            if await self._reader.has_rules(family, "nat", iptables.SERVICES):
                found.append(f"chain {family} nat {iptables.SERVICES}")
        if self._ipvs.found():
            found.append("IPVS")
        return found

    async def serves(self, families: Sequence[str]) -> bool:
        """Return True if there are rules for Services of all these families."""
        for family in families:
            by_nftables = await self._reader.has_table(family, TABLE)
            if not by_nftables and not await self._reader.has_rules(family, "nat", iptables.SERVICES):
                return False
        return bool(families)

    async def remove(self) -> list[str]:
        """Remove all of it, each table in one transaction. Return what was removed, and what had to stay."""
        done = []
        for family in FAMILIES:
            if await self._reader.has_table(family, TABLE):
                await self._transactions.commit([messages.delete_table(TABLE)], family)
                done.append(f"table {family} {TABLE}")
            for table in iptables.TABLES:
                done += await self._remove_chains(family, table)
        if self._ipvs.found():
            done.append(await asyncio.to_thread(self._ipvs.remove))
        return done

    async def _remove_chains(self, family: str, table: str) -> list[str]:
        chains = await self._reader.chains(family, table)
        if not any(iptables.is_proxys(table, chain.name) for chain in chains):
            return []
        removal = iptables.removal(table, chains, await self._reader.jumps(family, table))
        if removal.chains:
            await self._transactions.commit(_messages(table, removal), family)
        told = [f"{len(removal.chains)} chains of {family} {table}"] if removal.chains else []
        kept = ", ".join(f"{chain} of {family} {table} (for {by})" for chain, by in sorted(removal.kept.items()))
        return [*told, f"not {kept}"] if kept else told


def has_legacy_nat() -> bool:
    """Return True if the program iptables-legacy, or one like it, has a table nat in this network namespace."""
    return any(path.exists() and "nat" in path.read_text().split() for path in _LEGACY)


def _messages(table: str, removal: iptables.Removal) -> list[Message]:
    return [
        *(messages.delete_rule(table, jump.chain, jump.handle) for jump in removal.jumps),
        *(messages.flush_chain(table, chain) for chain in removal.chains),
        *(messages.delete_chain(table, chain) for chain in removal.chains),
    ]
