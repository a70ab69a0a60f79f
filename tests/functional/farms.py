"""Farms written by hand: addresses that no other test has, backends of pods, and a farm in front of servers."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually

_numbers: Iterator[int] = itertools.count()
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PER_PROCESS = 2000
_SOURCES = 10
"""The most further addresses of a client."""


def unique(family: str = "ipv4") -> str:
    """An address that no other test of this run has: each process of pytest numbers those of its own."""
    number = _process * _PER_PROCESS + next(_numbers)
    return f"10.99.{100 + number // 250}.{number % 250 + 1}" if family == "ipv4" else f"fd00:99::{number + 1:x}"


def service_ip() -> str:
    """A cluster IP that no other test asks for, and that no Service is given by chance soon."""
    return f"10.96.{200 + _process}.{next(_numbers) % 250 + 1}"


def node_port() -> int:
    """A node port that no other test asks for; the API server gives those above, while it has any."""
    return 30_000 + _process * 16 + next(_numbers) % 16


def backends(cluster: Cluster, app: str, namespace: str, family: str = "ipv4", **changes: Any) -> list[dict[str, Any]]:
    """The backends for the pods of an app, in the order of their names."""
    pods = cluster.get("pod", namespace=namespace, labelSelector=f"app={app}")["items"]
    return [
        {"name": pod["metadata"]["name"], "ip": ip, "port": 80, **changes}
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        for ip in (entry["ip"] for entry in pod["status"]["podIPs"])
        if (":" in ip) == (family == "ipv6")
    ]


def accepted(cluster: Cluster, name: str, namespace: str) -> tuple[str, str, str]:
    """Return status, reason and message of a farm's condition Accepted."""
    found = cluster.condition("farm", name, "Accepted", namespace)
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


class Front:
    """A farm named ``front`` with an address of its own, before the servers ``web``: those of the stage, if they do."""

    def __init__(self, cluster: Cluster, namespace: str, replicas: int = 3, family: str = "ipv4", **run: Any) -> None:
        self.cluster, self.namespace, self.family = cluster, namespace, family
        self.ip = unique(family)
        if run:
            cluster.run("web", replicas, namespace, **run)
        else:
            cluster.serve("web", replicas, namespace)
        self._ips = {each["name"]: each["ip"] for each in backends(cluster, "web", namespace, family)}
        self.pods = sorted(self._ips)

    def backend(self, pod: str, **changes: Any) -> dict[str, Any]:
        """A backend for a pod; with ``port=None`` it keeps the port that the client used."""
        entry = {"name": pod, "ip": self._ips[pod], "port": 80, **changes}
        return {key: value for key, value in entry.items() if value is not None}

    def apply(self, **spec: Any) -> None:
        """Apply the farm and wait until all nodes have it."""
        self.submit(**spec)
        self.settled()

    def submit(self, **spec: Any) -> None:
        given = {
            "family": self.family,
            "addresses": [{"ip": self.ip, "ports": "80"}],
            "backends": [self.backend(pod) for pod in self.pods],
            **spec,
        }
        self.cluster.apply(farm("front", self.namespace, **given))

    def settled(self) -> None:
        eventually(self.programmed, "all nodes have the farm")

    def programmed(self) -> bool:
        """Return True if Programmed is true for the current generation."""
        generation = self.cluster.farm("front", self.namespace)["metadata"]["generation"]
        found = self.cluster.condition("farm", "front", "Programmed", self.namespace)
        return (found.get("status"), found.get("observedGeneration")) == ("True", generation)

    @property
    def reason(self) -> str:
        """The status's ``reason``, which kubectl shows."""
        return self.cluster.reason("front", self.namespace)

    def count(self, where: str, number: int, *options: object, port: int = 80) -> dict[str, int]:
        """Open connections and return the number of replies by pod. Raises AssertionError if one fails."""
        counted = self.cluster.count(where, number, self.ip, port, *(str(option) for option in options))
        assert not any(counted["failures"].values()), counted
        return dict(counted["answers"])

    def one(self, where: str, *options: object, port: int = 80, number: int = 5) -> str:
        """The one pod that answers all connections."""
        answers = self.count(where, number, *options, port=port)
        assert len(answers) == 1, answers
        return next(iter(answers))

    def refuses(self, where: str, port: int = 80, *options: str) -> bool:
        """Return True if a new connection is refused."""
        return bool(self.cluster.count(where, 1, self.ip, port, *options)["failures"].get("refused"))

    def more_sources(self, client: str, number: int) -> list[str]:
        """Give a pod on the first node further addresses, and return them."""
        cidr = next(
            each for each in self.cluster.lab.nodes[0].pod_cidrs if each.version == (6 if self.family == "ipv6" else 4)
        )
        # Each process has a client of its own; what an earlier test gave it is there.
        assert number <= _SOURCES
        sources = [str(cidr[200 + _process * _SOURCES + index]) for index in range(number)]
        for source in sources:
            flags = ["nodad"] if self.family == "ipv6" else []
            to = (f"{source}/{cidr.prefixlen}", "dev", "eth0", *flags)
            done = self.cluster.lab.exec(client, "ip", "address", "add", *to)
            assert done.returncode == 0 or "already assigned" in done.stderr or "File exists" in done.stderr, done
            if done.returncode == 0:
                # The client of an earlier stage may have had it.
                self.cluster.lab.exec(self.cluster.nodes[0], "ip", "neighbour", "flush", "to", source)
        return sources
