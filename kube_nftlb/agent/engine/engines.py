"""All engines of a node as one: each farm is served by the one that its spec names, and can move between them.

The engine nftables translates packets before nftlb does. So a farm that moves to it is added there first, then removed
from nftlb; one that moves away is added to nftlb first.

While nftlb is away or hangs, only its farms wait: they stay as they are, except for what keeps clients out, which is in
the agent table.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, cast

from kube_nftlb import errors
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.engine.base import Applied, DaemonEngine, Engine, FarmChange
from kube_nftlb.agent.model import Blocker, NodeFarm, Programmed
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import layout
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.transaction import Contents

AWAY_AFTER_S = 3
"""Maximum time in seconds that the loop waits for a restart of nftlb, where no other engine serves farms."""


class Engines:
    """See ``Engine``."""

    name: ClassVar[str] = "the engine"

    def __init__(self, nftables: Engine, nftlb: DaemonEngine, clock: Clock) -> None:
        self._clock = clock
        self._nftables = nftables
        self._nftlb = nftlb
        self._all = (nftables, nftlb)
        self.unreachable = ""
        """See ``Engine``: why nftlb is away."""
        self._is_nftlb_known = False
        """False until the farms of nftlb were read once."""
        self._missed_since: float | None = None
        self._has_returned = False
        """True once nftlb was read after it was away, until everybody is told."""

    def _of(self, farm: NodeFarm) -> Engine:
        return self._nftables if farm.spec.engine == "nftables" else self._nftlb

    def _having(self, name: str) -> list[Engine]:
        return [engine for engine in self._all if name in engine.programmed]

    @property
    def programmed(self) -> Mapping[str, Programmed]:
        """See ``Engine``."""
        # ChainMap takes MutableMapping because it writes to the first; this one is only read.
        return ChainMap(*(cast("dict[str, Programmed]", engine.programmed) for engine in self._all))

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """See ``Engine``."""
        engine = self._of(farm)
        if engine is self._nftlb and self.unreachable:
            message = f"nftlb does not answer, so the farm stays as it is on this node: {self.unreachable}"
            return Blocker("NftlbUnreachable", message)
        return engine.unsupported(farm)

    @property
    def suspects(self) -> Collection[str]:
        """See ``Engine``."""
        return self._nftlb.suspects

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        """See ``Engine``."""
        return set().union(*(engine.owners(listeners) for engine in self._all))

    def overlay(self, farm: NodeFarm) -> Contents:
        """See ``Engine``."""
        return self._of(farm).overlay(farm)

    def rules(self, changes: Sequence[FarmChange]) -> dict[str, Contents]:
        """See ``Engine``."""
        rules: dict[str, Contents] = {}
        for engine in self._all:
            rules |= engine.rules([self._untaken(each) for each in changes if engine in self._targets(each)])
        return rules

    def _targets(self, change: FarmChange) -> list[Engine]:
        """Return the engines that a change is for; a farm that is unknown is nobody's."""
        if change.farm is not None and not change.keep:
            return [self._of(change.farm)]
        return self._having(change.name) or [self._nftables]

    def restarted(self) -> bool:
        """See ``Engine``. Without farms there is nothing to bring back: see ``maintain``."""
        return any(engine.restarted() for engine in self._there if engine.programmed)

    async def restore(self) -> None:
        """See ``Engine``."""
        for engine in self._all:
            await engine.restore()

    async def set_node(self, node: NodeFacts) -> None:
        """See ``Engine``."""
        for engine in self._all:
            await engine.set_node(node)

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
            self.unreachable, self._missed_since = "", None
        return lost

    @property
    def _there(self) -> tuple[Engine, ...]:
        return (self._nftables,) if self.unreachable else self._all

    def _leave(self, error: errors.EngineUnreachableError) -> None:
        """Go on without nftlb. Raises the error if it may be back soon, or nobody knows yet what it serves."""
        now = self._clock.now()
        self._missed_since = now if self._missed_since is None else self._missed_since
        hangs = isinstance(error, errors.NftlbHangsError)
        soon_back = not hangs and now - self._missed_since < AWAY_AFTER_S
        if not self._nftables.programmed and (soon_back or not self._is_nftlb_known):
            raise error
        self.unreachable = str(error)

    async def begin(self, changes: Callable[[], Sequence[FarmChange]]) -> Collection[str]:
        """See ``Engine``. nftlb loads its farms itself."""
        return await self._nftables.begin(lambda: [each for each in changes() if self._nftables in self._targets(each)])

    async def is_missing(self) -> bool:
        """See ``Engine``."""
        return any([await engine.is_missing() for engine in self._there])

    async def apply(self, changes: Sequence[FarmChange]) -> Applied:
        """See ``Engine``."""
        away = [each for each in changes if self._leaves(each, self._nftables)]
        to_nftables = [each for each in changes if self._nftables in self._targets(each)]
        if self.unreachable:
            # The rules that a farm of nftlb needs once the engine nftables leaves an address to it.
            going = {each.name for each in to_nftables if each.farm is None and not each.keep}
            kept = [
                self._untaken(each, going)
                for each in changes
                if each.keep and self._nftables not in self._targets(each)
            ]
            before = await self._nftables.apply(kept) if kept and going else Applied()
            if before.nothing_done:
                return before
        first = await self._nftables.apply(to_nftables) if to_nftables else Applied()
        if first.nothing_done:
            return first
        # Those that the engine nftables has refused stay where they are.
        handed = [
            _handed_over(each)
            for each in to_nftables
            if self._leaves(each, self._nftlb) and each.name in self._nftables.programmed
        ]
        to_nftlb = [each for each in changes if self._nftlb in self._targets(each)] + handed
        second = await self._apply_to_nftlb(to_nftlb)
        handed = [_handed_over(each) for each in away if each.name in self._nftlb.programmed]
        third = await self._nftables.apply(handed) if handed and not second.nothing_done else Applied()
        return _together((first, second, third))

    async def _apply_to_nftlb(self, changes: Sequence[FarmChange]) -> Applied:
        if self.unreachable:
            # What keeps clients out is in the agent table, which either engine writes.
            changes = [kept for each in changes if (kept := self._kept(each)) is not None]
            return await self._nftables.apply(changes) if changes else Applied()
        if not changes:
            return Applied()
        try:
            return await self._nftlb.apply(changes)
        except errors.EngineUnreachableError as error:
            self._leave(error)
            return Applied(nothing_done=True)

    def _kept(self, change: FarmChange) -> FarmChange | None:
        """Return what can be done for a change without nftlb: clients of a farm that is withdrawn are refused."""
        if change.keep:
            return self._untaken(change)
        programmed = self._nftlb.programmed.get(change.name)
        if programmed is None or change.farm is not None or change.handed_over:
            return None
        left = [listener for listener in programmed.listeners if not self._nftables.owners([listener])]
        return replace(change, keep=True, overlay=layout.refused(left))

    def _untaken(self, change: FarmChange, going: Collection[str] = ()) -> FarmChange:
        """Return a change without rules for what the engine nftables serves of others than are ``going``.

        nftlb, which is away, listens there too, for a farm that stays as it is.
        """
        if not (self.unreachable and change.keep):
            return change
        return change.without(lambda listener: bool(self._nftables.owners([listener]) - {change.name, *going}))

    def _leaves(self, change: FarmChange, engine: Engine) -> bool:
        return (
            change.farm is not None
            and not change.keep
            and self._of(change.farm) is not engine
            and change.name in engine.programmed
        )

    async def drift(self, name: str | None = None) -> str | None:
        """See ``Engine``."""
        for engine in self._there if name is None else self._having(name):
            if engine in self._there and (drift := await engine.drift(name)) is not None:
                return drift
        return None if name is None or name in self.programmed else "no engine has it"

    async def repair(self, name: str | None = None) -> None:
        """See ``Engine``."""
        for engine in self._there if name is None else self._having(name):
            if engine in self._there and await engine.drift(name) is not None:
                await engine.repair(name)

    async def revert(self, name: str) -> bool:
        """See ``Engine``. A farm that was to move to another engine stays where it is."""
        engines = [engine for engine in self._having(name) if engine in self._there]
        return bool(engines) and all([await engine.revert(name) for engine in engines])

    async def forget_stale(self, name: str) -> None:
        """See ``Engine``."""
        for engine in self._having(name):
            await engine.forget_stale(name)

    async def maintain(self, *, busy: bool) -> str | None:
        """See ``Engine``. Raises EngineUnreachableError also once when nftlb is back, so that everything is loaded."""
        problems = [await self._nftables.maintain(busy=busy)]
        was_away = bool(self.unreachable)
        try:
            if was_away or (self._nftlb.restarted() and not self._nftlb.programmed):
                await self._nftlb.load()
            problems.append(await self._nftlb.maintain(busy=busy))
            if was_away:
                # It may answer, and not tell what it has.
                await self._nftlb.load()
        except errors.EngineUnreachableError as error:
            self._leave(error)
        else:
            self._missed_since = None
            if was_away or self._has_returned:
                self.unreachable, self._has_returned = "", False
                raise errors.EngineUnreachableError("nftlb answers again, everything is read anew")
        return "; ".join(problem for problem in problems if problem) or None

    async def aclose(self) -> str | None:
        """See ``Engine``."""
        problems = [problem for engine in self._all if (problem := await engine.aclose())]
        return "; ".join(problems) or None


def _handed_over(change: FarmChange) -> FarmChange:
    """Return what removes a farm from the engine that it leaves, once the other serves it."""
    return replace(change, farm=None, overlay=None, policies=change.policies_after, handed_over=True)


def _together(outcomes: Iterable[Applied]) -> Applied:
    refused: dict[str, str] = {}
    rules_refused: dict[str, str] = {}
    incomplete: set[str] = set()
    changed: set[str] = set()
    nothing_done = False
    for each in outcomes:
        refused |= each.refused
        rules_refused |= each.rules_refused
        incomplete |= set(each.incomplete)
        changed |= set(each.changed)
        nothing_done = nothing_done or each.nothing_done
    return Applied(refused, rules_refused, nothing_done, incomplete, changed)
