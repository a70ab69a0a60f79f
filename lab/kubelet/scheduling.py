"""Choose a node for each pod. Computation only."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kube_nftlb.kube.resources import JsonObject


def choose_node(
    pod: JsonObject,
    nodes: Iterable[JsonObject],
    pods_per_node: Mapping[str, int],
    siblings_per_node: Mapping[str, int] = MappingProxyType({}),
) -> str | None:
    """Return the suitable node with the fewest pods of the same owner, then the fewest pods; None if none suits."""
    suitable = [str(node["metadata"]["name"]) for node in nodes if suits(pod, node)]
    if not suitable:
        return None
    return min(suitable, key=lambda name: (siblings_per_node.get(name, 0), pods_per_node.get(name, 0)))


def owner_of(pod: JsonObject) -> str | None:
    """Return the UID of the pod's controller, or None."""
    owners = pod["metadata"].get("ownerReferences", [])
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


def suits(pod: JsonObject, node: JsonObject) -> bool:
    """Return True if the node matches nodeSelector and the DaemonSet's node affinity, and is schedulable."""
    labels = node["metadata"].get("labels", {})
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    names = _names_required(pod)
    if names is not None:
        # Pods of a DaemonSet run on cordoned nodes too.
        return node["metadata"]["name"] in names
    return not node["spec"].get("unschedulable", False)


def _names_required(pod: JsonObject) -> set[str] | None:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    fields = [field for term in terms for field in term.get("matchFields", [])]
    if not fields:
        return None
    return {name for field in fields if field["key"] == "metadata.name" for name in field.get("values", [])}
