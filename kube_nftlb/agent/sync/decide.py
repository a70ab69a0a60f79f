"""Decide what to do about each farm on this node. Pure: no I/O, no clock.

One decision per farm: serve it, keep it as it is, or withdraw it. Everything else follows from the decisions: the
changes for the engine, and the node's status.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.modes import Links
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm, without
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.api.conflicts import FarmKey, Loss, lost_listeners
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.farm.engines import Engine
from kube_nftlb.api.listeners import Listener
from kube_nftlb.reasons import FailureReason

Unsupported = Callable[[NodeFarm], Blocker | None]
"""Returns why the engine cannot serve a farm (``Engine.unsupported``)."""

_SEE_OWNER = "that farm stays as it is because this agent cannot apply its spec; fix or delete it"

_FEATURE_RETRY_S = 60.0
"""After so many seconds a feature that the kernel lacks is looked for again: a module may have been loaded."""


class Facts(NamedTuple):
    """Everything that a decision on a farm depends on."""

    farm: Farm | None
    """The last valid spec; None if the farm is gone, or never had one."""
    readable: bool = True
    """False if its newest spec cannot be parsed."""
    loss: Loss | None = None
    """The listeners that other farms have."""
    too_large: str | None = None
    """Reason it does not fit the limits for elements in nftables."""
    rules_refused: str | None = None
    """Reason the kernel refused its rules in the agent table."""
    refused: str | None = None
    """Reason it stays as it was, as a message: the engine or the kernel refused its last change a short while ago."""
    backing_off: bool = False
    """True if it failed a short while ago and is not retried yet."""
    missing_feature: str | None = None
    """The kernel features that it lacks, as a message."""
    node: NodeFacts = NodeFacts()
    links: Links = modes.NO_LINKS
    restricted: bool = False
    """True if its newest spec cannot be parsed, but has source ranges or limits."""
    of_same_service: frozenset[FarmKey] = frozenset()
    """The farms of the same Service that have listeners of it: it gets them when the operator has written those too."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve the farm; with a problem if it is not served as requested. ``look_again`` after a while."""

    farm: NodeFarm
    problem: Problem | None = None
    look_again: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the farm as it is on this node, if it is there; decide again after some seconds, if any are given."""

    problem: Problem | None = None
    retry_after_s: float | None = None

    @property
    def is_engine_away(self) -> bool:
        """True if the farm waits for its engine."""
        return self.problem is not None and self.problem.waits


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Do not serve the farm; ``retry`` after a while."""

    problem: Problem | None = None
    retry: bool = False
    lasts: bool = False
    """True if it is not served until it is changed, or another farm is."""


Decision = Serve | Keep | Withdraw


def avoid(decision: Serve, stuck: Mapping[Listener, str]) -> Serve | Withdraw:
    """Serve a farm without the listeners of farms that stay as they are, which are given by name."""
    if not stuck:
        return decision
    rest = replace(decision.farm, addresses=tuple(without(decision.farm.addresses, stuck.keys())))
    first = min(stuck)
    message = f"{stuck[first]} still has {_shown(first)}: {_SEE_OWNER}"
    problem = Problem("AddressInUse", message, decision.farm.version.generation)
    return Serve(rest, problem, look_again=True) if rest.addresses else Withdraw(problem, retry=True)


def stays(decision: Decision, sent_by: Engine | None) -> bool:
    """Return True if a farm stays as it is by this decision, so that no other farm can get an address of it.

    One that nftlb has can lose it while nftlb is away: whoever is to be served has the engine nftables, which comes
    first. One that is to move to nftlb is still in nftables.
    """
    return isinstance(decision, Keep) and not (decision.is_engine_away and sent_by != "nftables")


def decide(facts: Facts, unsupported: Unsupported) -> Decision:
    """Decide what to do about a farm, if no other farm is stuck on its listeners (see ``avoid``)."""
    farm = facts.farm
    if not facts.readable:
        return Keep()
    if farm is None:
        return Withdraw()
    lost = _lost_here(farm, facts)
    if facts.loss is not None and facts.loss.everything:
        return Withdraw(lost, lasts=True)
    if facts.too_large is not None:
        return Withdraw(_problem(farm, "TooManyElements", facts.too_large), lasts=True)
    if (refusal := _refusal(facts)) is not None:
        return Keep(_problem(farm, "Refused", refusal))
    if facts.backing_off:
        return Withdraw()
    if facts.missing_feature is not None:
        return Keep(_problem(farm, "KernelFeatureMissing", facts.missing_feature), _FEATURE_RETRY_S)
    served = node_farm(farm, facts.node, facts.links, lost_listeners(facts.loss))
    if (blocker := _blocker(served, facts.links, unsupported)) is None:
        return Serve(served, lost)
    problem = _problem(farm, blocker.reason, blocker.message)
    if not blocker.refuse_clients:
        return Keep(problem, blocker.retry_after_s)
    return Serve(replace(served, endpoints=(), direct=None, suspended=True), problem)


def _refusal(facts: Facts) -> str | None:
    if facts.rules_refused is not None:
        return f"the kernel refused rules of this farm: {facts.rules_refused}; it stays as it was"
    return facts.refused


def _blocker(farm: NodeFarm, links: Links, unsupported: Unsupported) -> Blocker | None:
    return modes.unusable_settings(farm.spec) or unsupported(farm) or modes.blocker(farm.spec, links)


def _lost_here(farm: Farm, facts: Facts) -> Problem | None:
    """Return a problem for conflicts on addresses of this node; the operator reports the others."""
    conflicts = facts.loss.conflicts if facts.loss is not None else ()
    ips = facts.node.port_ips.get(farm.spec.family, ())
    here = [each for each in conflicts if each.lost.ip in ips and each.winner not in facts.of_same_service]
    if not here:
        return None
    winner, _, lost = here[0]
    more = f" (and {len(here) - 1} more)" if len(here) > 1 else ""
    message = f"farm {'/'.join(winner)} has {_shown(lost)}, an address of this node{more}"
    return _problem(farm, "AddressInUse", message)


def _shown(listener: Listener) -> str:
    return f"{listener.ip} port {listener.port} {listener.protocol}" if listener.port else listener.ip


def _problem(farm: Farm, reason: FailureReason, message: str) -> Problem:
    return Problem(reason, message, farm.metadata.generation)
