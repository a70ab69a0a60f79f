"""Applying steps to nftlb, and knowing what nftlb and the kernel really have.

A plan is carried out by an engine; this is the one for nftlb. It keeps ``present``, a copy of what nftlb has in memory,
so that nothing is read again that is known; after an answer that leaves doubt it reads everything.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.engine.nftlb.conntrack import Conntrack
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.transaction import State
from kube_nftlb.nftlb import layout, objects
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.readback import Kernel, TimedSession
from kube_nftlb.nftlb.requests import (
    PutFarm,
    Request,
    Step,
    after,
    drops_table,
    leaves_rules,
    put_request,
    request,
    restarts,
)

_log = structlog.get_logger()

_T = TypeVar("_T")

_LOOKS = 20
_LOOK_AGAIN_S = 0.05
_RESTORES = 5
"""How often it is tried to remember a farm's clients, of whom one may come back at any time."""

BATCH = 16
"""New farms per request: each is a transaction of its own all the same, so more would only make others wait longer."""


class Doings(NamedTuple):
    """What this agent has done to nftables up to now: requests to nftlb, and transactions of its own at the most."""

    requests: int
    runs: int


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
        self._listeners = _OfEachFarm(lambda farm: layout.expected(farm).listeners)
        self._saved = _OfEachFarm(lambda farm: json.dumps(farm.wire()))

    async def sync(self) -> None:
        """Read what nftlb has. Raises NftlbUnreachableError."""
        self.present = objects.recalled(await self._client.farms(), self.present)
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
        claims = list(farm.claims())
        held = {name for claim in claims if (name := self._holders.get(claim)) not in (None, farm.name)}
        return held | {name for name in self._rivals(claims) if name != farm.name}

    def _rivals(self, claims: list[objects.Claim]) -> set[str]:
        """Farms that listen on the whole of an address where these are ports of it, or the other way round."""
        whole = {claim.ip for claim in claims if claim.protocol == "all"}
        found = {self._holders.get(objects.Claim(claim.ip, "all", 0)) for claim in claims}
        if whole:
            found.update(name for claim, name in self._holders.items() if claim.ip in whole)
        return {name for name in found if name is not None}

    async def apply(self, steps: Iterable[Step]) -> dict[str, str]:
        """Carry out steps in their order; what failed, by the farm's name. Raises NftlbUnreachableError.

        After a failure ``present`` is read anew, and the failed farm's further steps are left out.
        """
        failed: dict[str, str] = {}
        dropped = False
        kept: dict[str, _Sessions] = {}
        for batch in _batches(steps):
            remaining = [step for step in batch if step.name not in failed]
            if not remaining:
                continue
            dropped = dropped or any(drops_table(self.present.get(step.name), step) for step in remaining)
            messy = any(leaves_rules(self.present.get(step.name), step) for step in remaining)
            restarted = {step.name for step in remaining if restarts(self.present.get(step.name), step)}
            for name in (self.present.keys() if dropped or messy else restarted) - kept.keys():
                kept[name] = await self._sessions(name)
            failed.update(await self._attempt(remaining))
            if messy:
                await self._rebuild()
        if dropped:
            await self._rebuild()
        for name, sessions in kept.items():
            await self._restore(name, sessions)
        return failed

    async def _attempt(self, batch: list[Step]) -> dict[str, str]:
        try:
            await self._send(batch)
        except errors.NftlbError as error:
            await self.sync()
            if len(batch) == 1:
                return {batch[0].name: str(error)}
            failed: dict[str, str] = {}
            for step in batch:
                failed |= await self.apply([step])
            return failed
        return {}

    async def _send(self, batch: list[Step]) -> None:
        if all(isinstance(step, PutFarm) for step in batch):
            await self._client.change(put_request(step.farm for step in batch if isinstance(step, PutFarm)))
        else:
            (step,) = batch
            await self._client.change(request(step))
        for step in batch:
            self._note(step)
        for name in {step.name for step in batch}:
            # At once: what nftlb has left in the map is in the way of what it adds next.
            await self.settle_sessions(name)

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

    @property
    def doings(self) -> Doings:
        """What was done up to now, to tell the kernel's transactions that are ours from those of others."""
        return Doings(self._client.changes, self._nft.runs)

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
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        metrics.KERNEL_COMPARISONS.labels("different" if fault else "same").inc()
        return fault

    async def _fault(self, name: str) -> str:
        farm = self.present.get(name)
        if farm is None:
            return "nftlb does not have it"
        if farm.ingress:
            ingress = layout.expected_ingress(farm)
            return ingress.difference(await self._kernel.ingress_of(name, ingress.listeners))
        looked_at = layout.FILTER_MAPS if farm.options.get("mode") == "local" else layout.NAT_MAPS
        wanted = layout.expected(farm)
        wanted = replace(wanted, listeners=frozenset(entry for entry in wanted.listeners if entry.map in looked_at))
        found = await self._kernel.rules_of(name, layout.family(farm), wanted.listeners)
        if farm.persistent:
            found = replace(found, sessions=frozenset(await self._static_sessions(farm)))
        return wanted.difference(found)

    async def _own_table_fault(self, table: str, wanted: State) -> str:
        rules = {chain.name: len(chain.rules) for chain in wanted.chains.values() if chain.rules}
        if (found := await self._kernel.rule_counts(table)) != rules:
            different = sorted(name for name in found.keys() | rules.keys() if found[name] != rules.get(name, 0))
            return f"the chain {different[0]} of the table inet {table} was changed"
        elements = Counter(name for name, _ in wanted.elements)
        for name, named in wanted.sets.items():
            found_elements = await self._kernel.element_count(table, name)
            if named.held is not None or not named.elements:
                right = found_elements == (elements[name] if named.held is None else named.held)
            else:
                # Neighbouring intervals may have been merged: only that there is something counts.
                right = found_elements > 0
            if not (right or named.dynamic):
                return f"the {named.kind} {name} of the table inet {table} was changed"
        return ""

    async def _base_fault(self) -> str:
        expected = self._listeners.made(farm for farm in self.present.values() if farm.addresses)
        for family in layout.FAMILIES:
            wanted = set().union(*(listeners for farm, listeners in expected if layout.family(farm) == family))
            found = await self._kernel.listeners(family)
            if missing := wanted - found:
                return f"{len(missing)} of {len(wanted)} listeners are missing in the kernel"
            if extra := found - wanted:
                return f"{len(extra)} listeners are in the kernel, and should not be"
            if unused := {entry.map for entry in wanted} - await self._kernel.base_rules(family):
                return f"the look-up in the map {min(unused)} of the table {family} nftlb is missing"
        return ""

    async def rebuild(self) -> None:
        """Make nftlb write all its rules anew; the clients that it remembers are kept."""
        kept = {name: await self._sessions(name) for name in self.present}
        await self._rebuild()
        for name, sessions in kept.items():
            await self._restore(name, sessions)

    async def _rebuild(self) -> None:
        """As ``rebuild``, without the clients.

        Without its table a farm with addresses cannot be loaded; nftlb then recovers by loading everything from memory.
        """
        for family in layout.FAMILIES:
            await self._nft.run(f"table {family} {layout.TABLE} {{}}\ndelete table {family} {layout.TABLE}\n")
        # One that nftlb has no rules of in these tables would be loaded as it is.
        if farm := next((farm for farm in self.present.values() if layout.expected(farm).listeners), None):
            await self._client.change(put_request([objects.Farm(farm.name, {}, farm.addresses)]))
        for name in self.present:
            await self.settle_sessions(name)

    async def reload(self, name: str) -> None:
        """Make nftlb write one farm's rules anew, by putting it down and up; its open connections survive."""
        if self.present[name].ipv6 and not self.present[name].ingress:
            await self.rebuild()
            return
        if self.present[name].persistent and len(self.present[name].addresses) > 1:
            # nftlb cannot put it down, see docs/nftlb-defects.md.
            await self.rebuild()
            return
        sessions = await self._sessions(name)
        for state in ("down", "up"):
            await self._client.change(put_request([objects.Farm(name, {"state": state})]))
        await self.settle_sessions(name)
        await self._restore(name, sessions)

    async def _sessions(self, name: str) -> "_Sessions":
        """The clients that a farm remembers."""
        farm = self.present[name]
        if not farm.persistent:
            return _Sessions("", [])
        family, persistence = layout.family(farm), farm.options["persistence"]
        found = await self._kernel.timed_sessions(family, layout.sessions_map(name))
        return _Sessions(persistence, [(layout.session_text(persistence, family, each.key), each) for each in found])

    async def _restore(self, name: str, sessions: "_Sessions") -> None:
        """Remember clients again, as long as their backend is there and they are known by the same fields."""
        farm = self.present.get(name)
        if farm is None or not sessions.clients or farm.options.get("persistence") != sessions.persistence:
            return
        family, map_ = layout.family(farm), layout.sessions_map(name)
        ttl_ms = int(farm.options["persist-ttl"]) * 1000
        marks = await self._kernel.full_marks(family, name)
        for left in reversed(range(_RESTORES)):
            there = await self._kernel.sessions(family, map_)
            elements = [
                f"{client} expires {min(each.left_ms, ttl_ms)}ms : {marks[own]:#x}"
                for client, each in sessions.clients
                if (own := each.mark & objects.MARK_LAST) in marks and each.key not in there
            ]
            if not elements:
                return
            try:
                await self._nft.run(f"add element {family} {layout.TABLE} {map_} {{ {', '.join(elements)} }}")
            except errors.KernelError as error:
                # A client that comes back meanwhile is in the map with another backend, and nft refuses all of it.
                if not left:
                    _log.warning("cannot remember a farm's clients", farm=name, clients=len(elements), error=str(error))
            else:
                return

    async def settle_sessions(self, name: str) -> None:
        """Bring the kernel's map of a farm's static sessions to what they are.

        nftlb leaves those of a backend there that has gone or got another mark, and none of one that drains.
        """
        farm = self.present.get(name)
        if farm is None or not farm.persistent:
            return
        family, map_ = layout.family(farm), layout.static_sessions_map(name)
        wanted, found = layout.expected(farm).sessions, await self._static_sessions(farm)
        commands = [f"delete element {family} {layout.TABLE} {map_} {{ {entry.client} }}" for entry in found - wanted]
        if missing := wanted - found:
            marks = await self._kernel.full_marks(family, name)
            commands += [
                f"add element {family} {layout.TABLE} {map_} {{ {entry.client} : {marks[entry.mark]:#x} }}"
                for entry in missing
                if entry.mark in marks
            ]
        if commands:
            await self._nft.run("\n".join(commands))

    async def _static_sessions(self, farm: objects.Farm) -> set[layout.StaticSession]:
        family, persistence = layout.family(farm), farm.options["persistence"]
        found = await self._kernel.sessions(family, layout.static_sessions_map(farm.name))
        return {
            layout.StaticSession(layout.session_text(persistence, family, key), mark) for key, mark in found.items()
        }

    async def part(self, name: str, marks: set[int]) -> None:
        """Part a farm from backends that are gone: its UDP flows, and clients that a session holds to one of them.

        ``marks`` are those known to have gone; sessions tell of others.
        """
        farm = self.present.get(name)
        if farm is None:
            return
        alive = {backend.mark for backend in farm.backends.values() if backend.state != "down"}
        persistent = farm.persistent
        family, map_ = layout.family(farm), layout.sessions_map(name)
        held = await self._kernel.sessions(family, map_) if persistent else {}
        gone = (marks | set(held.values())) - alive
        if not gone:
            return
        if persistent or _has_flows(farm):
            await self._conntrack.release(farm, gone)
        if persistent:
            # Only now: with its mark a connection would have made a session anew.
            held = await self._kernel.sessions(family, map_)
            persistence = farm.options["persistence"]
            if dead := [layout.session_text(persistence, family, key) for key, mark in held.items() if mark in gone]:
                # One that ran out meanwhile makes nft refuse all of it; what is left is found at the next look.
                with contextlib.suppress(errors.KernelError):
                    await self._nft.run(f"delete element {family} {layout.TABLE} {map_} {{ {', '.join(dead)} }}")

    async def forget(self, farm: objects.Farm) -> None:
        """Forget the UDP flows to what a farm listened on; with them clients would be served by it for ever."""
        if _has_flows(farm):
            await self._conntrack.release(farm, {backend.mark for backend in farm.backends.values()})

    async def forget_flows(self, name: str, marks: set[int]) -> None:
        """Forget a farm's UDP flows to backends that are now somewhere else."""
        farm = self.present.get(name)
        if farm is not None and _has_flows(farm):
            await self._conntrack.release(farm, marks)

    async def forget_untranslated(self, name: str) -> None:
        """Forget UDP flows that a farm's listeners got before they served anybody."""
        farm = self.present.get(name)
        if farm is not None and _has_flows(farm) and farm.options.get("mode") in ("snat", "dnat"):
            await self._conntrack.forget_untranslated(farm)

    async def cut(self, name: str, addresses: frozenset[str]) -> None:
        """End a farm's connections to these addresses, unless a backend is there that gets connections."""
        farm = self.present.get(name)
        if farm is not None:
            in_use = {backend.options["ip-addr"] for backend in farm.backends.values() if backend.state != "down"}
            await self._conntrack.cut(farm, addresses - in_use)

    def save(self, farms: Iterable[objects.Farm]) -> None:
        """Write nftlb's start-up file: with it, a restarted daemon has its farms before it answers."""
        temporary = self._startup_file.with_suffix(".new")
        temporary.write_text(objects.joined(text for _, text in self._saved.made(farms)))
        temporary.replace(self._startup_file)


class _OfEachFarm(Generic[_T]):
    """What ``make`` makes of farms, anew only for those that are other objects than at the last time."""

    def __init__(self, make: Callable[[objects.Farm], _T]) -> None:
        self._make = make
        self._made: dict[str, tuple[objects.Farm, _T]] = {}

    def made(self, farms: Iterable[objects.Farm]) -> Collection[tuple[objects.Farm, _T]]:
        """Each of these farms with what is made of it; what was made of others is forgotten."""
        known, self._made = self._made, {}
        for farm in farms:
            entry = known.get(farm.name)
            self._made[farm.name] = entry if entry is not None and entry[0] is farm else (farm, self._make(farm))
        return self._made.values()


class _Sessions(NamedTuple):
    """The clients that a farm remembered, as nft spells them, and by which fields it did."""

    persistence: str
    clients: list[tuple[str, TimedSession]]


def _has_flows(farm: objects.Farm) -> bool:
    """Whether clients reach it over UDP, where a flow has no end that anybody could see."""
    return any("udp" in objects.PROTOCOLS[claim.protocol] for claim in farm.claims())


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
