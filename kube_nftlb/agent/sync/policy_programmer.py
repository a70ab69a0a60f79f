"""Program policies into the agent table. Farms whose rules change by that are queued: each has them in its turn."""

import asyncio
from collections.abc import Collection, Mapping

import structlog

from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.sync.changes import Changes
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.table import layout, policies, policy_sets
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.netfilter.table_text import Contents

_RANGES_AT_ONCE = 8192
"""Maximum number of address ranges of policies that farms wait for, unless a single policy has more."""

_log = structlog.get_logger()


class PolicyProgrammer:
    """Takes changed policies, and writes them to the kernel."""

    def __init__(self, state: LoopState, engines: Engines, table: AgentTable, changes: Changes) -> None:
        self._state = state
        self._policies = state.policies
        self._engines = engines
        self._table = table
        self._changes = changes

    async def take(self, ranges: float = float("inf")) -> Collection[PolicyKey]:
        """Take changed policies, and queue the farms whose rules change by that. Return these policies.

        ``ranges`` limits how many address ranges the policies have.
        """
        changed: dict[PolicyKey, policy_sets.EnforcedPolicy | None] = {}
        for key, raw in self._policies.take(ranges).items():
            # In a thread, as the largest take half a second.
            changed[key] = await asyncio.to_thread(policy_sets.policy, raw) if raw is not None else None
        self._put(changed)
        for key, policy in changed.items():
            event = "policy taken" if policy is not None else "policy removed"
            _log.info(event, namespace=key.namespace, policy=key.name, farms=self._policies.referring(key))
        return changed.keys()

    def _put(self, changed: Mapping[PolicyKey, policy_sets.EnforcedPolicy | None]) -> None:
        if affected := self._policies.put_all(changed):
            self._state.add(affected, self._state.seen_version + 1)

    async def update(self, now: float) -> dict[str, str]:
        """Write changed policies to the kernel, in one transaction. What farms have does not change by that.

        With them come those that it refused and that are to be tried again ``now``, in seconds of the loop's clock, and
        go those that no rules refer to any more. Return the policies whose ranges the kernel refuses, and why.
        """
        again = self._policies.due(now)
        self._put(again)
        taken = await self.take(_RANGES_AT_ONCE)
        changed = {*again, *taken, *self._policies.gone(self._table.is_used)}
        refused = await self._table.update(self._policies.contents(changed))
        self._policies.done()
        return refused

    def rules(self, name: str) -> Contents:
        """Return the rules that apply policies to a farm where the engine has it."""
        sent = self._engines.sent.get(name)
        listeners = sent.listeners if sent is not None else frozenset[Listener]()
        if self._engines.unreachable:
            # A new agent does not know what an engine has that is away, only where clients are kept out of it.
            listeners |= layout.listeners(self._table.owned(policies.rules_owner(name)))
            listeners = frozenset(each for each in listeners if not self._engines.is_shadowed(each, name))
        return self._changes.rules(self._state.index.key(name), name, listeners)
