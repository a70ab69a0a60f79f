"""The nodes that a pod may run on, by its node selector and required node affinity. Pure: no I/O."""

from collections.abc import Mapping, Sequence
from typing import Any


def runs_on(pod: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
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
