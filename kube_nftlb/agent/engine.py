"""Applying steps to nftlb, and knowing what nftlb and the kernel really have.

A plan is carried out by an engine; this is the one for nftlb. It keeps ``present``, a copy of what nftlb has in memory,
so that nothing is read again that is known; after an answer that leaves doubt it reads everything.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.agent.conntrack import Conntrack
from kube_nftlb.agent.nft import Nft
from kube_nftlb.agent.nftables import State
from kube_nftlb.nftlb import layout, objects
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.kernel import Kernel
from kube_nftlb.nftlb.requests import PutFarm, Request, Step, after, drops_table, put_request, request

_LOOKS = 20
_LOOK_AGAIN_S = 0.05

BATCH = 16
"""New farms per request: each is a transaction of its own all the same, so more would only make others wait longer."""


class NftlbEngine:
    """One node's nftlb and the rules it makes."""

    def __init__(self, client: NftlbClient, kernel: Kernel, conntrack: Conntrack, nft: Nft, startup_file: Path) -> None:
        self._client = client
        self._kernel = kernel
        self._conntrack = conntrack
        self._nft = nft
        self._startup_file = startup_file
        self.present: dict[str, objects.Farm] = {}
        self._holders: dict[objects.Claim, str] = {}

    async def sync(self) -> None:
        """Read what nftlb has. Raises NftlbUnreachableError."""
        self.present = await self._client.farms()
        self._holders = {claim: name for name, farm in self.present.items() for claim in farm.claims()}

    def restarted(self) -> bool:
        """Whether nftlb has been started anew, so that ``present`` is what another process had."""
        return self._client.restarted()

    async def ping(self) -> None:
        """See whether nftlb is there. Raises NftlbUnreachableError."""
        with contextlib.suppress(errors.NftlbError):
            # It has no lighter question than one for a farm that there is not, which it refuses.
            await self._client.send(Request("GET", "/farms/-"))

    def holders(self, farm: objects.Farm) -> set[str]:
        """Other farms in nftlb that listen where this one would: nftlb must not be sent it before they are gone."""
        return {name for claim in farm.claims() if (name := self._holders.get(claim)) not in (None, farm.name)}

    async def apply(self, steps: Iterable[Step]) -> dict[str, str]:
        """Carry out steps in their order; what failed, by the farm's name. Raises NftlbUnreachableError.

        After a failure ``present`` is read anew, and the failed farm's further steps are left out.
        """
        failed: dict[str, str] = {}
        dropped = False
        for batch in _batches(steps):
            remaining = [step for step in batch if step.name not in failed]
            if not remaining:
                continue
            dropped = dropped or any(drops_table(self.present.get(step.name), step) for step in remaining)
            try:
                await self._send(remaining)
            except errors.NftlbError as error:
                await self.sync()
                if len(remaining) == 1:
                    failed[remaining[0].name] = str(error)
                else:
                    for step in remaining:
                        failed.update(await self.apply([step]))
        if dropped:
            await self.rebuild()
        return failed

    async def _send(self, batch: list[Step]) -> None:
        if all(isinstance(step, PutFarm) for step in batch):
            await self._client.change(put_request(step.farm for step in batch if isinstance(step, PutFarm)))
        else:
            (step,) = batch
            await self._client.change(request(step))
        for step in batch:
            self._note(step)

    def _note(self, step: Step) -> None:
        before = self.present.get(step.name)
        left = after(before, step)
        for claim in before.claims() if before else ():
            self._holders.pop(claim, None)
        if left is None:
            self.present.pop(step.name, None)
            return
        self.present[step.name] = left
        self._holders.update(dict.fromkeys(left.claims(), step.name))

    async def generation(self) -> int:
        """The number of the kernel's last nftables transaction."""
        return await self._kernel.generation()

    async def fault(self, name: str) -> str:
        """In words, how the kernel differs from what nftlb was told of a farm; empty where it does not.

        Of the four maps with listeners one is looked at: nftlb fills all in the same transaction as the chains. Whether
        somebody else has taken an element out is for ``base_fault``.
        """
        return await self._confirmed(lambda: self._fault(name))

    async def base_fault(self) -> str:
        """In words, what is wrong with the rules that all farms share, or with the set of listeners; else empty."""
        return await self._confirmed(self._base_fault)

    async def own_table_fault(self, table: str, wanted: State) -> str:
        """In words, what is wrong with the agent's own table; else empty."""
        return await self._confirmed(lambda: self._own_table_fault(table, wanted))

    async def _confirmed(self, look: Callable[[], Awaitable[str]]) -> str:
        """What a look at the kernel finds wrong, once it was found without a transaction in between.

        What is read while somebody changes nftables is incomplete, and proves nothing.
        """
        for _ in range(_LOOKS):
            before = await self.generation()
            fault = await look()
            if not fault or await self.generation() == before:
                return fault
            await asyncio.sleep(_LOOK_AGAIN_S)
        return fault

    async def _fault(self, name: str) -> str:
        farm = self.present.get(name)
        if farm is None:
            return "nftlb does not have it"
        wanted = layout.expected(farm)
        wanted = replace(
            wanted, listeners=frozenset(entry for entry in wanted.listeners if entry.map == layout.NAT_MAP)
        )
        return wanted.difference(await self._kernel.rules_of(name, layout.family(farm), wanted.listeners))

    async def _own_table_fault(self, table: str, wanted: State) -> str:
        rules = {chain.name: len(chain.rules) for chain in wanted.chains.values() if chain.rules}
        if (found := await self._kernel.rule_counts(table)) != rules:
            different = sorted(name for name in found.keys() | rules.keys() if found[name] != rules.get(name, 0))
            return f"the chain {different[0]} of the table inet {table} was changed"
        elements = Counter(name for name, _ in wanted.elements)
        for name, named in wanted.sets.items():
            found_elements = await self._kernel.element_count(table, name)
            # Neighbouring intervals are merged, and each has an end of its own: only that there is something counts.
            right = bool(found_elements) == bool(named.elements) if named.elements else found_elements == elements[name]
            if not (right or named.dynamic):
                return f"the {named.kind} {name} of the table inet {table} was changed"
        return ""

    async def _base_fault(self) -> str:
        for family in layout.FAMILIES:
            farms = [farm for farm in self.present.values() if farm.addresses and layout.family(farm) == family]
            wanted = {listener for farm in farms for listener in layout.expected(farm).listeners}
            found = await self._kernel.listeners(family)
            if missing := wanted - found:
                return f"{len(missing)} of {len(wanted)} listeners are missing in the kernel"
            if extra := found - wanted:
                return f"{len(extra)} listeners are in the kernel, and should not be"
            chains = await self._kernel.base_rules(family)
            needed = {chain for chain, map_ in layout.BASE_CHAINS.items() if any(entry.map == map_ for entry in wanted)}
            if needed - chains:
                return f"the look-up in the chain {min(needed - chains)} of the table {family} nftlb is missing"
        return ""

    async def rebuild(self) -> None:
        """Make nftlb write all its rules anew.

        Without its table a farm with addresses cannot be loaded; nftlb then recovers by loading everything from memory.
        """
        for family in layout.FAMILIES:
            await self._nft.run(f"table {family} {layout.TABLE} {{}}\ndelete table {family} {layout.TABLE}\n")
        if farm := next((farm for farm in self.present.values() if farm.addresses), None):
            await self._client.change(put_request([farm]))

    async def reload(self, name: str) -> None:
        """Make nftlb write one farm's rules anew, by putting it down and up; its open connections survive."""
        if self.present[name].ipv6:
            await self.rebuild()
            return
        for state in ("down", "up"):
            await self._client.change(put_request([objects.Farm(name, {"state": state})]))

    async def part(self, name: str, marks: set[int]) -> None:
        """Part a farm from backends that are gone: its UDP flows, and clients that a session holds to one of them."""
        farm = self.present.get(name)
        if farm is None:
            return
        gone = marks - {backend.mark for backend in farm.backends.values() if backend.state != "down"}
        persistent = farm.options.get("persistence", "none") != "none"
        if gone and (persistent or any(claim.protocol == "udp" for claim in farm.claims())):
            await self._conntrack.release(farm, gone)
        if persistent:
            await self._purge_sessions(name, farm)

    async def forget(self, farm: objects.Farm) -> None:
        """Forget the UDP flows to what a farm listened on; with them clients would be served by it for ever."""
        if any(claim.protocol == "udp" for claim in farm.claims()):
            await self._conntrack.release(farm, {backend.mark for backend in farm.backends.values()})

    async def forget_flows(self, name: str, marks: set[int]) -> None:
        """Forget a farm's UDP flows to backends that are now somewhere else."""
        farm = self.present.get(name)
        if farm is not None and any(claim.protocol == "udp" for claim in farm.claims()):
            await self._conntrack.release(farm, marks)

    async def _purge_sessions(self, name: str, farm: objects.Farm) -> None:
        family = layout.family(farm)
        alive = {backend.mark for backend in farm.backends.values() if backend.state != "down"}
        dead = [key for key, mark in (await self._kernel.sessions(family, name)).items() if mark not in alive]
        if dead:
            persistence = farm.options["persistence"]
            keys = ", ".join(layout.session_text(persistence, key) for key in dead)
            await self._nft.run(f"delete element {family} {layout.TABLE} {layout.sessions_map(name)} {{ {keys} }}")

    def save(self, farms: Iterable[objects.Farm]) -> None:
        """Write nftlb's start-up file: with it, a restarted daemon has its farms before it answers."""
        temporary = self._startup_file.with_suffix(".new")
        temporary.write_text(json.dumps(objects.document(farms)))
        temporary.replace(self._startup_file)


def _batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Neighbouring PutFarm steps together, up to BATCH; each other step alone."""
    batch: list[Step] = []
    for step in steps:
        if not isinstance(step, PutFarm) or len(batch) == BATCH:
            if batch:
                yield batch
            batch = []
        if isinstance(step, PutFarm):
            batch.append(step)
        else:
            yield [step]
    if batch:
        yield batch
