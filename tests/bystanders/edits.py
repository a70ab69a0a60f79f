"""The edits by others of Services of their own while the bystanders are tried."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kube_nftlb import names
from tests.builders.manifests import service
from tests.bystanders.stage import is_programmed
from tests.bystanders.verdict import Edit
from tests.engine import ENGINE
from tests.functional.cluster import Cluster, eventually

_PORTS = [{"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}]
_MORE = [*_PORTS, {"name": "more", "port": 81, "targetPort": 80}]
_WEB: dict[str, Any] = {"selector": {"app": "web"}, "ports": _PORTS}
_DUAL: dict[str, Any] = {**_WEB, "type": "NodePort", "ipFamilyPolicy": "PreferDualStack"}
_SERVICES: dict[str, dict[str, Any]] = {
    "edited": _DUAL,
    "six": {**_WEB, "ipFamilies": ["IPv6"]},
    "direct": {**_WEB, "ports": _PORTS[:1], "ipFamilies": ["IPv4"]},
}
_ANNOTATIONS = {
    "mode": ("dnat", "snat"),
    "persistence": ("srcip", "srcip dstport", "none"),
    "persist-ttl": ("90", "60"),
    "scheduler": ("weight", "hash", "rr"),
    "intra-connect": ("off", "on"),
    "log": ("input", "none"),
    "helper": ("ftp", "none"),
    "on-gone": ("cut", "keep"),
    "engine": ("nftables", "nftlb") if ENGINE == "nftlb" else ("nftlb", "nftables"),
}
_AFTERWARDS_S = 0.3
"""For what an edit does after all nodes have it, such as removing backends: it should not fall to the next one."""


class Others:
    """Services and pods in namespaces of their own."""

    def __init__(self, cluster: Cluster, namespace: str, doomed: str, patience_s: float) -> None:
        self._patience_s = patience_s
        self._cluster, self._namespace, self._doomed = cluster, namespace, doomed
        cluster.run("web", 3, namespace)
        for name in _SERVICES:
            self._apply(name)
        for number in range(3):
            cluster.apply(service(f"doomed-{number}", doomed, **_DUAL))
        self._settled()

    def edits(self) -> Iterator[Edit]:
        """Make one edit after the other; each is given when all nodes have it, or do not get it."""
        for name, act in self._edits():
            began = time.monotonic_ns()
            problem = ""
            try:
                act()
                self._settled()
            except AssertionError as error:
                # The bystanders count whatever became of it.
                problem = str(error)
            yield Edit(name, began, time.monotonic_ns(), problem)
            time.sleep(_AFTERWARDS_S)

    def _edits(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield from self._spec("sessionAffinity", "ClientIP", "None")
        for key, values in _ANNOTATIONS.items():
            for value in values:
                yield f"{key} {value}", partial(self._annotate, "edited", key, value)
        yield "a port more", partial(self._patch, "edited", {"spec": {"ports": _MORE}})
        yield "a port fewer", partial(self._patch, "edited", {"spec": {"ports": _PORTS}})
        yield from self._spec("externalTrafficPolicy", "Local", "Cluster")
        yield from self._spec("internalTrafficPolicy", "Local", "Cluster")
        yield from self._spec("ipFamilyPolicy", "SingleStack", "PreferDualStack")
        for name in ("six", "edited"):
            yield f"{name} is deleted", partial(self._cluster.delete, "service", name, self._namespace)
            yield f"{name} is created", partial(self._apply, name)
        for replicas in (6, 2):
            yield f"{replicas} endpoints", partial(self._scale, replicas)
        yield "a rollout", self._roll
        for mode in ("dsr", "snat"):
            yield f"mode {mode}", partial(self._annotate, "direct", "mode", mode)
        yield "a namespace is deleted", partial(self._cluster.delete, "namespace", self._doomed)

    def _spec(self, key: str, *values: str) -> Iterator[tuple[str, Callable[[], object]]]:
        for value in values:
            yield f"{key} {value}", partial(self._patch, "edited", {"spec": {key: value}})

    def _annotate(self, name: str, key: str, value: str) -> None:
        self._patch(name, {"metadata": {"annotations": {names.ANNOTATION_PREFIX + key: value}}})

    def _patch(self, name: str, changes: dict[str, Any]) -> None:
        self._cluster.api.patch("service", name, self._namespace, changes)

    def _apply(self, name: str) -> None:
        self._cluster.apply(service(name, self._namespace, **_SERVICES[name]))

    def _scale(self, replicas: int) -> None:
        self._cluster.scale("web", replicas, self._namespace)
        self._cluster.rolled_out("web", replicas, self._namespace)

    def _roll(self) -> None:
        template = {"metadata": {"annotations": {"rolled": str(time.monotonic_ns())}}}
        self._cluster.api.patch("deployment", "web", self._namespace, {"spec": {"template": template}})
        self._cluster.rolled_out("web", 2, self._namespace)

    def _settled(self) -> None:
        """Wait until all nodes have the farms of the Services as they are."""
        eventually(
            lambda: self._are_programmed(self._namespace, self._doomed),
            "all nodes have what was changed",
            self._patience_s,
        )

    def _are_programmed(self, *namespaces: str) -> bool:
        for namespace in namespaces:
            found = self._cluster.get("farm", namespace=namespace)["items"]
            farms = {farm["metadata"]["name"].partition("--")[0] for farm in found}
            services = {each["metadata"]["name"] for each in self._cluster.get("service", namespace=namespace)["items"]}
            if farms != services or not all(is_programmed(farm) for farm in found):
                return False
        return True
