"""Verify what was applied: only the kernel's state counts as success."""

from collections.abc import Iterator

import structlog

from kube_nftlb import __version__, names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.engine.base import Engine
from kube_nftlb.agent.sync.decide import Decision, Keep, Serve, Withdraw
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.agent.sync.problems import log_fields
from kube_nftlb.agent.sync.programmer import Programmer
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.sync.repair import Repair
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.prose import some_of

_log = structlog.get_logger()


class Verification:
    """Compares applied farms with the kernel, and withdraws those that it refuses."""

    def __init__(
        self,
        inputs: Inputs,
        programmer: Programmer,
        repair: Repair,
        engine: Engine,
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._inputs = inputs
        self._programmer = programmer
        self._repair = repair
        self._engine = engine
        self._clock = clock
        self._timing = timing

    @property
    def _latency(self) -> ProgrammingLatency:
        return self._inputs.latency

    async def verify_some(self) -> None:
        """Verify the farms that were applied first. A farm that waits again is verified after its next change."""
        queue = self._inputs.queue
        for key, refused in queue.to_verify(self._timing.verify_batch):
            if key not in queue.waiting:
                await self._verify(key, refused)
            queue.verified(key)

    async def _verify(self, key: FarmKey, refused: str | None) -> None:
        """Compare a farm with the kernel; withdraw one that fails twice, so that it cannot affect others."""
        name, farm = names.node_farm_name(*key), self._inputs.index.get(key)
        decision = self._programmer.decide(key)
        if isinstance(decision, Withdraw) or (isinstance(decision, Keep) and name not in self._engine.programmed):
            self._latency.dropped(key)
            if name in self._programmer.changed and name not in self._engine.programmed:
                self._programmer.changed.discard(name)
                _log.info("farm removed", **log_fields(key, farm))
            return
        if (drift := refused or await self._engine.drift(name)) is None:
            self._succeed(key, name, decision)
            return
        _log.warning("farm is not in the kernel as planned", **log_fields(key, farm), drift=drift)
        await self._engine.load()
        outcome = await self._programmer.program([key])
        # It may have begun to wait, or ceased to, since it was decided.
        decision = self._programmer.decide(key)
        if isinstance(decision, Withdraw):
            self._latency.dropped(key)
            return
        if name in self._engine.programmed and await self._engine.drift(name) is not None:
            await self._engine.repair(name)
        if (drift := await self._engine.drift(name)) is None:
            self._succeed(key, name, decision)
            return
        await self._take_out(key, name, outcome.refused.get(name, drift))

    async def _take_out(self, key: FarmKey, name: str, why: str) -> None:
        await self._programmer.withdraw([name])
        self._inputs.index.back_off(key, self._clock.now() + self._timing.back_off_s)
        self._latency.dropped(key)
        if (farm := self._inputs.index.get(key)) is not None:
            message = (
                f"{farm.spec.engine} or the kernel refused it: {why}; it is retried in a minute, and the logs of the "
                "agent's pod on this node have more"
            )
            self._inputs.problems.report(key, Problem("Refused", message, farm.metadata.generation), farm)
        await self._repair.base()

    def _succeed(self, key: FarmKey, name: str, decision: Decision) -> None:
        farm = self._inputs.index.get(key)
        # It may have been deleted while it was compared, or have been kept as it was.
        if farm is None or not isinstance(decision, Serve):
            self._latency.dropped(key)
            return
        self._latency.programmed(key)
        problems = self._inputs.problems
        if decision.problem is not None:
            problems.current[key] = decision.problem
            return
        problems.clear(key)
        if (problem := self._inputs.policies.problem(key)) is not None:
            problems.report(key, Problem(*problem, farm.metadata.generation), farm)
            return
        if warnings := list(_warnings(farm, decision.farm.spec)):
            problems.current[key] = Problem("NoEffect", "; ".join(warnings), farm.metadata.generation)
        if problems.solved(key) or name in self._programmer.changed:
            self._programmer.changed.discard(name)
            endpoints = self._engine.programmed[name].endpoints
            _log.info(
                "farm programmed", **log_fields(key, farm), generation=farm.metadata.generation, backends=endpoints
            )


def _warnings(farm: Farm, served: FarmSpec) -> Iterator[str]:
    """Say what of a farm has no effect on this node."""
    if farm.unknown:
        sentence = f"{some_of(farm.unknown)}: this agent ({__version__}) does not know the field, so it has no effect"
        yield f"{sentence} on this node; upgrade the agents"
    if (warning := selection.warning(served)) is not None:
        yield warning
