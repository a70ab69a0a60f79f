"""The edits by others of Services of their own while the bystanders are tried."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kube_nftlb import names
from kube_nftlb.api.farm.engines import lacking
from tests.builders.manifests import service
from tests.bystanders.stage import is_programmed
from tests.bystanders.verdict import Edit
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
}
_AFTERWARDS_S = 0.3
"""For what an edit does after all nodes have it, such as removing backends: it should not fall to the next one."""


class Others:
    """Services of each engine, which all edits change at once, and pods in namespaces of their own."""

    def __init__(
        self, cluster: Cluster, namespace: str, doomed: str, engines: Sequence[str], patience_s: float
    ) -> None:
        self._engines, self._patience_s = engines, patience_s
        self._cluster, self._namespace, self._doomed = cluster, namespace, doomed
        cluster.run("web", 3, namespace)
        for name in _SERVICES:
            self._apply(name)
        for number, by in itertools.product(range(3), engines):
            cluster.apply(service(f"doomed-{number}-{by}", doomed, {"engine": by}, **_DUAL))
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
        yield "the engines are swapped", partial(self._move, to_other=True)
        yield "the engines are as before", partial(self._move, to_other=False)
        yield "a port more", partial(self._patch, "edited", {"spec": {"ports": _MORE}})
        yield "a port fewer", partial(self._patch, "edited", {"spec": {"ports": _PORTS}})
        yield from self._spec("externalTrafficPolicy", "Local", "Cluster")
        yield from self._spec("internalTrafficPolicy", "Local", "Cluster")
        yield from self._spec("ipFamilyPolicy", "SingleStack", "PreferDualStack")
        for name in ("six", "edited"):
            yield f"{name} is deleted", partial(self._delete, name)
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
        """Annotate the Services of the engines that can serve this."""
        for by in self._engines:
            if by == "nftlb" or lacking({key: value}) is None:
                self._annotate_one(f"{name}-{by}", key, value)

    def _annotate_one(self, service_name: str, key: str, value: str) -> None:
        changes = {"metadata": {"annotations": {names.ANNOTATION_PREFIX + key: value}}}
        self._cluster.api.patch("service", service_name, self._namespace, changes)

    def _move(self, *, to_other: bool) -> None:
        other = {"nftlb": "nftables", "nftables": "nftlb"}
        for by in self._engines:
            self._annotate_one(f"edited-{by}", "engine", other[by] if to_other else by)

    def _patch(self, name: str, changes: dict[str, Any]) -> None:
        for by in self._engines:
            self._cluster.api.patch("service", f"{name}-{by}", self._namespace, changes)

    def _apply(self, name: str) -> None:
        for by in self._engines:
            self._cluster.apply(service(f"{name}-{by}", self._namespace, {"engine": by}, **_SERVICES[name]))

    def _delete(self, name: str) -> None:
        for by in self._engines:
            self._cluster.delete("service", f"{name}-{by}", self._namespace)

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
