"""Clients by the place that they connect from, and who of them gets in where policies decide."""

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab.addresses import CLIENT, Interfaces
from tests.builders.manifests import farm
from tests.functional import farms, stage
from tests.functional.cluster import Cluster, eventually


class Sources:
    """The clients, by the place that they connect from, with their addresses."""

    def __init__(self, cluster: Cluster, namespace: str, family: str) -> None:
        self.pod, self.far_pod = f"{namespace}/{stage.CLIENT}", f"{namespace}/{stage.FAR}"
        self.node, self.far_node = cluster.nodes
        self.outside = "client"
        self._cidrs = {
            **{f"{namespace}/{name}": _pod_ip(cluster, name, namespace, family) for name in (stage.CLIENT, stage.FAR)},
            **{node.name: _of_family(node.addresses, family) for node in cluster.lab.nodes},
            self.outside: _of_family(CLIENT, family),
        }

    @property
    def all(self) -> set[str]:
        return set(self._cidrs)

    def cidrs(self, *places: str) -> list[str]:
        return [f"{ip}/{ipaddress.ip_address(ip).max_prefixlen}" for ip in (self._cidrs[place] for place in places)]


def _of_family(interfaces: Interfaces, family: str) -> str:
    return str(interfaces[family == "ipv6"].ip)


def _pod_ip(cluster: Cluster, name: str, namespace: str, family: str) -> str:
    ips = [entry["ip"] for entry in cluster.get("pod", name, namespace)["status"]["podIPs"]]
    return str(next(ip for ip in ips if (":" in ip) == (family == "ipv6")))


def gets_in(cluster: Cluster, where: str, host: str, port: int = 80) -> bool:
    """Return True if two connections, opened at once, are answered, False if both are dropped."""
    # More than the second after which a client repeats a first packet that came while nftlb made its rules anew.
    patience = ("--timeout", "1.5")
    with ThreadPoolExecutor(2) as threads:
        counted = list(threads.map(lambda _: cluster.count(where, 1, host, port, *patience), range(2)))
    failed = [{kind: number for kind, number in each["failures"].items() if number} for each in counted]
    assert failed in ([{}, {}], [{"timeout": 1}, {"timeout": 1}]), counted
    return not any(failed)


STEADY = ("--timeout", "0.1", "--threads", "30")
"""For a denied client: several hundred attempts a second."""


def all_get_in(cluster: Cluster, *ways: tuple[str, str]) -> list[bool]:
    """The same for several pairs of place and address, at once."""
    with ThreadPoolExecutor(len(ways)) as threads:
        return list(threads.map(lambda way: gets_in(cluster, *way), ways))


def only(cluster: Cluster, sources: Sources, places: set[str], host: str) -> None:
    found = all_get_in(cluster, *((place, host) for place in sources.all))
    assert {place for place, got_in in zip(sources.all, found, strict=True) if got_in} == places


def serve(cluster: Cluster, namespace: str, name: str = "web", *, vip: str = "", **spec: Any) -> None:
    """A farm written by hand before two servers of the stage, programmed."""
    cluster.serve("web", 2, namespace)
    addresses = spec.pop("addresses", [{"ip": vip, "ports": "80"}])
    backends = farms.backends(cluster, "web", namespace, spec.setdefault("family", "ipv4"))
    cluster.apply(farm(name, namespace, **{"addresses": addresses, "backends": backends, **spec}))
    programmed(cluster, name, namespace)


def programmed(cluster: Cluster, name: str, namespace: str) -> None:
    _everywhere(cluster, "farm", name, namespace, 60)


def enforced(cluster: Cluster, name: str, namespace: str) -> None:
    """Wait until the policy's status says that all nodes have it as it is now."""
    _everywhere(cluster, "nftlbpolicy", name, namespace, 90)


def _everywhere(cluster: Cluster, kind: str, name: str, namespace: str, seconds: float) -> None:
    generation = cluster.get(kind, name, namespace)["metadata"]["generation"]

    def check() -> bool:
        found = cluster.condition(kind, name, "Programmed", namespace)
        return (found.get("status"), found.get("observedGeneration")) == ("True", generation)

    eventually(check, f"all nodes have the {kind} {name}", seconds)


def give(cluster: Cluster, *policies: dict[str, Any]) -> None:
    """Create or replace policies, and wait for all nodes."""
    cluster.apply(*policies)
    for each in policies:
        enforced(cluster, each["metadata"]["name"], each["metadata"]["namespace"])
