"""The nodes that should have an agent: those that its DaemonSet selects. No I/O."""

from collections.abc import Iterable
from typing import Final

from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.kube.scheduling import runs_on

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
        if labels.get(_OS, "linux") == "linux" and (not pods or any(runs_on(pod, name, labels) for pod in pods)):
            names.add(name)
    return names
