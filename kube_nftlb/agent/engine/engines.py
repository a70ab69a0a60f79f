"""The engines of a node: which one serves a farm, in which order they change, and what goes on without nftlb.

The engine nftables translates packets before nftlb does. So a farm that moves to it is added there first, then removed
from nftlb; one that moves away is added to nftlb first, and stays in nftables until the kernel has it of nftlb.

While nftlb is away or hangs, only its farms wait: they stay as they are, except for what keeps clients out, which is in
the agent table.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Set
from typing import cast

from kube_nftlb import errors
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.engine.base import TAKEN, Applied, DaemonEngine, Engine, FarmChanges, TableEngine
from kube_nftlb.agent.model import Blocker, NodeFarm, SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Contents

AWAY_AFTER_S = 3
"""Maximum time in seconds that the loop waits for a restart of nftlb, where no other engine serves farms."""


class Engines:
    """Hands each farm to the engine that its spec names, and moves it between them."""

    def __init__(self, nftables: TableEngine, nftlb: DaemonEngine, clock: Clock) -> None:
        self._clock = clock
        self._nftables = nftables
        self._nftlb = nftlb
        self._all: tuple[Engine, ...] = (nftables, nftlb)
        self.unreachable: str | None = None
        """Reason nftlb is away while the rest goes on; None if it is there."""
        self._is_nftlb_known = False
        """False until the farms of nftlb were read once."""
        self._missed_since: float | None = None
        self._has_returned = False
        """True once nftlb was read after it was away, until everybody is told."""

    def _of(self, farm: NodeFarm) -> Engine:
        return self._nftables if farm.spec.engine == "nftables" else self._nftlb

    @property
    def _reachable(self) -> tuple[Engine, ...]:
        return (self._nftables,) if self.unreachable else self._all

    def _serving(self, name: str) -> list[Engine]:
        return [engine for engine in self._reachable if name in engine.sent]

    @property
    def sent(self) -> Mapping[str, SentFarm]:
        """The farms that all engines have sent."""
        # ChainMap takes MutableMapping because it writes to the first; this one is only read.
        return ChainMap(*(cast("dict[str, SentFarm]", engine.sent) for engine in self._all))

    @property
    def suspects(self) -> Collection[str]:
        """See ``DaemonEngine``."""
        return self._nftlb.suspects

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """See ``Engine``."""
        engine = self._of(farm)
        if engine is self._nftlb and self.unreachable:
            message = f"nftlb does not answer, so the farm stays as it is on this node: {self.unreachable}"
            return Blocker("NftlbUnreachable", message)
        return engine.unsupported(farm)

    def contents(self, farm: NodeFarm) -> Contents:
        """See ``Engine``."""
        return self._of(farm).contents(farm)

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        """Return the farms that an engine has on any of these listeners."""
        return set().union(*(engine.sent.owners(listeners) for engine in self._all))

    def in_nftables(self, name: str) -> frozenset[Listener]:
        """Return where the engine nftables has a farm."""
        return _listeners(self._nftables, name)

    def in_nftlb(self, name: str) -> frozenset[Listener]:
        """Return where nftlb has a farm, as far as is known: one that moves may be at other listeners there."""
        return _listeners(self._nftlb, name)

    def listeners(self, name: str) -> frozenset[Listener] | None:
        """Return where engines have a farm; None if nobody knows, because nftlb may have it and is away."""
        if self.unreachable and name not in self._nftables.sent:
            return None
        return self.in_nftables(name) | self.in_nftlb(name)

    def is_shadowed(self, listener: Listener, name: str) -> bool:
        """Return True if the engine nftables serves another farm than this where nftlb, which is away, has it.

        Also if that farm has only part of the listener: it is not to be kept from its clients.
        """
        return bool(self.unreachable and self._nftables.sent.owners([listener]) - {name})

    def is_away(self, name: str) -> bool:
        """Return True if nobody can tell whether a farm is served, because nftlb has it and is away."""
        return bool(self.unreachable) and name in self._nftlb.sent and name not in self._nftables.sent

    def restarted(self) -> bool:
        """See ``DaemonEngine``. Without farms there is nothing to bring back: see ``maintain``."""
        return bool(not self.unreachable and self._nftlb.sent and self._nftlb.restarted())

    async def restore(self) -> None:
        """See ``TableEngine``."""
        await self._nftables.restore()

    async def set_node(self, node: NodeFacts) -> None:
        """See ``TableEngine``."""
        await self._nftables.set_node(node)

    async def load(self) -> bool:
        """See ``Engine``."""
        lost = await self._nftables.load()
        try:
            lost = await self._nftlb.load() or lost
        except errors.EngineUnreachableError as error:
            # On a new node there is nothing to wait for.
            self._is_nftlb_known = self._is_nftlb_known or await self._nftlb.blank()
            self._leave(error)
        else:
            self._is_nftlb_known = True
            self._has_returned = self._has_returned or bool(self.unreachable)
            self.unreachable, self._missed_since = None, None
        return lost

    async def reload(self, name: str) -> bool:
        """Adopt what engines have, as a farm deviates. Return True if others may have been lost since ``load``.

        Those that were lost before do not count: else each retry of a farm that stays refused would concern all others.
        """
        others, restarted = set(self.sent) - {name}, not self.unreachable and self._nftlb.restarted()
        await self.load()
        return restarted or not others <= self.sent.keys()

    def _leave(self, error: errors.EngineUnreachableError) -> None:
        """Go on without nftlb. Raises the error if it may be back soon, or nobody knows yet what it serves."""
        now = self._clock.now()
        self._missed_since = now if self._missed_since is None else self._missed_since
        hangs = isinstance(error, errors.NftlbHangsError)
        soon_back = not hangs and now - self._missed_since < AWAY_AFTER_S
        if not self._nftables.sent and (soon_back or not self._is_nftlb_known):
            raise error
        self.unreachable = str(error)

    async def begin(self, changes: Callable[[], FarmChanges]) -> Collection[str]:
        """See ``TableEngine``. nftlb loads its farms itself, and takes others one by one."""
        return await self._nftables.begin(lambda: self._for(self._nftables, changes()))

    async def is_missing(self) -> bool:
        """See ``TableEngine``. nftlb's listeners are in the agent table, which has their clients wait."""
        return await self._nftables.is_missing()

    def _for(self, engine: Engine, changes: FarmChanges) -> FarmChanges:
        """Return the farms that an engine is to serve, and those of its farms that are to go altogether."""
        return {
            name: farm
            for name, farm in changes.items()
            if (name in engine.sent if farm is None else self._of(farm) is engine)
        }

    def _moved(self, before: Engine, after: Engine, changes: FarmChanges) -> FarmChanges:
        """Return the farms to remove from an engine because another serves them now; not those that it refused."""
        return {
            name: None
            for name, farm in changes.items()
            if farm is not None and self._of(farm) is after and name in before.sent and name in after.sent
        }

    async def apply(self, changes: FarmChanges) -> Applied:
        """See ``Engine``."""
        nftables, nftlb = self._nftables, self._nftlb
        applied: list[Applied] = []
        to_nftables = self._for(nftables, changes)
        # What gets a listener that a farm leaves for nftlb gets it as that is removed.
        leaving = {name for name, farm in self._for(nftlb, changes).items() if farm is not None} & nftables.sent.keys()
        successors = self._successors(to_nftables, leaving)
        if now := {name: farm for name, farm in to_nftables.items() if name not in successors}:
            applied.append(await nftables.apply(now))
        try:
            to_nftlb = {**self._for(nftlb, changes), **self._moved(nftlb, nftables, changes)}
            if to_nftlb and not self.unreachable:
                applied.append(await nftlb.apply(to_nftlb))
                applied.append(Applied(await self._not_moved(changes, applied[-1].refused)))
        except errors.EngineUnreachableError as error:
            self._leave(error)
            return _merge(applied)
        stay = _merge(applied).refused
        moved = {name: None for name in self._moved(nftables, nftlb, changes) if name not in stay}
        taken = self._successors(successors, stay.keys())
        if last := {**moved, **{name: farm for name, farm in successors.items() if name not in taken}}:
            applied.append(await nftables.apply(last))
        return _merge([*applied, Applied(dict.fromkeys(taken, TAKEN))])

    def _successors(self, changes: FarmChanges, leaving: Set[str]) -> FarmChanges:
        """Return the farms that are to get listeners of those that leave, and in turn of such successors."""
        found = set[str]()
        more = leaving
        while more:
            others = ((name, self._owners(farm) - {name}) for name, farm in changes.items() if name not in found)
            more = {name for name, owners in others if not more.isdisjoint(owners)}
            found |= more
        return {name: farm for name, farm in changes.items() if name in found}

    def _owners(self, farm: NodeFarm | None) -> set[str]:
        """Return the farms that the engine nftables has where a farm is to be."""
        return self._nftables.sent.owners(list(farm.listeners)) if farm is not None else set()

    async def _not_moved(self, changes: FarmChanges, refused: Mapping[str, str]) -> dict[str, str]:
        """Return why farms cannot move to nftlb, which loses them again: the engine nftables goes on serving them.

        That nftlb has taken them proves nothing, and once nftables has lost them nobody knows what they were.
        """
        stay = {}
        for name in self._moved(self._nftables, self._nftlb, changes):
            if (why := refused.get(name) or await self._irreparable(name)) is not None:
                stay[name] = why
        if stay:
            await self._nftlb.apply(dict.fromkeys(stay))
        return stay

    async def _irreparable(self, name: str) -> str | None:
        """Return how the kernel deviates from a farm of nftlb although it was repaired once, or None."""
        if await self._nftlb.drift(name) is None:
            return None
        try:
            await self._nftlb.repair(name)
        except errors.NftlbError as error:
            # Nobody else waits for this farm.
            return str(error)
        return await self._nftlb.drift(name)

    async def drift(self, name: str | None = None) -> str | None:
        """See ``Engine``."""
        for engine in self._reachable if name is None else self._serving(name):
            if (drift := await engine.drift(name)) is not None:
                return drift
        return None if name is None or name in self.sent else "no engine has it"

    async def repair(self, name: str | None = None) -> None:
        """See ``Engine``."""
        for engine in self._reachable if name is None else self._serving(name):
            if await engine.drift(name) is not None:
                await engine.repair(name)

    async def revert(self, name: str) -> bool:
        """See ``Engine``. A farm that was to move to another engine stays where it is."""
        engines = self._serving(name)
        return bool(engines) and all([await engine.revert(name) for engine in engines])

    async def leftover(self, name: str) -> str | None:
        """See ``DaemonEngine``."""
        return None if self.unreachable else await self._nftlb.leftover(name)

    async def forget_stale(self, name: str) -> None:
        """See ``DaemonEngine``."""
        if not self.unreachable and name in self._nftlb.sent:
            await self._nftlb.forget_stale(name)

    async def maintain(self, *, busy: bool) -> str | None:
        """See ``Engine``. Raises EngineUnreachableError also once when nftlb is back, so that everything is loaded."""
        problems = [await self._nftables.maintain(busy=busy)]
        was_away = bool(self.unreachable)
        try:
            if was_away or (self._nftlb.restarted() and not self._nftlb.sent):
                # After an answer that left doubt it may have been read already, with nothing in it.
                self._has_returned |= await self._nftlb.load()
            problems.append(await self._nftlb.maintain(busy=busy))
            if was_away:
                # It may answer, and not tell what it has.
                await self._nftlb.load()
        except errors.EngineUnreachableError as error:
            self._leave(error)
        else:
            self._missed_since = None
            if was_away or self._has_returned:
                self.unreachable, self._has_returned = None, False
                raise errors.EngineUnreachableError("nftlb is reachable again; reloading")
        return "; ".join(problem for problem in problems if problem) or None

    async def aclose(self) -> str | None:
        """See ``Engine``."""
        problems = [problem for engine in self._all if (problem := await engine.aclose())]
        return "; ".join(problems) or None


def _listeners(engine: Engine, name: str) -> frozenset[Listener]:
    return farm.listeners if (farm := engine.sent.get(name)) is not None else frozenset()


def _merge(applied: Collection[Applied]) -> Applied:
    refused = {name: why for each in applied for name, why in each.refused.items()}
    incomplete = {name for each in applied for name in each.incomplete}
    return Applied(refused, incomplete, {name for each in applied for name in each.changed})
