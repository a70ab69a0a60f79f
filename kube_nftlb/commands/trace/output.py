"""A passage as text for people, and as JSON. Pure: no I/O."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

from kube_nftlb.commands.trace.passage import Passage, object_name
from kube_nftlb.netfilter.tracing.events import Event
from kube_nftlb.netfilter.tracing.rules import Chain, Rule, chain_of

_ORDER: Final = (
    "connection",
    "policy",
    "source range",
    "traffic policy",
    "limit",
    "queue",
    "farm",
    "session",
    "choice",
    "backend",
    "hairpin",
    "source",
    "reply",
    "probe",
)
"""The order of steps for people: nearly that in which they happen."""


def text(made: Passage, node: str) -> str:
    """Return a passage as lines, the outcome last."""
    where = f" on {node}" if node else ""
    lines = [f"{made.client} → {made.destination} {made.protocol}{where}"]
    rows = [(step.about, step.text) for step in made.steps]
    if made.farm:
        rows.append(("farm", object_name(made.farm) + (f", engine {made.engine}" if made.engine else "")))
    if made.backend:
        rows.append(("backend", made.backend + (f" ({made.backend_name})" if made.backend_name else "")))
    rows.sort(key=lambda row: _ORDER.index(row[0]) if row[0] in _ORDER else -1)
    width = max((len(about) for about, _ in rows), default=0)
    lines.extend(f"  {about:<{width}}  {told}" for about, told in rows)
    if made.outcome is not None:
        lines.append(f"{made.outcome.verdict} ({made.outcome.reason}): {made.outcome.message}")
    return "\n".join(lines)


def document(made: Passage, node: str, events: Iterable[Event], rules: Mapping[tuple[Chain, int], Rule]) -> str:
    """Return a passage as a JSON object, with the rules that the packet matched."""
    told: dict[str, object] = {"node": node, "outcome": made.outcome._asdict() if made.outcome is not None else None}
    told |= {_camel_case(key): value for key, value in asdict(made).items() if key not in ("farm", "steps", "outcome")}
    told["farm"] = object_name(made.farm) if made.farm else ""
    told["steps"] = [step._asdict() for step in made.steps]
    told["events"] = [_event(each, rules) for each in events]
    return json.dumps(told, indent=2, ensure_ascii=False)


def _event(event: Event, rules: Mapping[tuple[Chain, int], Rule]) -> dict[str, object]:
    """Return an event with what its rule consists of, without what is empty."""
    told = {_camel_case(key): value for key, value in event._asdict().items()}
    if event.addresses is not None:
        told["addresses"] = {_camel_case(key): value for key, value in event.addresses._asdict().items()}
    rule = rules.get((chain_of(event), event.rule))
    told["expressions"] = list(rule.expressions) if rule is not None else []
    return {key: value for key, value in told.items() if value not in ("", 0, None, [])}


def _camel_case(name: str) -> str:
    """Return a name as the objects of Kubernetes have it."""
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)
