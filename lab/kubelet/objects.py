"""Kubernetes objects written by the kubelet stand-in. Computation only."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import JsonObject
from lab.addresses import NodePlan

_ANNOTATIONS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""As every kubelet writes it: flannel panics over a Node without annotations."""
MADE_UNREADY = "MadeUnready"
_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "1Ti"}
_GATES_CLOSED = "ReadinessGatesNotReady"
_DEFAULT_PORT = (80, "TCP")


def node(plan: NodePlan) -> JsonObject:
    """Return a Node object without status."""
    labels = {"kubernetes.io/hostname": plan.name, "kubernetes.io/os": "linux"}
    if plan.zone is not None:
        labels["topology.kubernetes.io/zone"] = plan.zone
    cidrs = [str(cidr) for cidr in plan.pod_cidrs]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": plan.name, "labels": labels, "annotations": _ANNOTATIONS},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
    }


def node_status(plan: NodePlan, kubernetes: str, now: datetime) -> JsonObject:
    """Return the status of a Ready node; ``kubernetes`` is the version of the lab."""
    return {
        "addresses": [
            *({"type": "InternalIP", "address": str(address.ip)} for address in plan.addresses),
            {"type": "Hostname", "address": plan.name},
        ],
        "capacity": _CAPACITY,
        "allocatable": _CAPACITY,
        "conditions": [_condition("Ready", True, "LabNode", now)],
        "nodeInfo": {"operatingSystem": "linux", "kubeletVersion": f"{kubernetes}-lab"},
    }


def binding(pod: JsonObject, node_name: str) -> JsonObject:
    """Return the Binding of a pod to a node."""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def pod_status(pod: JsonObject, plan: NodePlan, ips: list[str], *, ready: bool, now: datetime) -> JsonObject:
    """Return the status of a running pod; ``ips`` starts with the IPv4 address."""
    earlier = pod.get("status", {})
    start = earlier.get("startTime") or timestamps.seconds(now)
    opened = gates_are_open(pod)
    reason = _GATES_CLOSED if ready and not opened else MADE_UNREADY
    truths = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready and opened}
    return {
        "phase": "Running",
        "startTime": start,
        "hostIP": str(plan.addresses[0].ip),
        "hostIPs": [{"ip": str(address.ip)} for address in plan.addresses],
        "podIP": ips[0],
        "podIPs": [{"ip": ip} for ip in ips],
        "conditions": [
            _carried_over(earlier.get("conditions", []), _condition(kind, truth, reason if not truth else None, now))
            for kind, truth in truths.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "containerID": f"lab://{pod['metadata']['uid']}/{container['name']}",
                "ready": ready,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": start}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def gates_are_open(pod: JsonObject) -> bool:
    """Return True if the conditions of all readiness gates of a pod are true (KEP-580)."""
    true = {entry["type"] for entry in pod.get("status", {}).get("conditions", []) if entry["status"] == "True"}
    return {gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()} <= true


def was_made_unready(pod: JsonObject) -> bool:
    """Return True if the pod was made unready on request before a restart of the stand-in."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry.get("reason") == MADE_UNREADY for entry in conditions)


def ports(pod: JsonObject) -> list[tuple[int, str]]:
    """Return port and protocol of each containerPort; 80/TCP for a pod without any."""
    named = [
        (port["containerPort"], port.get("protocol", "TCP"))
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]
    return list(dict.fromkeys(named)) or [_DEFAULT_PORT]


def grace_left_s(metadata: JsonObject, now: datetime) -> float | None:
    """Return the seconds until a deleted pod has to stop, or None if it is not being deleted."""
    if (deadline := timestamps.parse(metadata.get("deletionTimestamp"))) is None:
        return None
    grace: float = metadata.get("deletionGracePeriodSeconds") or 0
    # The API server cuts off fractions of a second, so the time written may be up to a second early.
    left = (deadline - now).total_seconds() + 1
    return max(0.0, min(grace, left))


def warning(pod: JsonObject, reason: str, message: str, now: datetime) -> JsonObject:
    """Return a Warning Event about a pod."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **{k: metadata[k] for k in ("name", "namespace", "uid")}},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "kube-nftlb-lab"},
        "firstTimestamp": timestamps.seconds(now),
        "lastTimestamp": timestamps.seconds(now),
        "count": 1,
    }


def _condition(kind: str, truth: bool, reason: str | None, now: datetime) -> dict[str, Any]:
    # Conditions are merged: one that has no reason any more must say so.
    return {"type": kind, "status": str(truth), "lastTransitionTime": timestamps.seconds(now), "reason": reason}


def _carried_over(earlier: Iterable[JsonObject], condition: JsonObject) -> JsonObject:
    for entry in earlier:
        if entry["type"] == condition["type"] and entry["status"] == condition["status"]:
            return {**condition, "lastTransitionTime": entry["lastTransitionTime"] or condition["lastTransitionTime"]}
    return condition
