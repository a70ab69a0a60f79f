"""``kubectl nftlb status`` and ``why``: one look at everything, and what to do about each farm. No I/O."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.console import RenderableType

from kube_nftlb import names
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.asking import Overview
from kube_nftlb.commands.cluster.findings import Finding, condition, failures, find, is_pending, of_farm
from kube_nftlb.kube.resources import JsonObject

_COLUMNS = ("NODE", "AGENT", "IN SYNC", "FARMS", "NFTLB", "NFTABLES", "BACKENDS", "VERSION")
_WIDE = {"NFTLB VERSION": "nftlbVersion", "KERNEL": "kernel", "FAILED": "failed"}
_SHOWN_MAX = 20
_NODES_SHOWN_MAX = 20


def status_json(seen: Overview, now: datetime) -> dict[str, Any]:
    """Return the status for programs."""
    found = find(seen, now)
    return {
        "healthy": not found,
        "nodes": [_node(report) for report in _sorted(seen.reports)],
        "operator": _operator(seen),
        "farms": _counted(seen, now),
        "problems": [as_json(each) for each in found],
    }


def status_text(seen: Overview, now: datetime, *, wide: bool = False) -> list[RenderableType]:
    """Return the status for people; ``wide`` adds nftlb's version, the kernel and the failed farms of each node."""
    found = find(seen, now)
    farms = _counted(seen, now)
    nodes = terminal.columns(*_COLUMNS, *(_WIDE if wide else ()))
    reports = [_node(report) for report in _sorted(seen.reports)]
    shown = sorted(reports, key=lambda each: each["ready"] and each["inSync"])[:_NODES_SHOWN_MAX]
    for each in sorted(shown, key=lambda each: str(each["name"])):
        nodes.add_row(
            each["name"],
            terminal.good_or_bad("ready" if each["ready"] else "not ready", good=each["ready"]),
            terminal.good_or_bad("yes" if each["inSync"] else "no", good=each["inSync"]),
            *(str(each[key]) for key in ("farms", "nftlb", "nftables", "backends")),
            each["version"],
            *(str(each[key]) for key in _WIDE.values() if wide),
        )
    more = [f"... and {len(reports) - len(shown)} more nodes"] if len(reports) > len(shown) else []
    counted = ", ".join(f"{number} {what}" for what, number in farms.items() if number and what != "total")
    parts: list[RenderableType] = [nodes, *more, ""]
    parts.append(f"OPERATOR   {terminal.plain(_operator(seen))}")
    parts.append(f"FARMS      {farms['total']}" + (f": {counted}" if counted else ""))
    if not found:
        return [*parts, "PROBLEMS   " + terminal.good_or_bad("none", good=True)]
    parts.append("PROBLEMS   " + terminal.good_or_bad(str(len(found)), good=False))
    parts.extend(f"  {line(each, now)}" for each in found[:_SHOWN_MAX])
    if len(found) > _SHOWN_MAX:
        parts.append(f"  ... and {len(found) - _SHOWN_MAX} more: kubectl nftlb why")
    return parts


def line(finding: Finding, now: datetime) -> str:
    """Return a finding in one line, with what to do."""
    lasts = terminal.age(finding.since, now)
    since = f" for {lasts}" if finding.since is not None else ""
    # Some messages say themselves what to do.
    message = finding.message.removesuffix(f"; {finding.todo}")
    told = " ".join(f"{finding.reason}: {message}".split())
    head = terminal.good_or_bad(finding.subject, good=False)
    return f"{head}{since}: {terminal.plain(told)} [bold]→ {terminal.plain(finding.todo)}[/]"


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding for programs."""
    since = finding.since.isoformat() if finding.since is not None else None
    return {**finding._asdict(), "since": since}


def chosen(seen: Overview, name: str, namespace: str) -> list[JsonObject]:
    """Return the farms that a name means: a farm, with or without its namespace, or those of a Service."""
    where, _, plain = name.rpartition("/")
    where = where or namespace
    here = [raw for raw in seen.farms if raw["metadata"]["namespace"] == where]
    exact = [raw for raw in here if raw["metadata"]["name"] == plain]
    return exact or [raw for raw in here if (raw["metadata"].get("labels") or {}).get(names.LABEL_SERVICE) == plain]


def why(seen: Overview, farms: Iterable[JsonObject], now: datetime) -> list[Finding]:
    """Return what is wrong with these farms, one finding for each unhealthy one."""
    failed = failures(seen.reports)
    found = [finding for raw in farms if (finding := of_farm(raw, failed, now)) is not None]
    return sorted(found, key=lambda each: (each.namespace, each.name))


def well(raw: JsonObject) -> str:
    """Return a line about a farm with which nothing is wrong."""
    status = raw.get("status") or {}
    where = f"farm {raw['metadata']['namespace']}/{raw['metadata']['name']}"
    if not status.get("conditions"):
        return f"{where} is new: the operator has not written its status yet"
    served = f"programmed on {status.get('nodes')} nodes"
    if is_pending(raw):
        return f"{where} has just changed: {served}"
    if not status.get("totalBackends") and raw["spec"].get("mode") != "local":
        return f"{where} is {served}, and refuses connections: it has no backends"
    return f"{where} is healthy: {served}, {status.get('backendsReady')} backends ready"


def _counted(seen: Overview, now: datetime) -> dict[str, int]:
    """Return the number of farms in each state."""
    failed = failures(seen.reports)
    states: Counter[str] = Counter()
    for raw in seen.farms:
        finding = of_farm(raw, failed, now)
        if is_pending(raw):
            states["pending"] += 1
        elif finding is None:
            told = raw.get("status") or {}
            empty = not told.get("totalBackends") and raw["spec"].get("mode") != "local"
            states["without backends" if empty else "serving"] += 1
        else:
            states["with problems"] += 1
    return {"total": len(seen.farms), **dict(sorted(states.items()))}


def _operator(seen: Overview) -> str:
    if seen.lease is None:
        return "not known: it runs without leader election, or you may not see its Lease"
    return f"{seen.lease['spec'].get('holderIdentity') or 'nobody'} leads"


def _node(report: JsonObject) -> dict[str, Any]:
    status = report.get("status") or {}
    engines, versions = status.get("engines") or {}, status.get("versions") or {}
    return {
        "name": report["metadata"]["name"],
        "ready": (condition(report, "Ready") or {}).get("status") == "True",
        "inSync": (condition(report, "InSync") or {}).get("status") == "True",
        "farms": status.get("farms", 0),
        "nftlb": engines.get("nftlb", 0),
        "nftables": engines.get("nftables", 0),
        "backends": status.get("backends", 0),
        "failed": status.get("failed", 0),
        "version": versions.get("agent", ""),
        "nftlbVersion": versions.get("nftlb", ""),
        "kernel": versions.get("kernel", ""),
    }


def _sorted(raws: Iterable[JsonObject]) -> list[JsonObject]:
    return sorted(raws, key=lambda raw: str(raw["metadata"]["name"]))
