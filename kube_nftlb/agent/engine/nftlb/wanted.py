"""The desired contents of nftlb and of the agent table for changes of farms. Pure: no I/O."""

from collections.abc import Iterable, Mapping, Sequence

import structlog

from kube_nftlb.agent.engine.base import FarmChange
from kube_nftlb.agent.engine.nftlb import steering
from kube_nftlb.agent.engine.nftlb.translate import listeners, translate
from kube_nftlb.agent.table import layout, policies
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.netfilter.transaction import Contents
from kube_nftlb.nftlb import objects

_log = structlog.get_logger()

Target = objects.Farm | None
"""A farm as nftlb is to have it, or None if it is to go."""


class Wanted:
    """Works out targets from what nftlb has (``present``) and what the agent table has."""

    def __init__(self, present: Mapping[str, objects.Farm], table: AgentTable) -> None:
        self._present = present
        self._table = table
        self.untranslatable: dict[str, str] = {}
        """Farms that could not be translated by the last call of ``targets``, and why."""

    def rules(self, changes: Sequence[FarmChange]) -> dict[str, Contents]:
        """See ``Engine.rules``."""
        targets = self.targets(changes)
        wanted = {listener for farm in targets.values() if farm is not None for listener in listeners(farm)}
        rules = {}
        for change in changes:
            contents = self.overlay(change, targets[change.name], self._present.get(change.name))
            # Refuse clients where nftlb listens but no farm should: a new agent does not know why nftlb does.
            if before := self._present.get(change.name):
                contents = layout.refused(set(listeners(before)) - wanted) | contents
            rules[change.name] = contents
            rules[policies.rules_owner(change.name)] = change.policies
        return rules

    def targets(self, changes: Iterable[FarmChange]) -> dict[str, Target]:
        """Return what nftlb is to have, by name."""
        self.untranslatable.clear()
        targets: dict[str, Target] = {}
        for change in changes:
            before = self._present.get(change.name)
            if change.farm is None or change.keep:
                targets[change.name] = before if change.keep else None
                continue
            try:
                targets[change.name] = translate(change.farm, before)
            except Exception as error:
                # One unexpected farm must not end the service of all others.
                _log.exception("cannot translate a farm", farm=change.name)
                self.untranslatable[change.name] = f"unexpected error: {error!r}"
                targets[change.name] = before
        return targets

    def overlay(self, change: FarmChange, wanted: Target, present: Target) -> Contents:
        """Return a farm's part of the agent table while nftlb has ``present`` of it."""
        if change.overlay is None:
            return self._table.owned(change.name)
        if change.farm is None or wanted is None:
            return change.overlay
        return change.overlay | steering.contents(change.farm, wanted, present)


def incomplete(changes: Iterable[FarmChange], targets: Mapping[str, Target]) -> set[str]:
    """Return the farms that lack backends because all marks are in use until others are gone."""
    return {
        change.name
        for change in changes
        if change.farm is not None
        and not (change.keep or change.farm.suspended or change.farm.spec.mode == "local")
        and (target := targets[change.name]) is not None
        and len(target.backends) < len(change.farm.endpoints)
    }
