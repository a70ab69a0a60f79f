"""The rules of both engines in words. Pure: no I/O."""

import re
from typing import Final

from kube_nftlb.agent.engine.nftables import layout as nftables_layout
from kube_nftlb.agent.engine.nftables import scheduling
from kube_nftlb.agent.engine.nftables.affinity import Known, Memory, Pick
from kube_nftlb.agent.engine.nftables.choice import Choice
from kube_nftlb.agent.engine.nftables.groups import Draw
from kube_nftlb.agent.engine.nftables.scheduling import Schedule
from kube_nftlb.commands.trace import outcomes
from kube_nftlb.commands.trace.result import TraceResult
from kube_nftlb.netfilter.tracing.events import Event
from kube_nftlb.netfilter.tracing.rules import Rule, Rules, chain_of
from kube_nftlb.nftlb import layout as nftlb_layout

_NONE = Rule(())
_FILTER = re.compile(r"filter-(?P<farm>.+)")
_NAT = re.compile(r"nat-(?P<farm>.+)")
_BASE_CHAINS: Final = frozenset(nftlb_layout.BASE_CHAINS.values())
_SCHEDULERS: Final = {
    "numgen 0": "rr, in turn",
    "numgen 1": "weight, at random",
    "hash 0": "hash",
    "hash 1": "symhash",
}
"""The schedulers of nftlb's rules, by expression."""
_NUMBERED: Final = frozenset(
    nftables_layout.name(map_, family, all_ports=all_ports)
    for map_ in (nftables_layout.PICKS, nftables_layout.ENDPOINTS, nftables_layout.STICKY_ENDPOINTS)
    for family in nftables_layout.FAMILIES
    for all_ports in (False, True)
)
"""The chains that look up the endpoint with a number."""
_KINDS: Final = {"rr": "rr, in turn", "random": "weight, at random", "symhash": "symhash"}


class NftlbReader:
    """Reads the events of one packet in nftlb's table of its family."""

    def __init__(self, result: TraceResult, rules: Rules) -> None:
        self._result = result
        self._rules = rules
        self._had_session = False

    def read(self, event: Event) -> None:
        """Add what an event tells."""
        result = self._result
        if event.verdict == "goto" and event.chain in _BASE_CHAINS:
            if found := _FILTER.fullmatch(event.to) or _NAT.fullmatch(event.to):
                result.serve(found["farm"], "nftlb")
                result.engine = "nftlb"
        elif event.rule and (found := _FILTER.fullmatch(event.chain)):
            self._choice(event, found["farm"])
        elif not event.rule and _NAT.fullmatch(event.chain) and not result.established:
            text = "its mark leads to no backend: that of its session is gone, or another program set the mark"
            result.step("backend", text, event.chain)

    def _choice(self, event: Event, farm: str) -> None:
        rule = self._rules.get((chain_of(event), event.rule), _NONE)
        if rule.looks_up(nftlb_layout.static_sessions_map(farm)):
            self._result.step("choice", "the client has a fixed session", event.chain)
        elif rule.looks_up(nftlb_layout.sessions_map(farm)):
            self._had_session = True
            self._result.step("choice", "the client's session: the backend that it had", event.chain)
        elif scheduler := next((_SCHEDULERS[each] for each in rule.expressions if each in _SCHEDULERS), ""):
            self._result.step("choice", f"the scheduler: {scheduler}", event.chain)
        elif f"dynset {nftlb_layout.sessions_map(farm)}" in rule.expressions and not self._had_session:
            self._result.step("session", "the choice is remembered for the client", event.chain)


class NftablesReader:
    """Reads the events of one packet in the table of the engine nftables."""

    def __init__(self, result: TraceResult, rules: Rules, farm: str) -> None:
        """``farm`` is the name on the node of the farm at the packet's destination; empty if there is none."""
        self._result = result
        self._rules = rules
        self._farm = farm
        self._remembers = False
        self._drawn = False

    def read(self, event: Event) -> None:
        """Add what an event tells."""
        if event.kind != "rule" or not event.rule:
            return
        first = event.chain in ("prerouting", "output")
        chooses = first or event.chain in (nftables_layout.INSIDE, nftables_layout.OUTSIDE)
        if chooses and (event.verdict in ("goto", "jump", "drop")):
            self._result.serve(self._farm, "nftables")
            self._result.engine = "nftables"
            if event.verdict == "drop":
                self._result.outcome = self._result.outcome or outcomes.NO_LOCAL_BACKEND
        if event.chain == "output" and event.verdict == "return":
            self._result.step("farm", "it does not serve the node itself (intraConnect is false)", event.chain)
        if event.chain == nftables_layout.REFUSE and event.verdict == "drop":
            nobody = outcomes.GROUP_REFUSED if self._drawn else outcomes.NO_READY_BACKENDS
            self._result.outcome = self._result.outcome or nobody
        self._choice(event)

    def _choice(self, event: Event) -> None:
        try:
            chain = scheduling.parse(event.chain)
        except ValueError:
            if event.verdict == "drop" and event.chain in _NUMBERED:
                self._result.outcome = self._result.outcome or outcomes.LAST_BACKEND_GONE
            return
        if isinstance(chain, Draw):
            self._group(event, chain)
        elif isinstance(chain, Schedule | Pick):
            if chain.choice.group is not None:
                self._result.step("group", f"that of spec.backendsFrom[{chain.choice.group}]", event.chain)
            self._result.step("choice", f"the scheduler: {_words(chain.choice)}", event.chain)
        elif isinstance(chain, Known):
            self._known(event, chain)
        elif isinstance(chain, Memory):
            self._memory(event, chain)

    def _group(self, event: Event, chain: Draw) -> None:
        self._drawn = True
        how = "at random" if chain.draw == "random" else f"by {chain.draw.replace('-', ' of ').replace('.', ' ')}"
        self._result.step("group", f"drawn by weight, {how}", event.chain)
        if event.verdict == "drop":
            self._result.outcome = self._result.outcome or outcomes.GROUP_DROPPED

    def _known(self, event: Event, chain: Known) -> None:
        if event.verdict != "accept":
            return
        rule = self._rules.get((chain_of(event), event.rule), _NONE)
        fixed = rule.looks_up(f"{nftables_layout.SESSIONS}-{chain.family}")
        text = "the client has a fixed session" if fixed else "the client's session: the backend that it had"
        self._result.step("choice", text, event.chain)

    def _memory(self, event: Event, chain: Memory) -> None:
        rule = self._rules.get((chain_of(event), event.rule), _NONE)
        self._remembers |= rule.looks_up(nftables_layout.affinity_map(chain.family, chain.namespace))
        if event.verdict != "goto":
            return
        text = f"the choice is remembered for the client, for {chain.ttl_s} s"
        if not self._remembers:
            text = f"the choice is not remembered: the namespace {chain.namespace} remembers as many clients as it may"
        self._result.step("session", text, event.chain)


def _words(choice: Choice) -> str:
    if choice.modulus == 1:
        return "there is one backend"
    return f"hash of {choice.fields}" if choice.kind == "hash" else _KINDS[choice.kind]
