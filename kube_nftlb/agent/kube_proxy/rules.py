"""kube-proxy's rules in this network namespace: found, and removed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from kube_nftlb.agent.kube_proxy import chains as iptables
from kube_nftlb.agent.kube_proxy.served import Served, served
from kube_nftlb.netfilter.chains import ChainReader, ForeignChain, Jump
from kube_nftlb.netfilter.destinations import Destination
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import Transactions
from kube_nftlb.netfilter.table_text import FAMILIES, NFPROTO
from kube_nftlb.prose import counted

_LEGACY = tuple(Path("/proc/net", f"{family}_tables_names") for family in FAMILIES)
TABLE = "kube-proxy"
"""The table of kube-proxy in nftables mode, in each family."""
_SERVICES = "services"
"""The chain of this table that leads to those of all Services (pkg/proxy/nftables/proxier.go of 1.36)."""
_MAPS = ("service-ips", "service-nodeports")
"""Its maps, in the same place, from addresses, and from node ports, to the chains of Services that have endpoints."""


class Fingerprint(NamedTuple):
    """The handles of a table and of its first rule, which change when the rules are rewritten."""

    table: str
    handle: int
    first: int


class Ipvs(Protocol):
    """The state of kube-proxy in IPVS."""

    def found(self) -> bool:
        """Return True if kube-proxy's interface exists."""

    def served(self) -> list[Destination]:
        """Return the virtual servers at the addresses of this interface. Raises KernelError; see ``remove``."""

    def remove(self) -> str:
        """Remove its virtual servers, then the interface. Return what was removed. Raises KernelError.

        Not for a thread with a running event loop: pyroute2 runs one of its own.
        """


class ProxyRules:
    """Finds and removes rules of kube-proxy, in all of its modes. All methods raise KernelError.

    Rules of the program iptables-legacy are in another part of the kernel: they are neither found nor removed
    (``has_legacy_nat``).
    """

    def __init__(self, reader: ChainReader, transactions: Transactions, ipvs: Ipvs) -> None:
        self._reader = reader
        self._transactions = transactions
        self._ipvs = ipvs

    async def found(self) -> list[str]:
        """Return what there is, by its name."""
        found = []
        for family in FAMILIES:
            if await self._reader.table_handle(family, TABLE) is not None:
                found.append(f"table {family} {TABLE}")
            if await self._reader.first_rule(family, "nat", iptables.SERVICES) is not None:
                found.append(f"chain {family} nat {iptables.SERVICES}")
        if self._ipvs.found():
            found.append("IPVS")
        return found

    async def fingerprints(self, family: str) -> set[Fingerprint]:
        """Return the fingerprints of the rules for Services of a family; none if there are no such rules.

        A kube-proxy that starts writes these rules anew, in all modes, so they get another fingerprint.
        """
        fingerprints = set()
        for table, chain in ((TABLE, _SERVICES), ("nat", iptables.SERVICES)):
            handle = await self._reader.table_handle(family, table)
            first = await self._reader.first_rule(family, table, chain)
            if handle is not None and first is not None:
                fingerprints.add(Fingerprint(table, handle, first))
        return fingerprints

    async def served(self) -> list[Served]:
        """Return what the rules send to endpoints. What has none is not among it: kube-proxy rejects that."""
        found: list[Served] = []
        for family, of in NFPROTO.items():
            for name in _MAPS:
                found += served(of, await self._reader.mapped(family, TABLE, name))
            for chain in iptables.ROOTS:
                sent = await self._reader.destinations(family, "nat", chain)
                found += served(of, [each for each in sent if iptables.is_of_service(each.chain)])
        if self._ipvs.found():
            servers = await asyncio.to_thread(self._ipvs.served)
            for each in servers:
                found += served("ipv6" if ":" in (each.ip or "") else "ipv4", [each])
        return found

    async def remove(self) -> list[str]:
        """Remove all of it, each table in one transaction. Return what was removed, and what had to stay."""
        done = []
        for family in FAMILIES:
            if await self._reader.table_handle(family, TABLE) is not None:
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
        jumps = await self._reader.jumps(family, table)
        # With thousands of Services there are tens of thousands of chains, which must not keep the event loop.
        removal, orders = await asyncio.to_thread(_removal, table, chains, jumps)
        if removal.chains:
            await self._transactions.commit(orders, family)
        removed = [f"{counted(len(removal.chains), 'chain')} of {family} {table}"] if removal.chains else []
        blocked = ", ".join(f"{chain} of {family} {table} (for {by})" for chain, by in sorted(removal.blocked.items()))
        return [*removed, f"not {blocked}"] if blocked else removed


def has_legacy_nat() -> bool:
    """Return True if the program iptables-legacy, or one like it, has a table nat in this network namespace."""
    return any(path.exists() and "nat" in path.read_text().split() for path in _LEGACY)


def _removal(
    table: str, chains: Sequence[ForeignChain], jumps: Sequence[Jump]
) -> tuple[iptables.Removal, list[Message]]:
    """Return what to remove, and the messages that do it."""
    removal = iptables.removal(table, chains, jumps)
    return removal, [
        *(messages.delete_rule(table, jump.chain, jump.handle) for jump in removal.jumps),
        *(messages.flush_chain(table, chain) for chain in removal.chains),
        *(messages.delete_chain(table, chain) for chain in removal.chains),
    ]
