"""A passage as text for people, and as JSON. Pure: no I/O."""

import json
from dataclasses import asdict

from kube_nftlb.commands.trace.passage import Passage, object_name


def text(made: Passage, node: str) -> str:
    """Return a passage as lines, the outcome last."""
    where = f" on {node}" if node else ""
    lines = [f"{made.client} → {made.destination} {made.protocol}{where}"]
    rows = [(step.about, step.text) for step in made.steps]
    if made.farm or made.engine:
        place = next((at for at, row in enumerate(rows) if row[0] in ("choice", "session", "hairpin", "source")), len(rows))
        rows.insert(place, ("farm", f"{_farm(made)}, engine {made.engine}" if made.engine else _farm(made)))
    if made.backend:
        place = next((at for at, row in enumerate(rows) if row[0] in ("hairpin", "source", "reply", "probe")), len(rows))
        rows.insert(place, ("backend", made.backend + (f" ({made.backend_name})" if made.backend_name else "")))
    width = max((len(about) for about, _ in rows), default=0)
    lines.extend(f"  {about:<{width}}  {told}" for about, told in rows)
    if made.outcome is not None:
        lines.append(f"{made.outcome.verdict} ({made.outcome.reason}): {made.outcome.message}")
    return "\n".join(lines)


def document(made: Passage, node: str) -> str:
    """Return a passage as a JSON object."""
    told = {key: value for key, value in asdict(made).items() if value not in ("", None, [])}
    outcome = made.outcome._asdict() if made.outcome is not None else {}
    told |= {"node": node, "outcome": outcome, "steps": [step._asdict() for step in made.steps]}
    if made.farm:
        told["farm"] = object_name(made.farm)
    return json.dumps(told, indent=2, ensure_ascii=False)


def _farm(made: Passage) -> str:
    return object_name(made.farm) if made.farm else "unknown"
