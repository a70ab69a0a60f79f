"""kube-proxy on real nodes, as kubeadm installs it: a DaemonSet in ``kube-system`` with a ConfigMap."""

import json
from pathlib import Path
from typing import Any

from lab import addresses

NAME, NAMESPACE = "kube-proxy", "kube-system"
_PROGRAMS = "/programs"
_SETTINGS = "/var/lib/kube-proxy"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_CONFIG = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "nftables",
    "clusterCIDR": addresses.POD_CIDRS,
    "clientConnection": {"kubeconfig": f"{_SETTINGS}/kubeconfig.conf"},
    # These settings belong to the machine, not to the nodes of a lab.
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
}
_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {
            "name": "default",
            "cluster": {
                "certificate-authority": f"{_TOKEN}/ca.crt",
                "server": f"https://{addresses.API_HOST}:{addresses.API_PORT}",
            },
        }
    ],
    "users": [{"name": "default", "user": {"tokenFile": f"{_TOKEN}/token"}}],
    "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    "current-context": "default",
}


def manifests(program: Path, image: str) -> list[dict[str, Any]]:
    """Return the objects of kube-proxy, whose program is a file of this machine; the image has nft(8)."""
    of_proxy = {"name": NAME, "namespace": NAMESPACE}
    files = {"config.conf": json.dumps(_CONFIG), "kubeconfig.conf": json.dumps(_KUBECONFIG)}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": of_proxy},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kubeadm:node-proxier"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **of_proxy}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": of_proxy, "data": files},
        _daemon_set(program, image),
    ]


def _daemon_set(program: Path, image: str) -> dict[str, Any]:
    labels = {"k8s-app": NAME}
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "Never",
        "command": [
            f"{_PROGRAMS}/{program.name}",
            f"--config={_SETTINGS}/config.conf",
            "--hostname-override=$(NODE_NAME)",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "settings", "mountPath": _SETTINGS},
            {"name": "programs", "mountPath": _PROGRAMS, "readOnly": True},
        ],
    }
    pod = {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "serviceAccountName": NAME,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": [
            {"name": "settings", "configMap": {"name": NAME}},
            {"name": "programs", "hostPath": {"path": str(program.parent)}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
