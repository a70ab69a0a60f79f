"""Verify what was applied: only the kernel's state counts as success."""

from collections.abc import Iterator

import structlog

from kube_nftlb import __version__, names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.engine.engines import Engines
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
    """Compares applied farms with the kernel; what it refuses is left as it was, or withdrawn."""

    def __init__(
        self,
        inputs: Inputs,
        programmer: Programmer,
        repair: Repair,
        engines: Engines,
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._inputs = inputs
        self._programmer = programmer
        self._repair = repair
        self._engines = engines
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
        """Compare a farm with the kernel. One that is ``refused``, or fails twice, is left as it was or withdrawn."""
        name, farm = names.node_farm_name(*key), self._inputs.index.get(key)
        decision = self._programmer.decide(key)
        if isinstance(decision, Withdraw):
            self._verify_withdrawn(key, name, refused)
            return
        if isinstance(decision, Keep) and name not in self._engines.programmed:
            self._latency.dropped(key)
            self._note_removed(key, name)
            return
        if (drift := refused or await self._engines.drift(name)) is None:
            self._succeed(key, name, decision)
            return
        _log.warning("farm is not in the kernel as planned", **log_fields(key, farm), drift=drift)
        if refused is not None:
            # The engine has tried it alone already.
            await self._leave(key, name, refused)
            return
        await self._engines.load()
        outcome = await self._programmer.program([key])
        # It may have begun to wait, or ceased to, since it was decided.
        decision = self._programmer.decide(key)
        if isinstance(decision, Withdraw):
            self._latency.dropped(key)
            return
        if name in self._engines.programmed and name not in outcome.refused and await self._engines.drift(name):
            await self._engines.repair(name)
        if (drift := outcome.refused.get(name) or await self._engines.drift(name)) is None:
            self._succeed(key, name, decision)
            return
        await self._leave(key, name, drift)

    def _verify_withdrawn(self, key: FarmKey, name: str, refused: str | None) -> None:
        self._latency.dropped(key)
        if name not in self._engines.programmed:
            self._note_removed(key, name)
        elif refused is not None:
            _log.warning("farm cannot be withdrawn", **log_fields(key, self._inputs.index.get(key)), refused=refused)
            self._inputs.index.refuse_change(key, None, self._clock.now(), self._timing)

    def _note_removed(self, key: FarmKey, name: str) -> None:
        if name in self._programmer.changed:
            self._programmer.changed.discard(name)
            _log.info("farm removed", **log_fields(key, self._inputs.index.get(key)))

    async def _leave(self, key: FarmKey, name: str, why: str) -> None:
        """Leave a farm as it was, or withdraw it if it cannot be served so either; then retry it after a while."""
        farm, index = self._inputs.index.get(key), self._inputs.index
        is_served = name in self._engines.programmed and await self._programmer.applier.revert(name)
        if name in self._engines.programmed and not is_served:
            await self._programmer.withdraw([name])
            # It may have spoilt what all share.
            await self._repair.base()
        self._latency.dropped(key)
        what = "its last change" if is_served else "it"
        stays = "it stays as it was" if is_served else "it is not served"
        message = (
            f"{farm.spec.engine if farm is not None else self._engines.name} or the kernel refused {what}: {why}; "
            f"{stays}, and is tried again after a while; the logs of the agent's pod on this node have more"
        )
        index.refuse_change(key, message if is_served else None, self._clock.now(), self._timing)
        if farm is not None:
            self._inputs.problems.report(key, Problem("Refused", message, farm.metadata.generation), farm)

    def _succeed(self, key: FarmKey, name: str, decision: Decision) -> None:
        self._programmer.applier.verified(name)
        farm = self._inputs.index.get(key)
        # It may have been deleted while it was compared, or have been kept as it was.
        if farm is None or not isinstance(decision, Serve):
            self._latency.dropped(key)
            return
        self._latency.programmed(key)
        self._inputs.index.accept_change(key)
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
            endpoints = self._engines.programmed[name].endpoints
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
