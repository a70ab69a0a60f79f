"""``kubectl nftlb status`` and ``why``: one look at everything, and what to do about each farm. Pure: no I/O."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType

from kube_nftlb.api.base import FAMILIES
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.announced import Announced
from kube_nftlb.commands.cluster.finding import Finding, condition, is_silent
from kube_nftlb.commands.cluster.findings import is_pending, leads, of_farm
from kube_nftlb.commands.cluster.name_arguments import NameArgument
from kube_nftlb.commands.view import ClusterView, is_of_service
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import counted

_COLUMNS = ("NODE", "AGENT", "IN SYNC", "FARMS", "NFTLB", "NFTABLES", "BACKENDS", "VERSION")
_WIDE = {"NFTLB VERSION": "nftlbVersion", "KERNEL": "kernel", "FAILED": "failed", "ADDRESSES": "addresses"}
_IN_SYNC = {True: "yes", False: "no", None: "unknown"}
_SHOWN_MAX = 20
_NODES_SHOWN_MAX = 20


def status_json(view: ClusterView, findings: Sequence[Finding], now: datetime) -> dict[str, Any]:
    """Return the status for programs."""
    return {
        "healthy": not findings,
        "nodes": [_node(report) for report in _sorted(view.nftlb_nodes)],
        "operator": _operator(view, now),
        "farms": _counted(view, now),
        "addresses": _addresses(view, Announced(view.nftlb_nodes)),
        "problems": [as_json(each) for each in findings],
    }


def status_text(
    view: ClusterView, findings: Sequence[Finding], now: datetime, *, wide: bool = False
) -> list[RenderableType]:
    """Return the status for people; ``wide`` adds nftlb's version, the kernel and the failed farms of each node."""
    farms = _counted(view, now)
    nodes = terminal.columns(*_COLUMNS, *(_WIDE if wide else ()))
    reports = [_node(report) for report in _sorted(view.nftlb_nodes)]
    shown = sorted(reports, key=lambda each: each["ready"] and each["inSync"])[:_NODES_SHOWN_MAX]
    for each in sorted(shown, key=lambda each: str(each["name"])):
        nodes.add_row(
            terminal.plain(each["name"]),
            terminal.good_or_bad("ready" if each["ready"] else "not ready", good=each["ready"]),
            terminal.good_or_bad(_IN_SYNC[each["inSync"]], good=bool(each["inSync"])),
            *(str(each[key]) for key in ("farms", "nftlb", "nftables", "backends")),
            terminal.plain(each["version"]),
            *(terminal.plain(str(each[key])) for key in _WIDE.values() if wide),
        )
    more = [f"... and {counted(len(reports) - len(shown), 'more node')}"] if len(reports) > len(shown) else []
    states = ", ".join(f"{number} {what}" for what, number in farms.items() if number and what != "total")
    parts: list[RenderableType] = [nodes, *more, ""]
    parts.append(f"OPERATOR   {terminal.plain(_operator(view, now))}")
    parts.append(f"FARMS      {farms['total']}" + (f": {states}" if states else ""))
    if view.pools:
        parts.append(f"ADDRESSES  {_addresses_text(view)}")
    if not findings:
        return [*parts, "PROBLEMS   " + terminal.good_or_bad("none", good=True)]
    parts.append("PROBLEMS   " + terminal.good_or_bad(str(len(findings)), good=False))
    parts.extend(f"  {line(each, now)}" for each in findings[:_SHOWN_MAX])
    if len(findings) > _SHOWN_MAX:
        parts.append(f"  ... and {len(findings) - _SHOWN_MAX} more: kubectl nftlb why")
    return parts


def line(finding: Finding, now: datetime) -> str:
    """Return a finding in one line, with what to do."""
    lasts = terminal.age(finding.since, now)
    since = f" for {lasts}" if finding.since is not None else ""
    # Some messages say themselves what to do.
    message = finding.message.removesuffix(f"; {finding.todo}")
    text = " ".join(f"{finding.reason}: {message}".split())
    head = terminal.good_or_bad(finding.subject, good=False)
    return f"{head}{since}: {terminal.plain(text)} [bold]→ {terminal.plain(finding.todo)}[/]"


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding for programs."""
    since = finding.since.isoformat() if finding.since is not None else None
    return {**finding._asdict(), "since": since}


def chosen(farms: Iterable[JsonObject], what: NameArgument) -> list[JsonObject]:
    """Return the farms that a name means: a farm, or those of a Service."""
    here = [raw for raw in farms if raw["metadata"]["namespace"] == what.namespace]
    exact = [raw for raw in here if raw["metadata"]["name"] == what.name] if what.kind != "service" else []
    return exact or [raw for raw in here if what.kind != "farm" and is_of_service(raw, what.name)]


def well(raw: JsonObject) -> str:
    """Return a line about a farm with which nothing is wrong."""
    status = raw.get("status") or {}
    where = f"farm {raw['metadata']['namespace']}/{raw['metadata']['name']}"
    if not status.get("conditions"):
        return f"{where} is new: the operator has not written its status yet"
    served = f"programmed on {status.get('nodes')} nodes"
    if is_pending(raw):
        return f"{where} has just changed: {served}"
    reason, _, message = str(status.get("reason") or "").partition(": ")
    if not status.get("totalBackends") and raw["spec"].get("mode") != "local":
        cause = message if reason == "NoReadyBackends" else "it has no backends"
        return f"{where} is {served}, and refuses connections: {cause}"
    backends = message if reason == "TerminatingBackends" else f"{status.get('backendsReady')} backends ready"
    return f"{where} is healthy: {served}, {backends}"


def all_well(farms: Sequence[JsonObject], namespace: str | None) -> str:
    """Return a line about the farms of a namespace, or of all, if nothing is wrong with any of them."""
    if not farms:
        return f"there are no farms{f' in the namespace {namespace}' if namespace else ''}"
    new = sum(not (raw.get("status") or {}).get("conditions") for raw in farms)
    pending = sum(map(is_pending, farms))
    if not new and not pending:
        return "1 farm is healthy" if len(farms) == 1 else f"all {len(farms)} farms are healthy"
    counts = {"healthy": len(farms) - new - pending, "just changed": pending, "new, without a status yet": new}
    states = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return f"{counted(len(farms), 'farm')}: {states}"


def _counted(view: ClusterView, now: datetime) -> dict[str, int]:
    """Return the number of farms in each state."""
    states: Counter[str] = Counter()
    for raw in view.farms:
        if is_pending(raw):
            states["pending"] += 1
        elif of_farm(raw, view.failures.get(FarmKey.of(raw), ()), now):
            states["with problems"] += 1
        else:
            backends = (raw.get("status") or {}).get("totalBackends")
            states["serving" if backends or raw["spec"].get("mode") == "local" else "without backends"] += 1
    return {"total": len(view.farms), **dict(sorted(states.items()))}


def _addresses(view: ClusterView, announced: Announced) -> dict[str, int]:
    """Return the numbers of address pools, of their addresses that Services have, and of those that nodes announce."""
    counts = [(raw.get("status") or {}).get(family) or {} for raw in view.pools for family in FAMILIES]
    used = sum(each.get("used") or 0 for each in counts)
    return {"pools": len(view.pools), "used": used, "announced": announced.number}


def _addresses_text(view: ClusterView) -> str:
    announced = Announced(view.nftlb_nodes)
    numbers, least = _addresses(view, announced), "" if announced.is_complete else "at least "
    used, pools = counted(numbers["used"], "address", "addresses"), counted(numbers["pools"], "pool")
    return f"Services have {used} of {pools}; nodes announce {least}{numbers['announced']}"


def _operator(view: ClusterView, now: datetime) -> str:
    if view.leases is None:
        return "not known: you may not list Leases"
    if view.lease is None:
        return "no Lease: it has not run yet, or runs without leader election"
    # After the name of the pod the identity has a random number (kube.lease).
    holder = view.lease["spec"].get("holderIdentity", "").partition("_")[0]
    if holder and not leads(view.lease, now):
        return f"nobody leads: {holder} no longer renews its Lease"
    return f"{holder or 'nobody'} leads"


def _node(report: JsonObject) -> dict[str, Any]:
    status = report.get("status") or {}
    engines, versions = status.get("engines") or {}, status.get("versions") or {}
    return {
        "name": report["metadata"]["name"],
        "ready": (condition(report, "Ready") or {}).get("status") == "True",
        "inSync": None if is_silent(report) else (condition(report, "InSync") or {}).get("status") == "True",
        "farms": status.get("farms", 0),
        "nftlb": engines.get("nftlb", 0),
        "nftables": engines.get("nftables", 0),
        "backends": status.get("backends", 0),
        "failed": status.get("failed", 0),
        "addresses": (status.get("addresses") or {}).get("number", 0),
        "version": versions.get("agent", ""),
        "nftlbVersion": versions.get("nftlb", ""),
        "kernel": versions.get("kernel", ""),
    }


def _sorted(raws: Iterable[JsonObject]) -> list[JsonObject]:
    return sorted(raws, key=lambda raw: str(raw["metadata"]["name"]))
