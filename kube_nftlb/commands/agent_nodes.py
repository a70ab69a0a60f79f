"""The nodes that should have an agent: those that its DaemonSet selects. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kube_nftlb.kube.resources import JsonObject

AGENTS: Final = "metadata.name=kube-nftlb-agent"
"""The field selector of the DaemonSet."""
_OS: Final = "kubernetes.io/os"


def selected(nodes: Iterable[JsonObject], daemon_sets: Iterable[JsonObject] | None) -> set[str]:
    """Return the names of the nodes that should have an agent: Linux nodes that a DaemonSet of the agent selects.

    Without a DaemonSet, or if the user may not see it (None), these are all Linux nodes.
    """
    pods = [raw["spec"]["template"]["spec"] for raw in daemon_sets or ()]
    names = set()
    for node in nodes:
        name, labels = str(node["metadata"]["name"]), node["metadata"].get("labels") or {}
        if labels.get(_OS, "linux") == "linux" and (not pods or any(_runs_on(pod, name, labels) for pod in pods)):
            names.add(name)
    return names


def _runs_on(pod: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Return True if nodeSelector and the required node affinity of a pod select a node."""
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    selector = pod.get("nodeSelector") or {}
    return selector.items() <= labels.items() and (
        required is None or any(_matches(term, name, labels) for term in required["nodeSelectorTerms"])
    )


def _matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    # An empty term selects no node.
    return bool(expressions or fields) and (
        all(_meets(each, labels) for each in expressions)
        and all(_meets(each, {"metadata.name": name}) for each in fields)
    )


def _meets(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    value, operator = values.get(requirement["key"]), requirement["operator"]
    wanted: Sequence[str] = requirement.get("values") or ()
    if operator == "NotIn":
        return value not in wanted
    if operator == "DoesNotExist":
        return value is None
    if value is None:
        return False
    if operator in ("Gt", "Lt"):
        # Kubernetes compares whole numbers; any other value meets neither.
        try:
            difference = int(value) - int(wanted[0])
        except ValueError:
            return False
        return difference > 0 if operator == "Gt" else difference < 0
    return operator == "Exists" or value in wanted
