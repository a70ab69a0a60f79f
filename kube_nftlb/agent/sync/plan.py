"""Plan a batch: one decision for each farm, and the changes that follow from it. Pure: no I/O, no clock.

A farm on which it cannot decide is logged, and has a problem.

Whatever triggered it, a farm is decided on once. With it come the farms that have an address which it is to get: those
that cannot change keep it, the others leave it in the same batch. So do those that are to get what it leaves: else
nobody would have it until their turn.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from kube_nftlb import __version__, names
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.modes import PodVip
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.model import Blocker, NodeFarm, SentFarm
from kube_nftlb.agent.sync.changes import Changes, FarmChange
from kube_nftlb.agent.sync.decide import Decision, Facts, Keep, Serve, Withdraw, avoid, decide, stays
from kube_nftlb.agent.sync.load_balancers import InKernel, in_kernel
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.policies import rules_owner
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Contents
from kube_nftlb.prose import some_of

_log = structlog.get_logger()


class Served(Protocol):
    """What the engines have and can do."""

    @property
    def sent(self) -> Mapping[str, SentFarm]:
        """The farms of all engines, by name."""

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        """Return the farms that an engine has on any of these listeners."""

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """Return why the engine of a farm cannot serve it, or None."""


class Known(NamedTuple):
    """What a plan is made of."""

    facts: Callable[[FarmKey], Facts]
    key: Callable[[str], FarmKey | None]
    """Returns the farm with a name on the node; None if nobody knows it."""
    owners: Callable[[Listener], Collection[FarmKey]]
    """Returns the farms that are to have a listener, or parts of it."""
    served: Served
    owned: Callable[[str], Contents]
    """Returns what the agent table has of an owner."""
    changes: Changes


class Expected(NamedTuple):
    """What is needed of a plan until the kernel has it: not the farm itself, as thousands may wait to be compared."""

    serves: bool
    withdraws: bool
    generation: int
    """Of the spec that was decided on."""
    problem: Problem | None
    warnings: tuple[str, ...]
    in_kernel: InKernel | None
    """What clients from outside meet then."""
    drops: bool
    """True if clients are dropped then (``NodeFarm.drops``)."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of a farm."""

    key: FarmKey | None
    """None if nobody knows the farm."""
    farm: Farm | None
    """The spec that was decided on."""
    decision: Decision
    change: FarmChange
    pod_vips: frozenset[PodVip] | None
    """The addresses that pods need for it; None if they keep what they have."""

    @property
    def expected(self) -> Expected:
        """What is to be verified."""
        serves = isinstance(self.decision, Serve)
        drops = isinstance(self.decision, Serve) and self.decision.farm.drops
        warnings = tuple(_warnings(self.farm)) if serves and self.farm is not None else ()
        withdraws = isinstance(self.decision, Withdraw)
        generation = self.farm.metadata.generation if self.farm is not None else 0
        return Expected(serves, withdraws, generation, self.decision.problem, warnings, self.in_kernel, drops)

    @property
    def in_kernel(self) -> InKernel | None:
        """What clients from outside meet once the farm is programmed; None if it has no load balancer address."""
        return in_kernel(self.decision.farm) if isinstance(self.decision, Serve) else None


Plan = Mapping[str, Planned]
"""What becomes of the farms of a batch, by name on the node."""


def plan(keys: Iterable[FarmKey], known: Known) -> Plan:
    """Return the plan for these farms, and for those that must leave an address first, or are to get one then."""
    decisions = _Decisions(known)
    planned: dict[str, Planned] = {}
    waiting = deque(names.node_farm_name(*key) for key in keys)
    while waiting:
        if (name := waiting.popleft()) not in planned:
            planned[name] = each = decisions.planned(name)
            if not each.change.keep:
                listeners = set(each.change.farm.listeners if each.change.farm is not None else ())
                waiting.extend(known.served.owners(listeners) - planned.keys())
                waiting.extend(_successors(name, listeners, known) - planned.keys())
    return planned


def _successors(name: str, listeners: Collection[Listener], known: Known) -> set[str]:
    """Return the farms that are to get what a farm leaves as it comes to have just these listeners."""
    sent = known.served.sent.get(name)
    given_up = sent.listeners.difference(listeners) if sent is not None else ()
    return {names.node_farm_name(*key) for listener in given_up for key in known.owners(listener)}


class _Decisions:
    """The decisions of a batch, each of which is made once."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._entries: dict[FarmKey, tuple[Facts, Decision]] = {}

    def planned(self, name: str) -> Planned:
        known, key = self._known, self._known.key(name)
        facts, decision = self._alone(key) if key is not None else (Facts(None), Withdraw())
        if isinstance(decision, Serve):
            decision = avoid(decision, self._stuck(name, list(decision.farm.listeners)))
        sent = known.served.sent.get(name)
        limited = layout.listeners(known.owned(rules_owner(name))) if sent is None else frozenset[Listener]()
        change = known.changes.make(key, name, decision, facts, sent, owned=known.owned(name), limited=limited)
        return Planned(key, facts.farm, decision, change, _pod_vips(decision, facts))

    def _alone(self, key: FarmKey) -> tuple[Facts, Decision]:
        if (entry := self._entries.get(key)) is None:
            entry = self._entries[key] = self._decided(key)
        return entry

    def _decided(self, key: FarmKey) -> tuple[Facts, Decision]:
        facts = self._known.facts(key)
        try:
            return facts, decide(facts, self._known.served.unsupported)
        except Exception as error:
            # One unexpected farm must not end the service of all others.
            _log.exception("cannot decide on a farm", namespace=key.namespace, farm=key.name)
            generation = facts.farm.metadata.generation if facts.farm is not None else 0
            return facts, Keep(Problem("Unsupported", f"unexpected error: {error!r}", generation))

    def _stuck(self, name: str, wanted: Collection[Listener]) -> dict[Listener, str]:
        """Return which of these listeners other farms have that stay as they are, and their names."""
        served = self._known.served
        stuck = {owner for owner in served.owners(wanted) - {name} if self._stays(owner)}
        if not stuck:
            return {}
        return {each: min(found) for each in wanted if (found := served.owners([each]) & stuck)}

    def _stays(self, owner: str) -> bool:
        if (key := self._known.key(owner)) is None:
            return False
        sent = self._known.served.sent.get(owner)
        return stays(self._alone(key)[1], sent.engine if sent is not None else None)


def _pod_vips(decision: Decision, facts: Facts) -> frozenset[PodVip] | None:
    if isinstance(decision, Keep):
        return None
    if not isinstance(decision, Serve) or decision.farm.spec.mode != "dsr" or decision.farm.direct is None:
        return frozenset()
    return modes.pod_vips(decision.farm.spec, {address.ip for address in decision.farm.addresses}, facts.links)


def _warnings(farm: Farm) -> Iterator[str]:
    """Say what of a farm has no effect on this node."""
    if farm.unknown:
        message = f"{some_of(farm.unknown)}: this agent ({__version__}) does not know the field, so it has no effect"
        yield f"{message} on this node; upgrade the agents"
    if (warning := selection.warning(farm.spec)) is not None:
        yield warning
