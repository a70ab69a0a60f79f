"""Compare the kernel with what nftlb was sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from kube_nftlb.agent.engine.nftlb.sessions import SessionReader, Sessions
from kube_nftlb.agent.engine.snapshot_file import PerFarmCache
from kube_nftlb.netfilter.readback import TableReader, confirmed
from kube_nftlb.nftlb import layout, objects
from kube_nftlb.nftlb.layout import FarmRules, IngressRules, MapEntry
from kube_nftlb.nftlb.readback import BaseRules


class RulesReader(TableReader, SessionReader, Protocol):
    """Reads nftlb's rules."""

    async def rules_of(self, farm: str, family: layout.TableFamily, wanted: frozenset[MapEntry]) -> FarmRules:
        """Return the rules of one farm. Only the wanted listeners are looked up."""

    async def ingress_of(self, farm: str, wanted: frozenset[MapEntry]) -> IngressRules:
        """Return the rules of one farm in the mode dsr, in the maps of the listeners that are wanted."""

    async def listeners(self, family: layout.TableFamily) -> set[MapEntry]:
        """Return every element of the maps of listeners."""

    async def base_rules(self, family: layout.TableFamily) -> BaseRules:
        """Return the rules of the chains that farms share."""


class Verifier:
    """Compares the kernel with the farms that nftlb has (``present``)."""

    def __init__(self, present: Mapping[str, objects.Farm], reader: RulesReader, sessions: Sessions) -> None:
        self._present = present
        self._reader = reader
        self._sessions = sessions
        self._listeners = PerFarmCache[objects.Farm, frozenset[MapEntry]](lambda farm: layout.expected(farm).listeners)

    async def farm(self, name: str) -> str | None:
        """Return how the kernel deviates from a farm, or None.

        One of the four maps of listeners is read: nftlb fills all in the same transaction as the chains. ``base``
        notices if somebody else has removed an element.
        """
        return await confirmed(self._reader, lambda: self._farm(name))

    async def base(self) -> str | None:
        """Return how the kernel deviates in the rules that all farms share, or in the set of listeners, or None."""
        return await confirmed(self._reader, self._base)

    async def has_rules(self) -> bool:
        """Return True if the kernel has rules of nftlb."""
        return any([(await self._reader.base_rules(family)).looked_up for family in layout.FAMILIES])

    async def leftover(self, farm: objects.Farm) -> str | None:
        """Return what the kernel still has of a farm that nftlb has deleted, or None."""
        wanted = layout.expected(farm).listeners

        async def leftover() -> str | None:
            found = wanted & (await self._reader.rules_of(farm.name, layout.family(farm), wanted)).listeners
            return f"listeners in the kernel that should not be there: {len(found)}" if found else None

        return await confirmed(self._reader, leftover)

    async def _farm(self, name: str) -> str | None:
        farm = self._present.get(name)
        if farm is None:
            return "nftlb does not have it"
        if farm.ingress:
            ingress = layout.expected_ingress(farm)
            return ingress.drift(await self._reader.ingress_of(name, ingress.listeners))
        looked_at = layout.FILTER_MAPS if farm.options.get("mode") == "local" else layout.NAT_MAPS
        wanted = layout.expected(farm)
        wanted = replace(wanted, listeners=frozenset(entry for entry in wanted.listeners if entry.map in looked_at))
        found = await self._reader.rules_of(name, layout.family(farm), wanted.listeners)
        if farm.persistent:
            found = replace(found, sessions=frozenset(await self._sessions.static(farm)))
        return wanted.drift(found)

    async def _base(self) -> str | None:
        expected = self._listeners.results(farm for farm in self._present.values() if farm.addresses)
        for family in layout.FAMILIES:
            wanted = set().union(*(listeners for farm, listeners in expected if layout.family(farm) == family))
            found = await self._reader.listeners(family)
            if missing := wanted - found:
                return f"listeners that are missing in the kernel: {len(missing)} of {len(wanted)}"
            if extra := found - wanted:
                return f"listeners in the kernel that should not be there: {len(extra)}"
            base = await self._reader.base_rules(family)
            if unused := {entry.map for entry in wanted} - base.looked_up:
                return f"the lookup in the map {min(unused)} of the table {family} nftlb is missing"
            chains = {layout.BASE_CHAINS[entry.map] for entry in wanted}
            # What is translated may be masqueraded.
            for chain in chains | ({"postrouting"} if "prerouting" in chains else set()):
                if base.others[chain] != layout.BASE_RULES[chain]:
                    return f"the chain {chain} of the table {family} nftlb has other rules than nftlb's"
        return None
