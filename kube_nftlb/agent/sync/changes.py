"""Turn decisions into changes of engines and of the agent table. Pure: no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kube_nftlb.agent.model import NodeFarm, SentFarm
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.decide import Decision, Facts, Keep, Serve
from kube_nftlb.agent.table import farm_options, layout, source_ranges
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.api.conflicts import FarmKey, lost_listeners
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Contents


@dataclass(frozen=True, slots=True)
class FarmChange:
    """The change of one farm.

    ``farm`` is None if it is withdrawn. With ``keep`` its engine leaves it as it is. ``overlay`` is the farm's part of
    the agent table once the change is applied, beside what its engine needs there; None leaves what is there.
    ``policies`` keep clients out wherever the farm listens before or after the change, ``policies_after`` once it is
    applied.
    """

    name: str
    farm: NodeFarm | None = None
    keep: bool = False
    overlay: Contents | None = field(default_factory=Contents)
    policies: Contents = field(default_factory=Contents)
    policies_after: Contents = field(default_factory=Contents)

    @property
    def is_withdrawal(self) -> bool:
        """True if the farm is to go."""
        return self.farm is None and not self.keep


class Changes:
    """Turns decisions into changes, with the current policies."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    def make(
        self,
        key: FarmKey | None,
        name: str,
        decision: Decision,
        facts: Facts,
        sent: SentFarm | None,
        *,
        owned: Contents,
        limited: frozenset[Listener] = frozenset(),
    ) -> FarmChange:
        """Return the change for the farm of this name on the node. ``owned`` is what the agent table has of it.

        ``limited`` are the listeners at which it has rules for policies, where nobody knows where its engine has it.
        """
        now = sent.listeners if sent is not None else frozenset()
        if isinstance(decision, Serve):
            farm = decision.farm
            then = frozenset(farm.listeners)
            return FarmChange(
                name,
                farm,
                overlay=_options(name, farm),
                policies=self.rules(key, name, now | then),
                policies_after=self.rules(key, name, then),
            )
        if isinstance(decision, Keep) and decision.is_engine_away and facts.farm is not None:
            farm = node_farm(facts.farm, facts.node, facts.links, lost_listeners(facts.loss))
            policies = self.rules(key, name, now | limited | frozenset(farm.listeners))
            if owned:
                overlay = source_ranges.renewed(owned, farm)
                return FarmChange(name, keep=True, overlay=overlay, policies=policies, policies_after=policies)
            # A new agent does not know what the farm had, and its engine cannot tell.
            options = _options(name, farm)
            return FarmChange(name, farm, keep=True, overlay=options, policies=policies, policies_after=policies)
        policies = self.rules(key, name, now)
        if isinstance(decision, Keep) and sent is not None:
            if owned:
                return FarmChange(name, keep=True, overlay=None, policies=policies, policies_after=policies)
            farm_, overlay = self._as_it_was(name, facts, sent)
            return FarmChange(name, farm_, keep=True, overlay=overlay, policies=policies, policies_after=policies)
        return FarmChange(name, policies=policies)

    def rules(self, key: FarmKey | None, name: str, listeners: Iterable[Listener]) -> Contents:
        """Return the rules that apply the policies of a farm at these listeners."""
        return self._policies.rules(key, name, listeners) if key is not None else Contents()

    def _as_it_was(self, name: str, facts: Facts, sent: SentFarm) -> tuple[NodeFarm | None, Contents]:
        """Return what a kept farm gets from a restarted agent, which does not know what it had: less if in doubt.

        A restarted agent only knows the current spec, if it can parse it.
        """
        refused = layout.refused(sent.listeners)
        if facts.farm is None or not facts.readable:
            return None, refused if facts.restricted or sent.refuses else Contents()
        if facts.rules_refused is not None:
            return None, refused
        farm = node_farm(facts.farm, facts.node, facts.links, lost_listeners(facts.loss))
        possible = facts.farm.spec.model_copy(update={"helper": "none", "queue": None})
        overlay = farm_options.contents(possible, name, sent.listeners)
        return farm, (overlay | refused) if sent.refuses else overlay


def _options(name: str, farm: NodeFarm) -> Contents:
    return farm_options.contents(farm.spec, name, farm.listeners)
