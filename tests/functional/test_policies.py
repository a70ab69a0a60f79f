"""NftlbPolicies: who gets in, and who does not."""

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.cluster import Cluster, client_pod, eventually, farm, policy

pytestmark = pytest.mark.timeout(240)

VIPS = {"ipv4": "10.99.1.1", "ipv6": "fd00:99::1:1"}
ON_AN_INTERFACE = {"ipv4": "172.31.0.77", "ipv6": "fd00:31::77"}
NOBODY = "192.0.2.0/24"


class Sources:
    """Those who want to get in, by the place that they connect from, with their addresses."""

    def __init__(self, cluster: Cluster, namespace: str, family: str) -> None:
        self.pod, self.far_pod = f"{namespace}/client", f"{namespace}/far-client"
        self.node, self.far_node = cluster.nodes
        self.outside = "client"
        self._cidrs = {
            **{f"{namespace}/{name}": _pod_ip(cluster, name, namespace, family) for name in ("client", "far-client")},
            **{node: _link_address(cluster, node, family) for node in (*cluster.nodes, self.outside)},
        }

    @property
    def all(self) -> set[str]:
        return set(self._cidrs)

    def cidrs(self, *places: str) -> list[str]:
        return [f"{ip}/{ipaddress.ip_address(ip).max_prefixlen}" for ip in (self._cidrs[place] for place in places)]


def _pod_ip(cluster: Cluster, name: str, namespace: str, family: str = "ipv4") -> str:
    ips = [entry["ip"] for entry in cluster.get("pod", name, namespace)["status"]["podIPs"]]
    return next(ip for ip in ips if (":" in ip) == (family == "ipv6"))


def _link_address(cluster: Cluster, place: str, family: str) -> str:
    links = json.loads(cluster.lab.exec(place, "ip", "-j", "address", "show", "scope", "global").stdout)
    addresses = [entry["local"] for link in links for entry in link["addr_info"] if link["ifname"] == "eth0"]
    return next(ip for ip in addresses if (":" in ip) == (family == "ipv6"))


def backends(cluster: Cluster, namespace: str, family: str = "ipv4") -> list[dict[str, Any]]:
    pods = cluster.pods("web", namespace)
    return [{"name": pod, "ip": _pod_ip(cluster, pod, namespace, family), "port": 80} for pod in pods]


def gets_in(cluster: Cluster, where: str, host: str, port: int = 80) -> bool:
    """Whether connections are answered, or all of them dropped."""
    counted = cluster.count(where, 3, host, port, "--timeout", "1")
    failed = {kind: number for kind, number in counted["failures"].items() if number}
    assert not failed or failed == {"timeout": 3}, counted
    return not failed


def only(cluster: Cluster, sources: Sources, places: set[str], host: str) -> None:
    found = {place for place in sources.all if gets_in(cluster, place, host)}
    assert found == places


@pytest.fixture
def sources(cluster: Cluster, namespace: str, client: str, family: str) -> Sources:  # noqa: ARG001 - the pod is there
    cluster.apply(client_pod("far-client", namespace, cluster.nodes[1]))
    cluster.wait("pod", "far-client", "Ready", namespace)
    return Sources(cluster, namespace, family)


@pytest.fixture(params=["ipv4", "ipv6"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def interface_address(cluster: Cluster, family: str) -> Iterator[str]:
    """An address that the first node has, too."""
    address = ON_AN_INTERFACE[family]
    cidr = f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
    added = cluster.lab.exec(cluster.nodes[0], "ip", "address", "add", cidr, "dev", "eth0", "nodad")
    assert added.returncode == 0, added.stderr
    yield address
    cluster.lab.exec(cluster.nodes[0], "ip", "address", "del", cidr, "dev", "eth0")


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> list[str]:
    """Pods to be backends of farms."""
    cluster.run("web", 2, namespace)
    return cluster.pods("web", namespace)


def serve(cluster: Cluster, namespace: str, name: str = "web", vip: str = VIPS["ipv4"], **spec: Any) -> None:
    """A farm written by hand, programmed."""
    family = spec.setdefault("family", "ipv4")
    addresses = spec.pop("addresses", [{"ip": vip, "ports": "80"}])
    cluster.apply(farm(name, namespace, addresses=addresses, backends=backends(cluster, namespace, family), **spec))
    programmed(cluster, name, namespace)


def programmed(cluster: Cluster, name: str, namespace: str) -> None:
    generation = cluster.farm(name, namespace)["metadata"]["generation"]

    def check() -> bool:
        found = condition(cluster, "farm", name, namespace)
        return (found.get("status"), found.get("observedGeneration")) == ("True", generation)

    eventually(check, f"all nodes have {name}")


def enforced(cluster: Cluster, name: str, namespace: str) -> None:
    """Wait until the policy's status says that all nodes have it as it is now."""
    generation = cluster.get("nftlbpolicy", name, namespace)["metadata"]["generation"]

    def check() -> bool:
        found = condition(cluster, "nftlbpolicy", name, namespace)
        return (found.get("status"), found.get("observedGeneration")) == ("True", generation)

    eventually(check, f"all nodes have the policy {name}")


def condition(cluster: Cluster, kind: str, name: str, namespace: str) -> dict[str, Any]:
    conditions = cluster.get(kind, name, namespace).get("status", {}).get("conditions", [])
    return {entry["type"]: entry for entry in conditions}.get("Programmed", {})


def give(cluster: Cluster, *policies: dict[str, Any]) -> None:
    """Create or replace policies, and wait for all nodes."""
    cluster.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(policies)}),
    )
    for each in policies:
        enforced(cluster, each["metadata"]["name"], each["metadata"]["namespace"])


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("place", ["nowhere", "on an interface"])
def test_deny_lists_and_allow_lists_decide_who_gets_in(
    cluster: Cluster,
    namespace: str,
    family: str,
    sources: Sources,
    interface_address: str,
    place: str,
) -> None:
    vip = interface_address if place == "on an interface" else VIPS[family]
    serve(cluster, namespace, vip=vip, family=family)
    only(cluster, sources, sources.all, vip)
    give(
        cluster,
        policy("not-you", namespace, "deny", [NOBODY, *sources.cidrs(sources.pod, sources.far_node, sources.outside)]),
        policy("you", namespace, "allow", sources.cidrs(sources.pod, sources.far_pod, sources.far_node)),
    )
    serve(cluster, namespace, vip=vip, family=family, policies=["not-you"])
    only(cluster, sources, {sources.far_pod, sources.node}, vip)
    serve(cluster, namespace, vip=vip, family=family, policies=["you"])
    only(cluster, sources, {sources.pod, sources.far_pod, sources.far_node}, vip)
    serve(cluster, namespace, vip=vip, family=family, policies=["you", "not-you"])
    only(cluster, sources, {sources.far_pod}, vip)
    serve(cluster, namespace, vip=vip, family=family)
    only(cluster, sources, sources.all, vip)
