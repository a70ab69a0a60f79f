"""The rules of the agent table in words. Pure: no I/O."""

import re
from typing import Final

from kube_nftlb.agent.table import layout
from kube_nftlb.commands.trace import outcomes
from kube_nftlb.commands.trace.result import LIMITS, Outcome, TraceResult, object_name
from kube_nftlb.netfilter.tracing.events import Event
from kube_nftlb.netfilter.tracing.rules import Chain, Rule, Rules, chain_of

_POLICY = re.compile(r"policy-(?P<farm>.+)-[0-9a-f]{10}")
_POLICY_SET = re.compile(rf"({layout.DENIED}|{layout.ALLOWED})-(?P<key>.+)-ip6?")
_SOURCE_RANGES = re.compile(rf"{layout.SOURCE_RANGES}-[0-9a-f]{{10}}-(?P<farm>.+)")
_LOCAL_CLIENTS = re.compile(r"local-clients-(?P<farm>.+)")
_SCHEDULE = re.compile(r"schedule-(?P<farm>.+)")
_REFUSED_SHARE = re.compile(r"refused-share-(?P<farm>.+)")
_OVER = re.compile(rf"over-(?P<kind>{'|'.join(LIMITS)})-(?P<farm>.+)")
_BACKEND_LIMIT = re.compile(r"[0-9a-f]{8}-(?P<farm>.+)")
_OPTION_CHAINS: Final = (layout.CONNECTIONS, layout.RESETS, layout.INVALIDS, layout.FORWARDED, layout.LEAVING)
_NONE = Rule(())


class AgentTableReader:
    """Reads the events of one packet in the agent table."""

    def __init__(self, result: TraceResult, rules: Rules) -> None:
        self._result = result
        self._rules = rules
        self._from = ""
        """The chain that the packet came from to ``refuse`` or to the limit of a backend."""
        self._policies: Chain | None = None
        """The chain for the farm's policies that it came to."""

    def read(self, event: Event) -> None:
        """Add what an event tells."""
        if event.kind != "rule":
            return
        if event.verdict in ("jump", "goto"):
            if event.chain.startswith(("new-", "unserved", layout.LEAVING)):
                self._from = event.chain
            self._name_farm(event.to)
        if _REFUSED_SHARE.fullmatch(event.chain) and event.verdict in ("goto", "drop"):
            self._end(outcomes.GROUP_DROPPED if event.verdict == "drop" else outcomes.GROUP_REFUSED)
        self._refusing(event)
        self._policy(event)
        self._source_range(event)
        self._local_client(event)
        self._limit(event)
        self._options(event)

    def _name_farm(self, chain: str) -> None:
        for pattern in (_POLICY, _SOURCE_RANGES, _LOCAL_CLIENTS, _SCHEDULE, _REFUSED_SHARE):
            if found := pattern.fullmatch(chain):
                self._result.serve(found["farm"], "")
        for prefix in _OPTION_CHAINS:
            if chain.startswith(f"{prefix}-"):
                self._result.serve(chain.removeprefix(f"{prefix}-"), "")

    def _end(self, outcome: Outcome) -> None:
        if self._result.outcome is None:
            self._result.outcome = outcome

    def _refusing(self, event: Event) -> None:
        if event.chain == "refuse" and event.verdict == "drop":
            if self._from.startswith("unserved"):
                self._end(outcomes.NO_SUCH_SERVICE)
            else:
                self._end(outcomes.NO_READY_BACKENDS)
        elif event.chain == "no-connection":
            self._end(outcomes.NO_CONNECTION)
        elif event.verdict == "drop" and self._rule(event).sets(layout.SERVED_ADDRESSES):
            self._end(outcomes.NO_SUCH_ADDRESS)
        elif event.chain.startswith("unserved") and event.verdict == "drop":
            text = "nftlb has not programmed its rules, as after its start: the client is served when it tries again"
            self._end(Outcome("Dropped", "RulesIncomplete", text))
        elif event.chain.startswith("new-") and event.verdict == "drop":
            self._end(outcomes.NO_LOCAL_BACKEND)

    def _policy(self, event: Event) -> None:
        if event.chain.startswith(f"{layout.ALONE}-") or _POLICY.fullmatch(event.chain) is not None:
            self._policies = chain_of(event)
        elif not event.chain.startswith(f"{layout.NOT_ALLOWED}-"):
            return
        named = "".join(_policy_names(self._rule(event))[:1])
        if event.verdict == "drop":
            self._end(outcomes.denied([named]) if named else self._not_admitted())
        elif event.verdict == "return":
            self._result.step("policy", outcomes.admitted([named]), event.chain)
        elif event.rule == 0 and chain_of(event) == self._policies:
            self._result.step("policy", outcomes.admitted([]), event.chain)

    def _not_admitted(self) -> Outcome:
        """Return why a client is dropped that is on no list: there are allow lists, or a policy is missing."""
        lists = {name for (of, _), rule in self._rules.items() if of == self._policies for name in _policy_names(rule)}
        return outcomes.not_admitted(lists) if lists else outcomes.POLICY_MISSING

    def _source_range(self, event: Event) -> None:
        if _SOURCE_RANGES.fullmatch(event.chain) is None:
            return
        if event.verdict == "drop":
            self._end(outcomes.OUTSIDE_SOURCE_RANGES)
        elif event.verdict == "return":
            self._result.step("source range", "the client is in a source range", event.chain)

    def _local_client(self, event: Event) -> None:
        if _LOCAL_CLIENTS.fullmatch(event.chain) is None:
            return
        if event.verdict == "drop":
            self._end(outcomes.NO_LOCAL_BACKEND)
        elif event.verdict in ("return", "goto"):
            text = "a client of this node: any backend, in spite of the traffic policy Local"
            self._result.step("traffic policy", text, event.chain)
        if event.verdict == "goto":
            self._result.step("choice", "the agent's rules chose, as the scheduler would", event.to)

    def _limit(self, event: Event) -> None:
        if (found := _OVER.fullmatch(event.chain)) is None:
            return
        kind, farm = found["kind"], found["farm"]
        of_backend = _BACKEND_LIMIT.fullmatch(farm) if self._from.startswith(layout.LEAVING) else None
        name = "the backend's established" if of_backend else LIMITS[kind]
        self._result.serve(of_backend["farm"] if of_backend else farm, "")
        if event.verdict == "drop":
            self._end(Outcome("Dropped", "LimitReached", f"above the limit: {name}"))
        elif event.rule:
            self._result.step("limit", f"above the limit, and logged: {name}", event.chain)

    def _options(self, event: Event) -> None:
        if event.verdict == "queue":
            self._result.step("queue", "a program inspects the packet, and may drop it", event.chain)
        if event.chain == "source" and event.verdict == "accept":
            self._result.step("source", "the farm's own source address", event.chain)

    def _rule(self, event: Event) -> Rule:
        return self._rules.get((chain_of(event), event.rule), _NONE)


def _policy_names(rule: Rule) -> list[str]:
    """Return the names of the policies whose sets a rule looks up."""
    found = map(_POLICY_SET.fullmatch, rule.sets(""))
    return [object_name(each["key"]) for each in found if each is not None]
