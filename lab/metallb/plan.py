"""What MetalLB's programs get in a lab. Computation only."""

from collections.abc import Iterable
from typing import Any, Final

from lab.addresses import NodePlan

CONTROLLER: Final = "metallb-controller"
SPEAKER: Final = "metallb-speaker"
NAMESPACE: Final = "metallb-system"
ACCOUNTS: Final = {CONTROLLER: "controller", SPEAKER: "speaker"}
"""The service accounts of the programs, in NAMESPACE."""
SECRET_KEY: Final = "secretkey"  # noqa: S105 - the name of a file
"""The file with what speakers encrypt their messages to each other with."""

_LABELS: Final = {"app": "metallb", "component": "speaker"}
_UNUSED_PORT: Final = 9
"""The lab serves a port of each Pod; on the nodes, this is one that nothing else has."""


def pods(nodes: Iterable[NodePlan]) -> list[dict[str, Any]]:
    """Return the Pods that the programs take themselves for: speakers find each other by those of all speakers."""
    planned = list(nodes)
    speakers = [_pod(pod_name(node), node, _LABELS, on_host=True) for node in planned]
    return [_pod(CONTROLLER, planned[0], {}, on_host=False), *speakers]


def pod_name(node: NodePlan) -> str:
    """Return the name of the Pod of a node's speaker."""
    return f"{SPEAKER}-{node.name}"


def controller() -> tuple[tuple[str, ...], dict[str, str]]:
    """Return arguments and environment of the controller; its webhooks are off."""
    return ("--webhook-mode=disabled",), {"METALLB_NAMESPACE": NAMESPACE, "METALLB_POD_NAME": CONTROLLER}


def speaker(node: NodePlan, secret: str) -> dict[str, str]:
    """Return the environment of a node's speaker, which is that of MetalLB's manifest.

    ``secret`` is the folder with SECRET_KEY. Its messages to other speakers tell it of nodes that have died.
    """
    return {
        "METALLB_NAMESPACE": NAMESPACE,
        "METALLB_NODE_NAME": node.name,
        "METALLB_POD_NAME": pod_name(node),
        "METALLB_ML_BIND_ADDR": str(node.addresses[0].ip),
        "METALLB_ML_LABELS": ",".join(f"{key}={value}" for key, value in _LABELS.items()),
        "METALLB_ML_SECRET_KEY_PATH": secret,
    }


def _pod(name: str, node: NodePlan, labels: dict[str, str], *, on_host: bool) -> dict[str, Any]:
    port = {"containerPort": _UNUSED_PORT}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "nodeName": node.name,
            "hostNetwork": on_host,
            "containers": [{"name": "program", "image": "metallb", "ports": [port]}],
        },
    }
