"""Farms that wait for an nftlb that was away as the agent began: nobody knows where it has them.

The agent table has rules for them, as if nftlb had them as they were when the agent began. Where a farm loses its
rules, because it leaves or another engine gets it, nftlb may go on serving it: all clients of nftlb are refused there.
"""

from collections.abc import Collection, Iterable, Mapping

from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.policies import rules_owner
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Contents

Restricted = Mapping[str, frozenset[Listener]]
"""Where farms have rules, by name."""


class WaitingFarms:
    """Finds where waiting farms lose their rules."""

    def __init__(self, engines: Engines, table: AgentTable) -> None:
        self._engines = engines
        self._table = table
        self._names: set[str] = set()

    def note(self, changes: Collection[FarmChange]) -> None:
        """Note which farms wait once these changes are done."""
        self._names.difference_update(each.name for each in changes)
        self._names.update(each.name for each in changes if each.keep and each.name not in self._engines.sent)

    def restricted(self, changes: Iterable[FarmChange]) -> Restricted:
        """Return where farms that are to change, and have waited for nftlb, have rules now."""
        if not (self._engines.unreachable and self._names):
            return {}
        return {each.name: self._listeners(each.name, {}) for each in changes if each.name in self._names}

    def lost(self, changes: Iterable[FarmChange], before: Restricted, after: Mapping[str, Contents]) -> Contents:
        """Return what refuses clients where farms had rules ``before``, and have none ``after`` their change."""
        lost = (
            before[each.name] - (self._listeners(each.name, after) if each.keep else frozenset())
            for each in changes
            if each.name in before
        )
        return layout.given_up(frozenset().union(*lost))

    def _listeners(self, name: str, after: Mapping[str, Contents]) -> frozenset[Listener]:
        contents = (after.get(owner, self._table.owned(owner)) for owner in (name, rules_owner(name)))
        return frozenset().union(*map(layout.listeners, contents))
