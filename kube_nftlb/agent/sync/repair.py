"""Detect changes of nftables by others, and repair them."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.sync.foreign_changes import Audit, ChangeWatch, ForeignChanges
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.problems import log_fields
from kube_nftlb.agent.sync.programmer import Programmer
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.agent.table.verify import TableVerifier
from kube_nftlb.netfilter.readback import TableReader

_log = structlog.get_logger()


class Repair:
    """Compares and repairs: everything if others may have changed nftables, else a few farms at a time."""

    def __init__(
        self,
        state: LoopState,
        programmer: Programmer,
        engines: Engines,
        agent_table: AgentTable,
        reader: TableReader,
        watch: ChangeWatch,
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._state = state
        self._programmer = programmer
        self._engines = engines
        self._table = agent_table
        self._verifier = TableVerifier(agent_table, reader)
        self._clock = clock
        self._foreign = ForeignChanges(watch)
        self._timing = timing
        self._audit = Audit(timing.audit_every_s, timing.audit_batch)
        self._put_off_since = float("inf")
        """The time at which the comparison that has not been made yet was first put off."""
        self._suspected_since = float("inf")
        self._is_table_known = False
        """False while nothing is planned for the agent table of an earlier agent."""

    @property
    def suspected(self) -> bool:
        """True if somebody else has changed nftables since everything was compared."""
        return self._foreign.suspected

    def is_due(self, since_s: float) -> bool:
        """Return True if others have changed nftables, and it is not looked for all the time."""
        return since_s > self._timing.poll_s and self._foreign.pending

    def suspect(self) -> None:
        """Have everything compared once all farms are programmed: the kernel may have what nobody asked for."""
        self._foreign.suspected = True
        self._suspected_since = self._clock.now()

    def notice(self, now: float) -> None:
        """Look for changes by others."""
        self._foreign.notice()
        self._suspected_since = min(self._suspected_since, now) if self._foreign.suspected else float("inf")

    def overdue(self, now: float) -> bool:
        """Return True if everything should have been compared for a while, as when changes come without a pause."""
        return now - self._suspected_since >= self._timing.put_off_s

    def changed(self) -> None:
        """Schedule an audit after a change of our own."""
        self._audit.changed(self._clock.now())

    async def look(self, now: float) -> bool:
        """Compare what is suspect, and a few farms more. Return False if the engine was restarted.

        Farms that wait or are not verified are no drift: they are not in the kernel yet.
        """
        if self._engines.restarted():
            # It may have loaded an older state.
            return False
        # Where others change nftables without a pause, what is suspect stays so, and is compared at the next look.
        with suppress(errors.InterruptedDumpError):
            await self.keep_table(now)
            if self._foreign.suspected:
                await self._bring_back()
            if self._foreign.suspected and self._is_comparable(now) and await self.base():
                self._foreign.compared()
                self._audit.begin(now)
            if self._at_rest:
                await self._audit_some(now)
        return True

    def _is_comparable(self, now: float) -> bool:
        """Return True if the kernel has all that is programmed, and nothing more important waits."""
        return self._at_rest or (self.overdue(now) and not self._state.queue.unverified)

    @property
    def _at_rest(self) -> bool:
        return not (self._state.queue.waiting or self._state.queue.unverified)

    async def keep_table(self, now: float) -> None:
        """Compare the agent table if others have changed it, also while an engine is away: it keeps clients out."""
        self.notice(now)
        if self._is_table_known and self._foreign.table_suspected:
            await self.table()
            self._foreign.table_suspected = False

    async def adopt_table(self) -> None:
        """Recreate the agent table if it deviates; for a new agent that is no drift."""
        self._is_table_known = True
        try:
            deviates = await self._verifier.drift() is not None
        except errors.InterruptedDumpError:
            deviates = True
        if deviates:
            await self._create_table()

    async def table(self) -> None:
        """Compare the agent table, and recreate it if it was changed."""
        if (drift := await self._verifier.drift()) is not None:
            self._log_repair(drift)
            await self._create_table()

    async def _create_table(self) -> None:
        """Recreate the agent table. While an engine serves nothing, clients wait until it does."""
        self._table.lets_wait = await self._engines.is_missing()
        await self._programmer.create_table()

    async def _bring_back(self) -> None:
        """Have an engine serve again that has lost all, as after ``flush ruleset``: at once, whatever else waits."""
        if await self._engines.is_missing():
            self._log_repair("an engine has lost all that was programmed")
            await self._engines.repair()
        await self._table.refuse()

    async def base(self) -> bool:
        """Compare what all farms share, and repair it. Return False if work came before all was compared."""
        await self.table()
        compared, drift = await self._unless_work_comes(self._engines.drift())
        if not compared:
            return False
        if drift is None:
            return True
        if await self._engines.load():
            self._state.add(self._state.index)
        if (drift := await self._engines.drift()) is not None:
            self._log_repair(drift)
            await self._engines.repair()
        return True

    async def _unless_work_comes(self, comparing: Coroutine[object, object, str | None]) -> tuple[bool, str | None]:
        """Return True and the outcome of a comparison; False if work came meanwhile, which should not wait for it.

        With many farms it takes a second. If it was put off for a while, work waits.
        """
        comparison = asyncio.create_task(comparing, name="compare")
        now = self._clock.now()
        since, self._put_off_since = min(self._put_off_since, now), float("inf")
        try:
            while now - since < self._timing.put_off_s and not comparison.done():
                self._state.wake.clear()
                if self._state.has_work:
                    self._put_off_since = since
                    return False, None
                woken = asyncio.create_task(self._state.wake.wait(), name="woken")
                try:
                    await asyncio.wait([comparison, woken], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
            return True, await comparison
        finally:
            comparison.cancel()
            await asyncio.wait([comparison])

    async def _audit_some(self, now: float) -> None:
        if self._audit.due(now):
            if not await self.base():
                return
            self._audit.start(self._engines.sent)
        for name in self._audit.take():
            if name not in self._engines.sent:
                continue
            if (drift := await self._engines.drift(name)) is not None:
                await self._farm(name, drift)
            await self._engines.forget_stale(name)
            self._state.connections.check(name)

    async def _farm(self, name: str, drift: str) -> None:
        self._log_repair(drift, name)
        await self._engines.repair(name)
        if await self._engines.drift(name) is not None and (key := self._state.index.key(name)) is not None:
            self._state.add([key])

    def _log_repair(self, drift: str, name: str | None = None) -> None:
        self._state.progress.drift_repaired += 1
        metrics.DRIFT_REPAIRED.inc()
        key = self._state.index.key(name) if name is not None else None
        fields = log_fields(key, self._state.index.get(key)) if key is not None else {}
        changed_by = ", ".join(sorted(self._foreign.programs))
        _log.warning("repaired drift", **fields, drift=drift, changed_by=changed_by or "not known")
