"""The reconcile loop: bring the engine to the desired state, and keep it there.

Watches only queue farms (``LoopState``). The loop takes a batch and programs it (``Programmer``). Applied farms are
verified when nothing waits, or when they have waited too long (``Verification``). Then the loop checks if anybody else
has changed nftables, and repairs drift (``Repair``).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.dsr.pod_addresses import PodLinks
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.sync.foreign_changes import ChangeWatch
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.programmer import Programmer
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.agent.sync.repair import Repair
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.sync.verification import Verification
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.netfilter.readback import TableReader

_log = structlog.get_logger()


class Reconciler:
    """Runs the loop, and reports its ``progress``."""

    def __init__(
        self,
        state: LoopState,
        engines: Engines,
        table: AgentTable,
        reader: TableReader,
        watch: ChangeWatch,
        links: PodLinks,
        clock: Clock,
        *,
        on_progress: Callable[[], None] = lambda: None,
        timing: Timing = Timing(),  # noqa: B008 - immutable
    ) -> None:
        """``on_progress`` is called whenever ``progress`` may have changed."""
        self._state = state
        self._engines = engines
        self._clock = clock
        self._timing = timing
        self._on_progress = on_progress
        self._reported: tuple[object, ...] = ()
        self._programmer = Programmer(state, engines, table, reader, links, clock, timing)
        self._repair = Repair(state, self._programmer, engines, table, reader, watch, clock, timing)
        self._verification = Verification(state, self._programmer, self._repair, engines, clock, timing)
        self._adopted = False
        self._stopping = False
        self._maintained_at = float("-inf")

    @property
    def progress(self) -> Progress:
        """The loop's progress."""
        return self._state.progress

    @property
    def sent(self) -> Mapping[str, SentFarm]:
        """The farms that the engine has, by name on the node."""
        return self._engines.sent

    @property
    def settled(self) -> bool:
        """True if nothing is left to do."""
        return self._adopted and not (self._state.has_work or self._state.queue.pending or self._repair.suspected)

    async def run(self) -> None:
        """Reconcile until ``stop`` is called."""
        try:
            await self._engines.restore()
        except errors.KubeNftlbError:
            pass
        except Exception:
            # Whatever is in the kernel: the first pass compares it with what is to be there.
            _log.exception("cannot restore the state of the engines")
        while not self._stopping:
            self.progress.began_at = self._clock.now()
            try:
                await self._pass()
                self.progress.pass_error = None
                self.progress.engine_error = self._engines.unreachable
            except errors.EngineUnreachableError as error:
                self.progress.engine_error = str(error)
                await self._pause(f"the engine is not reachable: {error}", self._timing.retry_s)
            except errors.KubeNftlbError as error:
                await self._pause(str(error), self._timing.retry_s)
            except Exception as error:
                # One unexpected farm must not end the service of all others.
                _log.exception("pass failed")
                await self._pause(f"unexpected: {error!r}", self._timing.unexpected_s)
        await self._end()

    def stop(self) -> None:
        """End ``run`` after the pass in progress."""
        self._stopping = True
        self._state.wake.set()

    async def _end(self) -> None:
        with suppress(errors.KubeNftlbError):
            while self._adopted and self._state.queue.unverified:
                await self._verify()
        with suppress(errors.KubeNftlbError):
            await self._engines.aclose()

    async def _pause(self, message: str, seconds: float) -> None:
        """Wait after a failure, then adopt the engine again: nothing can be taken for granted."""
        self._adopted = False
        self._state.queue.restart()
        if message != self.progress.pass_error:
            _log.warning("pass failed", error=message)
        self.progress.pass_error = message
        self._report()
        try:
            await self._repair.keep_table(self._clock.now())
        except Exception as error:
            # The pass that failed may have failed of this too.
            _log.warning("cannot compare the agent table", error=repr(error))
        await self._clock.sleep(seconds)

    async def _pass(self) -> None:
        state, timing = self._state, self._timing
        if not state.complete:
            state.wake.clear()
            await self._clock.wait(state.wake, timing.maintain_every_s)
            return
        if not self._adopted:
            await self._adopt()
        since_s = self._clock.now() - self._maintained_at
        if since_s > timing.maintain_every_s or self._repair.is_due(since_s):
            await self._maintain()
        # Clients wait for addresses that are announced once their farms are verified.
        urgent = not state.queue.unverified.keys().isdisjoint(state.load_balancers.wanted)
        urgent |= state.queue.overdue(timing.verify_within_s, self._clock.now())
        if state.queue.unverified and (urgent or await self._quiet(timing.verify_after_s)):
            await self._verify()
        if state.has_work and self._adopted:
            await self._work()
        if state.has_work or state.queue.unverified:
            return
        if state.is_progress_old or self.progress.news != self._reported:
            self._report()
        if await self._quiet(timing.poll_s):
            await self._maintain()

    def _report(self) -> None:
        self._state.update_progress(adopted=self._adopted)
        self._reported = self.progress.news
        self._on_progress()

    async def _quiet(self, seconds: float) -> bool:
        """Wait ``seconds``, or until there is work. Return True if there is none."""
        self._state.wake.clear()
        if self._state.has_work:
            return False
        return not await self._clock.wait(self._state.wake, seconds) or not self._state.has_work

    async def _adopt(self) -> None:
        lost = await self._programmer.adopt()
        await self._repair.adopt_table()
        await self._programmer.begin()
        self._state.policies.done()
        self._state.policies.have_rules(self._state.index.all())
        self._state.add(self._state.index, 0 if lost else None)
        self._repair.suspect()
        self._adopted = True
        self._reported = ()

    async def _work(self) -> None:
        queue, started = self._state.queue, self._clock.now()
        await self._programmer.update_policies()
        index = self._state.index
        keys = queue.take(last={key for name in self._engines.suspects if (key := index.key(name)) is not None})
        self._state.slices.taken(keys)
        outcome = await self._programmer.program(keys)
        by_name = {names.node_farm_name(*key): key for key in keys}
        now = self._clock.now()
        refused = {by_name[name]: why for name, why in outcome.refused.items() if name in by_name}
        incomplete = [by_name[name] for name in outcome.incomplete if name in by_name]
        queue.applied(refused, incomplete, now, now - started)
        self._state.slices.incomplete(incomplete)
        self._repair.changed()
        metrics.SYNC_SECONDS.observe(now - started)
        self._report()

    async def _verify(self) -> None:
        await self._verification.verify_some()
        self._report()

    async def _maintain(self) -> None:
        """Maintain what is programmed already."""
        now = self._clock.now()
        self._maintained_at = now
        self._repair.notice(now)
        # Damage must be found however many changes come.
        while self._repair.overdue(now) and self._state.queue.unverified:
            await self._verify()
        if not await self._repair.look(now):
            self._adopted = False
            return
        self.progress.upkeep_error = await self._engines.maintain(busy=bool(self._state.queue))
        await self._programmer.maintain_links(now)
        await self._programmer.withdraw_orphans()
        await self._programmer.update_policies()
        self._state.pools.look_again(now)
        self._state.add(self._state.index.due(now))
