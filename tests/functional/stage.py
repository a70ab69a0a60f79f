"""The namespace in which a process runs one test after the other, with a client and servers that are there already.

To start a pod takes a hundred times as long as to label one. A test makes Services, farms and policies, and has servers
of the stage answer for a name (``Stage.serve``); it starts pods of its own where it scales, kills or annotates them.
"""

from functools import partial
from typing import Any

from tests.builders.manifests import client_pod
from tests.functional.cluster import Cluster, eventually

CLIENT, FAR = "client", "far"
"""Pods from which connections are made: on the first node, and on the second."""
_SERVERS = ("server-1", "server-2", "server-3", "server-4", "server-5")
_MADE_BY_TESTS = ("service", "endpointslice", "farm", "nftlbpolicy", "deployment", "statefulset")
_FREE = "free"
_PORTS = [
    *({"containerPort": port, "protocol": "TCP"} for port in (80, 81, 8000, 8001, 8080)),
    *({"containerPort": port, "protocol": "UDP"} for port in (53, 80, 81, 8001, 8080)),
]
"""Those on which all servers answer."""


class Stage:
    """A namespace with a client on each of the first two nodes, and servers on the nodes in turns."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.namespace = cluster.new_namespace()
        nodes = cluster.nodes
        for name, node in ((CLIENT, nodes[0]), (FAR, nodes[min(1, len(nodes) - 1)])):
            cluster.apply(client_pod(name, self.namespace, node))
        for number, name in enumerate(_SERVERS):
            cluster.apply(_server(name, self.namespace, nodes[number % len(nodes)]))
        for name in (CLIENT, FAR, *_SERVERS):
            cluster.wait("pod", name, "Ready", self.namespace)

    def is_tidy(self) -> bool:
        """Delete what the test made; True once no Service and farm is left whose name the next test may use."""
        api, namespace = self._cluster.api, self.namespace
        for kind in _MADE_BY_TESTS:
            api.delete_all(kind, namespace)
        for pod in self._cluster.get("pod", namespace=namespace)["items"]:
            name = pod["metadata"]["name"]
            if name in _SERVERS:
                self._reset(name, pod)
            elif name not in {CLIENT, FAR}:
                self._cluster.delete("pod", name, namespace)
        try:
            for kind in ("service", "farm"):
                eventually(partial(self._is_empty, kind), "gone", 10)
        except AssertionError:
            return False
        return True

    def _reset(self, server: str, pod: dict[str, Any]) -> None:
        """Take back what the test did to a server: its labels, annotations and readiness."""
        metadata = pod["metadata"]
        annotations = dict.fromkeys(metadata.get("annotations", {}))
        if annotations or metadata["labels"] != _labels(_FREE):
            wanted = {"metadata": {"labels": _labels(_FREE), "annotations": annotations}}
            self._cluster.api.patch("pod", server, self.namespace, wanted)
        if not _is_ready(pod):
            self._cluster.lab.pod(True, f"{self.namespace}/{server}")
            self._cluster.wait("pod", server, "Ready", self.namespace)

    def _is_empty(self, kind: str) -> bool:
        return not self._cluster.get(kind, namespace=self.namespace)["items"]

    def serve(self, name: str, replicas: int, node: str | None = None) -> None:
        """Let this many servers (on a node) be pods of the app ``name``, and the others not; they are ready at once."""
        pods = self._cluster.get("pod", namespace=self.namespace)["items"]
        apps = {pod["metadata"]["name"]: pod["metadata"].get("labels", {}).get("app") for pod in pods}
        serving = [server for server in _SERVERS if apps[server] == name]
        on = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
        free = [server for server in _SERVERS if apps[server] == _FREE and node in (None, on[server])]
        missing = max(0, replicas - len(serving))
        assert missing <= len(free), f"the stage has {len(free)} servers to spare, not {missing}: start a Deployment"
        for server in free[:missing]:
            self._relabel(server, name)
        for server in serving[replicas:]:
            self._relabel(server, _FREE)

    def _relabel(self, server: str, app: str) -> None:
        self._cluster.api.patch("pod", server, self.namespace, {"metadata": {"labels": _labels(app)}})


def _labels(app: str) -> dict[str, str]:
    return {"app": app}


def _is_ready(pod: dict[str, Any]) -> bool:
    return any((each["type"], each["status"]) == ("Ready", "True") for each in pod["status"]["conditions"])


def _server(name: str, namespace: str, node: str) -> dict[str, Any]:
    manifest = client_pod(name, namespace, node)
    manifest["metadata"]["labels"] = _labels(_FREE)
    manifest["spec"]["containers"][0]["ports"] = _PORTS
    return manifest
