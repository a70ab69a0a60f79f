"""What is wrong in a cluster, by Nodes, NftlbNodes, farms, and the programs' own objects. Pure: no I/O."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster import address_findings, service_findings
from kube_nftlb.commands.cluster.finding import Finding, condition, is_silent, since
from kube_nftlb.commands.cluster.queries import component_of
from kube_nftlb.commands.view import ClusterView, Failure
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.kube.scheduling import runs_on
from kube_nftlb.prose import IF_IT_LASTS, some_of
from kube_nftlb.reasons import ConditionReason, FailureReason, KubeProxyReason, NodeReason

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
_IN_SYNC: Final[dict[NodeReason, str]] = {"FarmsFailed": "see the farms below", "SyncFailed": "see the agent's log"}
_ALL_ACCEPTED: Final[ConditionReason] = "Valid"
_OS: Final = "kubernetes.io/os"

ADVICE: Final[dict[ConditionReason | FailureReason, str]] = {
    "Invalid": "correct the field that the message names, or update the CustomResourceDefinitions",
    "AddressConflict": "give one of the two another address or port, or delete one",
    "ExternalIPRefused": "remove the external IP from the Service, or ask the cluster's administrator to allow it",
    "TooManyFarms": "delete farms or Services of the namespace, or ask for a higher limits.namespaceFarms of the chart",
    "TooManyPolicies": "delete NftlbPolicies of the namespace, or ask for a higher limits.namespacePolicies",
    "TooManyElements": "use fewer ports, backends or limits, or no weights, or ask for a higher limits.farmElements",
    "NoNodes": "check the DaemonSet kube-nftlb-agent and its pods",
    "Failed": "see status.failedFarms of the node's NftlbNode",
    "Pending": "if it lasts, see whether the agents of these nodes run, and their logs",
    "EndpointsPending": "if it lasts, see whether the agents of these nodes run, and their logs",
    "NoReadyBackends": "check the readiness of the Pods, and the states of farm and backends (annotation state)",
    "KernelFeatureMissing": "load the kernel module that the message names, or remove the field",
    "Refused": "it is retried, at least every minute; if it lasts, report it with `kubectl nftlb sysdump`",
    "Unsupported": "change the fields that the message names, or the engine",
    "NftlbDefect": "use the alternative that the message names",
    "NftlbUnreachable": "check the container nftlb of the agent's pod on that node, and its log",
    "PortsDiffer": "make targetPort and port of the Service the same",
    "AddressInUse": "change or delete the farm or node port that the message names",
    "NoLocalBackend": "run a pod of it on that node, set dsr.enabled of the chart, or use the mode dnat",
    "PolicyMissing": "create the NftlbPolicy in the farm's namespace, or remove the reference",
    "PolicyInvalid": "correct the NftlbPolicy that the message names",
    "NoEffect": "remove the part that has no effect, or correct it",
}
"""What to do, for every reason for which a farm can be unhealthy; docs/conditions.md says more."""


def find(view: ClusterView, now: datetime) -> list[Finding]:
    """Return everything that is wrong: programs first, then nodes, farms, Services, and addresses."""
    return [
        *of_programs(view, now),
        *of_nodes(view, now),
        *of_farms(view, view.farms, now),
        *service_findings.find(view, now),
        *address_findings.find(view, now),
    ]


def of_farms(view: ClusterView, farms: Iterable[JsonObject], now: datetime) -> list[Finding]:
    """Return what is wrong with these farms: of each that fails on nodes one finding for each cause, else one."""
    findings = (each for raw in farms for each in of_farm(raw, view.failures.get(FarmKey.of(raw), ()), now))
    return sorted(findings, key=lambda each: (each.namespace, each.name))


def agent_nodes(nodes: Iterable[JsonObject], daemon_sets: Iterable[JsonObject] | None) -> set[str]:
    """Return the names of the nodes that should have an agent: Linux nodes that a DaemonSet of the agent selects.

    Without a DaemonSet, or if the user may not see it (None), these are all Linux nodes.
    """
    pods = [raw["spec"]["template"]["spec"] for raw in daemon_sets or ()]
    names = set()
    for node in nodes:
        name, labels = _name(node), node["metadata"].get("labels") or {}
        if labels.get(_OS, "linux") == "linux" and (not pods or any(runs_on(pod, name, labels) for pod in pods)):
            names.add(name)
    return names


def leads(lease: JsonObject, now: datetime) -> bool:
    """Return True if a replica of the operator renews its Lease."""
    spec = lease.get("spec") or {}
    renewed = timestamps.parse(spec.get("renewTime"))
    overdue_s = _LEASE_OVERDUE * int(spec.get("leaseDurationSeconds") or 15)
    return bool(spec.get("holderIdentity")) and renewed is not None and (now - renewed).total_seconds() <= overdue_s


def of_programs(seen: ClusterView, now: datetime) -> list[Finding]:
    """Return what is wrong with operator and agents, as far as their Lease and pods show it."""
    found = []
    if seen.lease is not None:
        renewed = timestamps.parse((seen.lease.get("spec") or {}).get("renewTime"))
        if not leads(seen.lease, now):
            message = "no replica of the operator leads: changes of Services have no effect"
            todo = "check the Deployment kube-nftlb-operator, its pods and their logs"
            found.append(Finding("operator", "", "kube-nftlb-operator", "NoLeader", message, todo, renewed))
    for pod in sorted(seen.pods or (), key=_name):
        ready = condition(pod, "Ready")
        if not (component := component_of(pod)) or pod["metadata"].get("deletionTimestamp") is not None:
            continue
        if ready is None or ready["status"] != "True":
            namespace = pod["metadata"]["namespace"]
            message = (ready or {}).get("message") or "the pod is not ready"
            if node := (pod.get("spec") or {}).get("nodeName"):
                message += f" (on node {node})"
            todo = f"kubectl -n {namespace} describe pod {_name(pod)}, and its logs"
            found.append(Finding(component, namespace, _name(pod), "NotReady", message, todo, since(ready)))
    return found


def of_nodes(seen: ClusterView, now: datetime) -> list[Finding]:
    """Return what is wrong with nodes: without an agent, with a broken one, or behind."""
    found = []
    by_name = {_name(report): report for report in seen.nftlb_nodes}
    wanted = agent_nodes(seen.nodes, seen.daemon_sets)
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
            todo = ADVICE["NoNodes" if is_silent(report) else "NftlbUnreachable"]
            found.append(_of_condition("node", "", name, ready, todo))
        elif in_sync is not None and _wrong(in_sync, now):
            found.append(_of_condition("node", "", name, in_sync, _IN_SYNC.get(in_sync["reason"], ADVICE["Pending"])))
        gone = condition(report, "KubeProxyGone")
        if gone is not None and gone["reason"] in _KUBE_PROXY:
            found.append(_of_condition("node", "", name, gone, _KUBE_PROXY[gone["reason"]]))
    return found


def of_farm(raw: JsonObject, failures: Sequence[Failure], now: datetime) -> list[Finding]:
    """Return the most important thing that is wrong with a farm, if any; of failures on nodes each cause.

    A farm without any backend refuses connections, as its owner asked: a Service without Pods is no fault.
    """
    namespace, name = raw["metadata"]["namespace"], _name(raw)
    status = raw.get("status") or {}
    if not status.get("conditions"):
        created = timestamps.parse(raw["metadata"].get("creationTimestamp"))
        if created is None or (now - created).total_seconds() < _STATUS_PATIENCE_S:
            return []
        todo = "check that the operator runs"
        return [Finding("farm", namespace, name, "NoStatus", "it has no status", todo, created)]
    for kind in ("Accepted", "Programmed", "EndpointsProgrammed"):
        found = condition(raw, kind)
        if found is None or not _wrong(found, now):
            continue
        if found["reason"] == "Failed" and failures:
            nodes: dict[tuple[str, str], list[str]] = {}
            for each in failures:
                nodes.setdefault((each.reason, each.message), []).append(each.node)
            return [
                Finding("farm", namespace, name, reason, f"on {some_of(on)}: {why}", _advice(reason), since(found))
                for (reason, why), on in nodes.items()
            ]
        return [_of_condition("farm", namespace, name, found, _advice(found["reason"]))]
    if (message := _refuses(raw)) is not None:
        return [Finding("farm", namespace, name, "NoReadyBackends", message, _advice("NoReadyBackends"))]
    if (accepted := accepted_in_part(raw)) is not None:
        return [_of_condition("farm", namespace, name, accepted, _advice(accepted["reason"]))]
    return []


def _refuses(raw: JsonObject) -> str | None:
    """Return why new clients of a farm are refused; None if they are not, or its owner asked for no backends."""
    status, is_local = raw["status"], raw["spec"].get("mode") == "local"
    total, (reason, _, message) = status.get("totalBackends"), str(status.get("reason") or "").partition(": ")
    if reason in _PENDING and not status.get("readyBackends"):
        # A change on its way hides what else is to be said.
        serves = is_local or any(
            each.get("serving") and each.get("terminating") for each in status.get("backends") or ()
        )
        reason, message = "" if serves else "NoReadyBackends", f"none of {total} backends is ready"
    return message if reason == "NoReadyBackends" and (total or is_local) else None


def accepted_in_part(raw: JsonObject) -> JsonObject | None:
    """Return the condition Accepted of a farm that is served without some of its addresses, None for any other."""
    accepted = condition(raw, "Accepted")
    in_part = accepted is not None and accepted["status"] == "True" and accepted["reason"] != _ALL_ACCEPTED
    return accepted if in_part else None


def is_pending(raw: JsonObject) -> bool:
    """Return True if a change of the farm, or of its endpoints, is on its way to the nodes."""
    kinds = ("Programmed", "EndpointsProgrammed")
    return any((condition(raw, kind) or {}).get("reason") in _PENDING for kind in kinds)


def _wrong(found: JsonObject, now: datetime) -> bool:
    """Return True for a condition that is not as it should be; changes may wait for a moment."""
    if found["status"] == "True":
        return False
    began = since(found)
    fresh = began is not None and (now - began).total_seconds() < _PENDING_PATIENCE_S
    return not (found["reason"] in (*_PENDING, "SyncFailed") and fresh)


def _of_condition(kind: str, namespace: str, name: str, found: JsonObject, todo: str) -> Finding:
    # Some messages say themselves what to do.
    message, said, hint = found.get("message", "").partition(IF_IT_LASTS)
    todo = f"if it lasts, {hint}" if said else todo
    return Finding(kind, namespace, name, found["reason"], message, todo, since(found))


def _advice(reason: str) -> str:
    # A reason of another version has none.
    return next((text for known, text in ADVICE.items() if known == reason), "see docs/conditions.md")


def _name(raw: JsonObject) -> str:
    return str(raw["metadata"]["name"])
