"""What happened to a packet, as text for people and as JSON. Pure: no I/O."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

from kube_nftlb.commands.trace.result import TraceResult, object_name
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


def text(result: TraceResult, node: str) -> str:
    """Return a result as lines, the outcome last."""
    where = f" on {node}" if node else ""
    lines = [f"{result.client} → {result.destination} {result.protocol}{where}"]
    rows = [(step.about, step.text) for step in result.steps]
    if result.farm:
        rows.append(("farm", object_name(result.farm) + (f", engine {result.engine}" if result.engine else "")))
    if result.backend:
        rows.append(("backend", result.backend + (f" ({result.backend_name})" if result.backend_name else "")))
    rows.sort(key=lambda row: _ORDER.index(row[0]) if row[0] in _ORDER else -1)
    width = max((len(about) for about, _ in rows), default=0)
    lines.extend(f"  {about:<{width}}  {words}" for about, words in rows)
    if result.outcome is not None:
        lines.append(f"{result.outcome.verdict} ({result.outcome.reason}): {result.outcome.message}")
    return "\n".join(lines)


def as_json(result: TraceResult, node: str, events: Iterable[Event], rules: Mapping[tuple[Chain, int], Rule]) -> str:
    """Return a result as a JSON object, with the rules that the packet matched."""
    fields = asdict(result)
    for name in ("farm", "steps", "outcome"):
        del fields[name]
    document: dict[str, object] = {
        "node": node,
        "outcome": result.outcome._asdict() if result.outcome is not None else None,
        **{_camel_case(name): value for name, value in fields.items()},
        "farm": object_name(result.farm) if result.farm else "",
        "steps": [step._asdict() for step in result.steps],
        "events": [_event(each, rules) for each in events],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _event(event: Event, rules: Mapping[tuple[Chain, int], Rule]) -> dict[str, object]:
    """Return an event with what its rule consists of, without what is empty."""
    document = {_camel_case(key): value for key, value in event._asdict().items()}
    if event.addresses is not None:
        document["addresses"] = {_camel_case(key): value for key, value in event.addresses._asdict().items()}
    rule = rules.get((chain_of(event), event.rule))
    document["expressions"] = list(rule.expressions) if rule is not None else []
    return {key: value for key, value in document.items() if value not in ("", 0, None, [])}


def _camel_case(name: str) -> str:
    """Return a name as the objects of Kubernetes have it."""
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)
