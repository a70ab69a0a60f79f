"""Findings of what is wrong in a cluster: from Nodes, NftlbNodes, farms, and the programs' own objects. No I/O."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.agent_nodes import selected
from kube_nftlb.commands.cluster.advice import ADVICE
from kube_nftlb.commands.cluster.asking import COMPONENT, Overview
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import some_of
from kube_nftlb.reasons import ConditionReason, KubeProxyReason

_LEASE_OVERDUE = 2
"""After so many durations without a renewal nobody leads."""
_STATUS_PATIENCE_S = 30
"""Maximum age in seconds of a farm without a status: the operator is about to write it."""
_PENDING_PATIENCE_S = 10
"""Time in seconds that a change may wait until that counts as wrong."""
_PENDING = ("Pending", "EndpointsPending")
_KUBE_PROXY: Final[dict[KubeProxyReason, str]] = {
    "KubeProxyRulesLeft": "remove them, or set kubeProxy.cleanup=true in the chart",
    "KubeProxyRulesReturned": "stop the kube-proxy of this node, then restart the agent there",
}
"""Actions to take where rules of kube-proxy stay. One that runs beside the agent is perhaps about to leave."""
_ALL_ACCEPTED: Final[ConditionReason] = "Valid"


class Finding(NamedTuple):
    """Something that is wrong with an object, and what to do about it."""

    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    todo: str
    since: datetime | None = None
    """None if nothing tells."""

    @property
    def subject(self) -> str:
        """The object, as people name it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class FailedHere(NamedTuple):
    """The failure of a farm on a node."""

    node: str
    reason: str
    message: str


Failures = Mapping[FarmKey, list[FailedHere]]


def find(seen: Overview, now: datetime) -> list[Finding]:
    """Return everything that is wrong: programs first, then nodes, then farms."""
    failed = failures(seen.reports)
    farms = (finding for raw in seen.farms if (finding := of_farm(raw, failed, now)) is not None)
    return [*of_programs(seen, now), *of_nodes(seen, now), *sorted(farms, key=lambda each: (each.namespace, each.name))]


def failures(reports: Iterable[JsonObject]) -> dict[FarmKey, list[FailedHere]]:
    """Return the farms that failed, with the nodes on which they did."""
    found: dict[FarmKey, list[FailedHere]] = {}
    for report in sorted(reports, key=_name):
        for entry in (report.get("status") or {}).get("failedFarms") or ():
            here = FailedHere(_name(report), entry["reason"], entry.get("message", ""))
            found.setdefault(FarmKey(entry["namespace"], entry["name"]), []).append(here)
    return found


def of_programs(seen: Overview, now: datetime) -> list[Finding]:
    """Return what is wrong with operator and agents, as far as their Lease and pods show it."""
    found = []
    if seen.lease is not None:
        spec = seen.lease["spec"]
        renewed = timestamps.parse(spec.get("renewTime"))
        overdue_s = _LEASE_OVERDUE * int(spec.get("leaseDurationSeconds") or 15)
        if not spec.get("holderIdentity") or renewed is None or (now - renewed).total_seconds() > overdue_s:
            message = "no replica of the operator leads: changes of Services have no effect"
            todo = "check the Deployment kube-nftlb-operator, its pods and their logs"
            found.append(Finding("operator", "", "kube-nftlb-operator", "NoLeader", message, todo, renewed))
    for pod in sorted(seen.pods or (), key=_name):
        ready = condition(pod, "Ready")
        if pod["metadata"].get("deletionTimestamp") is None and (ready is None or ready["status"] != "True"):
            labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
            message = (ready or {}).get("message") or "the pod is not ready"
            if node := (pod.get("spec") or {}).get("nodeName"):
                message += f" (on node {node})"
            todo = f"kubectl -n {namespace} describe pod {_name(pod)}, and its logs"
            found.append(
                Finding(labels.get(COMPONENT, "pod"), namespace, _name(pod), "NotReady", message, todo, since(ready))
            )
    return found


def of_nodes(seen: Overview, now: datetime) -> list[Finding]:
    """Return what is wrong with nodes: without an agent, with a broken one, or behind."""
    found = []
    by_name = {_name(report): report for report in seen.reports}
    wanted = selected(seen.nodes, seen.daemon_sets)
    for name in sorted(_name(node) for node in seen.nodes):
        report = by_name.get(name)
        if report is None and name not in wanted:
            continue
        if report is None:
            message = "no agent has ever reported from it"
            found.append(Finding("node", "", name, "NoAgent", message, "check the DaemonSet kube-nftlb-agent"))
            continue
        ready, in_sync = condition(report, "Ready"), condition(report, "InSync")
        if ready is None:
            found.append(Finding("node", "", name, "NoStatus", "its agent has not reported yet", "see the agent's log"))
        elif ready["status"] != "True":
            todo = ADVICE["NoNodes" if ready["reason"] == "AgentSilent" else "NftlbUnreachable"]
            found.append(_of_condition("node", "", name, ready, todo))
        elif in_sync is not None and _wrong(in_sync, now):
            todo = "see the farms below" if in_sync["reason"] == "FarmsFailed" else ADVICE["Pending"]
            found.append(_of_condition("node", "", name, in_sync, todo))
        gone = condition(report, "KubeProxyGone")
        if gone is not None and gone["reason"] in _KUBE_PROXY:
            found.append(_of_condition("node", "", name, gone, _KUBE_PROXY[gone["reason"]]))
    return found


def of_farm(raw: JsonObject, failed: Failures, now: datetime) -> Finding | None:
    """Return the most important thing that is wrong with a farm, or None.

    A farm without any backend refuses connections, as its owner asked: a Service without Pods is no fault.
    """
    namespace, name = raw["metadata"]["namespace"], _name(raw)
    status = raw.get("status") or {}
    if not status.get("conditions"):
        created = timestamps.parse(raw["metadata"].get("creationTimestamp"))
        if created is None or (now - created).total_seconds() < _STATUS_PATIENCE_S:
            return None
        return Finding("farm", namespace, name, "NoStatus", "it has no status", "check that the operator runs", created)
    for kind in ("Accepted", "Programmed", "EndpointsProgrammed"):
        told = condition(raw, kind)
        if told is None or not _wrong(told, now):
            continue
        here = failed.get(FarmKey(namespace, name))
        if told["reason"] == "Failed" and here:
            return Finding("farm", namespace, name, here[0].reason, _nodes(here), _advice(here[0].reason), since(told))
        return _of_condition("farm", namespace, name, told, _advice(told["reason"]))
    if status.get("totalBackends") and not status.get("readyBackends"):
        message = f"none of {status['totalBackends']} backends is ready: connections are refused"
        return Finding("farm", namespace, name, "NoReadyBackends", message, ADVICE["NoReadyBackends"])
    if (told := accepted_in_part(raw)) is not None:
        return _of_condition("farm", namespace, name, told, _advice(told["reason"]))
    return None


def accepted_in_part(raw: JsonObject) -> JsonObject | None:
    """Return the condition Accepted of a farm that is served without some of its addresses, None for any other."""
    told = condition(raw, "Accepted")
    return told if told is not None and told["status"] == "True" and told["reason"] != _ALL_ACCEPTED else None


def condition(raw: JsonObject, kind: str) -> JsonObject | None:
    """Return a condition of an object, or None if it has no such."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), None)


def is_pending(raw: JsonObject) -> bool:
    """Return True if a change of the farm, or of its endpoints, is on its way to the nodes."""
    kinds = ("Programmed", "EndpointsProgrammed")
    return any((condition(raw, kind) or {}).get("reason") in _PENDING for kind in kinds)


def since(told: JsonObject | None) -> datetime | None:
    """Return the time of a condition's last transition, if it is known."""
    return timestamps.parse((told or {}).get("lastTransitionTime"))


def _wrong(told: JsonObject, now: datetime) -> bool:
    """Return True for a condition that is not as it should be; changes may wait for a moment."""
    if told["status"] == "True":
        return False
    began = since(told)
    fresh = began is not None and (now - began).total_seconds() < _PENDING_PATIENCE_S
    return not (told["reason"] in _PENDING and fresh)


def _of_condition(kind: str, namespace: str, name: str, told: JsonObject, todo: str) -> Finding:
    return Finding(kind, namespace, name, told["reason"], told.get("message", ""), todo, since(told))


def _nodes(here: list[FailedHere]) -> str:
    """Return a message that names the nodes, with that of the first."""
    return f"on {some_of([each.node for each in here])}: {here[0].message}"


def _advice(reason: str) -> str:
    # A reason of another version has none.
    return next((text for known, text in ADVICE.items() if known == reason), "see docs/conditions.md")


def _name(raw: JsonObject) -> str:
    return str(raw["metadata"]["name"])
