"""Verify what was applied: only the kernel's state counts as success."""

import structlog

from kube_nftlb import names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.plan import Expected
from kube_nftlb.agent.sync.problems import log_fields
from kube_nftlb.agent.sync.programmer import Programmer
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.sync.repair import Repair
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.api.conflicts import FarmKey

_log = structlog.get_logger()


class Verification:
    """Compares applied farms with the kernel; what it refuses is left as it was, or withdrawn."""

    def __init__(
        self,
        state: LoopState,
        programmer: Programmer,
        repair: Repair,
        engines: Engines,
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._state = state
        self._programmer = programmer
        self._repair = repair
        self._engines = engines
        self._clock = clock
        self._timing = timing

    @property
    def _latency(self) -> ProgrammingLatency:
        return self._state.latency

    async def verify_some(self) -> None:
        """Verify the farms that were applied first, before others those whose addresses are announced once they are."""
        queue = self._state.queue
        for key, refused in queue.to_verify(self._timing.verify_batch, self._state.load_balancers.wanted.keys()):
            await self._verify(key, refused)
            if names.node_farm_name(*key) not in self._engines.sent:
                self._state.dropping.discard(key)
            if key in queue.unverified:
                queue.verified(key)
                self._state.slices.verified(key)

    async def _verify(self, key: FarmKey, refused: str | None) -> None:
        """Compare a farm with the kernel. One that is ``refused``, or fails twice, is left as it was or withdrawn."""
        name, farm = names.node_farm_name(*key), self._state.index.get(key)
        expected = self._state.expected.pop(name)
        if expected.withdraws:
            await self._verify_withdrawn(key, name, refused)
            return
        if expected.serves and refused is None and self._engines.is_away(name):
            # It cannot be compared now. By the next plan it waits for its engine.
            self._state.queue.again(key)
            return
        if not expected.serves and name not in self._engines.sent:
            self._latency.dropped(key)
            self._note_removed(key, name)
            return
        if (drift := refused or await self._engines.drift(name)) is None:
            self._succeed(key, name, expected)
            return
        _log.warning("farm is not in the kernel as planned", **log_fields(key, farm), drift=drift)
        if refused is not None:
            # The engine has tried it alone already.
            await self._leave(key, name, refused, expected)
            return
        if await self._engines.reload(name):
            self._state.add(other for other in self._state.index if other != key)
        outcome = await self._programmer.program([key])
        expected = self._state.expected.pop(name)
        if expected.withdraws:
            self._latency.dropped(key)
            return
        if name in self._engines.sent and name not in outcome.refused and await self._engines.drift(name):
            await self._engines.repair(name)
        if (drift := outcome.refused.get(name) or await self._engines.drift(name)) is None:
            self._succeed(key, name, expected)
            return
        await self._leave(key, name, drift, expected)

    async def _verify_withdrawn(self, key: FarmKey, name: str, refused: str | None) -> None:
        self._latency.dropped(key)
        if name not in self._engines.sent:
            refused = await self._engines.leftover(name)
            if refused is None:
                self._note_removed(key, name)
                return
            self._repair.suspect()
        if refused is not None and key not in self._state.queue.waiting:
            _log.warning("farm cannot be withdrawn", **log_fields(key, self._state.index.get(key)), refused=refused)
            self._state.index.refuse_change(key, None, self._clock.now(), self._timing)

    def _settle(self, key: FarmKey, name: str) -> None:
        """Forget the policies of listeners that the farm has no more; a change of it that waits is in no engine yet."""
        if (listeners := self._engines.listeners(name)) is not None:
            self._state.policies.settle(key, listeners)

    def _note_removed(self, key: FarmKey, name: str) -> None:
        self._settle(key, name)
        if name in self._state.changed:
            self._state.changed.discard(name)
            _log.info("farm removed", **log_fields(key, self._state.index.get(key)))

    async def _leave(self, key: FarmKey, name: str, why: str, expected: Expected) -> None:
        """Leave a farm as it was, or withdraw it if it cannot be served so either; then retry it after a while.

        One that has changed since is programmed next: until then it counts as failed.
        """
        farm, index, problems = self._state.index.get(key), self._state.index, self._state.problems
        if key in self._state.queue.waiting:
            message = f"the engine or the kernel refused a change of it: {why}; a later change of it is programmed next"
            problems.supersede(key, Problem("Refused", message, expected.generation), farm)
            return
        self._state.load_balancers.refused(key)
        is_served = name in self._engines.sent and await self._programmer.applier.revert(name)
        if name in self._engines.sent and not is_served:
            await self._programmer.withdraw([name])
            self._state.load_balancers.changes({key: None})
            # It may have spoilt what all share.
            await self._repair.base()
        self._settle(key, name)
        self._latency.dropped(key)
        what = "its last change" if is_served else "it"
        stays = "it stays as it was" if is_served else "it is not served"
        message = (
            f"{farm.spec.engine if farm is not None else 'the engine'} or the kernel refused {what}: {why}; "
            f"{stays}, and is tried again after a while; the logs of the agent's pod on this node have more"
        )
        index.refuse_change(key, message if is_served else None, self._clock.now(), self._timing)
        self._state.load_balancers.planned(key, index.resolved(key), stays=True)
        if farm is not None:
            problems.report(key, Problem("Refused", message, farm.metadata.generation), farm)

    def _succeed(self, key: FarmKey, name: str, expected: Expected) -> None:
        self._programmer.applier.verified(name)
        self._settle(key, name)
        farm = self._state.index.get(key)
        if farm is not None and expected.serves:
            self._state.load_balancers.verified(key, expected.in_kernel)
            (self._state.dropping.add if expected.drops else self._state.dropping.discard)(key)
        if key in self._state.queue.waiting:
            # What is said of it, and how long it waits, is of a later change.
            return
        # It may have been deleted while it was compared, or have been kept as it was.
        if farm is None or not expected.serves:
            self._latency.dropped(key)
            return
        self._latency.programmed(key)
        self._state.index.accept_change(key)
        problems = self._state.problems
        if expected.problem is not None:
            problems.current[key] = expected.problem
            return
        problems.clear(key)
        if (problem := self._state.policies.problem(key)) is not None:
            problems.report(key, Problem(*problem, farm.metadata.generation), farm)
            return
        if expected.warnings:
            problems.current[key] = Problem("NoEffect", "; ".join(expected.warnings), farm.metadata.generation)
        if problems.solved(key) or name in self._state.changed:
            self._state.changed.discard(name)
            endpoints = self._engines.sent[name].endpoints
            _log.info(
                "farm programmed", **log_fields(key, farm), generation=farm.metadata.generation, backends=endpoints
            )
