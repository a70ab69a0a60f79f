"""The modes other than snat and dnat: who answers, what backends see, and that nothing is left behind."""

import json
from functools import partial
from typing import Any

import pytest

from lab.addresses import CLIENT
from tests.builders.manifests import deployment, farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(180)

DUAL = {"ipFamilyPolicy": "RequireDualStack"}
DSR = {"mode": "dsr"}
OUTSIDE = {str(interface.ip) for interface in CLIENT}


def run_on(cluster: Cluster, name: str, replicas: int, namespace: str, node: str, **container: Any) -> list[str]:
    """Servers on one node, ready; their names."""
    wanted = deployment(name, replicas, namespace, **container)
    wanted["spec"]["template"]["spec"]["nodeName"] = node
    cluster.apply(wanted)
    cluster.rolled_out(name, replicas, namespace)
    return cluster.pods(name, namespace)


def loopback(cluster: Cluster, pod: str) -> set[str]:
    """The addresses on a pod's loopback but its own two."""
    done = cluster.lab.exec(pod, "ip", "-json", "address", "show", "dev", "lo")
    found = {entry["local"] for link in json.loads(done.stdout) for entry in link["addr_info"]}
    return found - {"127.0.0.1", "::1"}


def arp(cluster: Cluster, pod: str) -> list[str]:
    paths = [f"/proc/sys/net/ipv4/conf/eth0/{name}" for name in ("arp_ignore", "arp_announce")]
    return cluster.lab.exec(pod, "cat", *paths).stdout.split()


def clean(cluster: Cluster, pod: str) -> bool:
    return loopback(cluster, pod) == set() and arp(cluster, pod) == ["0", "0"]


def client_ips(cluster: Cluster, namespace: str) -> set[str]:
    return {entry["ip"] for entry in cluster.get("pod", "client", namespace)["status"]["podIPs"]}


def connections_to(cluster: Cluster, node: str, vip: str) -> list[str]:
    """The node's tracked connections that were opened to an address."""
    lines = cluster.lab.exec(node, "conntrack", "-L").stdout.splitlines()
    return [line for line in lines if line.partition(" dst=")[2].startswith(f"{vip} ")]


def annotate(cluster: Cluster, name: str, namespace: str, mode: str) -> None:
    key = "service.kubernetes.io/kube-nftlb-load-balancer-mode"
    cluster.kubectl("annotate", "service", name, f"{key}={mode}", "-n", namespace, "--overwrite")


def programmed(cluster: Cluster, name: str, namespace: str) -> str:
    """The farm's condition."""
    conditions = (cluster.farm(name, namespace) or {}).get("status", {}).get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "Programmed" and c["status"] == "False"), "")


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_dsr_spreads_over_the_nodes_pods_which_answer_the_client_directly(
    cluster: Cluster, namespace: str, client: str, protocol: str
) -> None:
    ports = [{"name": "http", "port": 80, "protocol": protocol}]
    cluster.apply(service("web", namespace, DSR, ports=ports))
    container = {"ports": [{"containerPort": 80, "protocol": protocol}]}
    pods = run_on(cluster, "web", 3, namespace, cluster.nodes[0], **container)
    vip, options = cluster.vip("web", namespace), ("--udp",) if protocol == "UDP" else ()
    for where in (client, "client"):
        cluster.reaches(where, pods, vip, 80, *options)
        counted = cluster.count(where, 300, vip, 80, *options)
        assert not any(counted["failures"].values()), counted
        assert all(number > 50 for number in counted["answers"].values()), counted
        own = client_ips(cluster, namespace) if where == client else OUTSIDE
        assert set(counted["peers"]) <= own, "backends see the client itself"
    if protocol == "TCP":
        with cluster.streams(4, client, vip) as streams:
            assert connections_to(cluster, cluster.nodes[0], vip) == []
        assert all(stream["complete"] for stream in streams), streams


def test_a_pod_has_the_address_for_as_long_as_it_serves_in_the_mode_dsr(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.apply(service("web", namespace, DSR))
    pods = run_on(cluster, "web", 2, namespace, cluster.nodes[0])
    first, second = (f"{namespace}/{pod}" for pod in pods)
    vips = {cluster.vip("web", namespace)}
    cluster.reaches(client, pods, cluster.vip("web", namespace))
    eventually(lambda: loopback(cluster, first) == vips, "the pod has the addresses")
    assert arp(cluster, first) == ["1", "2"]

    cluster.kubectl("label", "pod", pods[0], "-n", namespace, "app=other", "--overwrite")
    eventually(lambda: clean(cluster, first), "a pod that has left is as it was")
    assert loopback(cluster, second) == vips

    annotate(cluster, "web", namespace, "snat")
    eventually(lambda: clean(cluster, second), "a pod of a farm in another mode is as it was")
    cluster.reaches("client", cluster.pods("web", namespace), cluster.vip("web", namespace))

    annotate(cluster, "web", namespace, "dsr")
    eventually(lambda: loopback(cluster, second) == vips, "the pod has the addresses again")
    cluster.lab.restart("agent")
    cluster.delete("service", "web", namespace)
    eventually(lambda: clean(cluster, second), "a restarted agent undoes what an earlier one has done")


def test_a_backend_that_comes_or_goes_is_followed(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, DSR))
    run_on(cluster, "web", 1, namespace, cluster.nodes[0])
    vip = cluster.vip("web", namespace)

    def has_pods(number: int) -> bool:
        return len(cluster.pods("web", namespace)) == number

    for replicas in (1, 3, 1, 2):
        cluster.scale("web", replicas, namespace)
        eventually(partial(has_pods, replicas), f"there are {replicas} pods")
        cluster.reaches(client, cluster.pods("web", namespace), vip)
    cluster.scale("web", 0, namespace)
    eventually(lambda: "refused" in cluster.count(client, 3, vip)["failures"], "without a backend it is refused")


def test_what_the_mode_dsr_cannot_do_is_said(cluster: Cluster, namespace: str, client: str) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    cluster.apply(service("web", namespace, DSR, ports=ports))
    run_on(cluster, "web", 1, namespace, cluster.nodes[0], ports=[{"containerPort": 8080}])
    eventually(
        lambda: "must listen on the farm's port" in programmed(cluster, "web--http", namespace), "the ports are named"
    )
    cluster.apply(service("far", namespace, DSR))
    run_on(cluster, "far", 1, namespace, cluster.nodes[1])
    eventually(lambda: "own bridges" in programmed(cluster, "far--http", namespace), "the other node is named")
    cluster.apply(service("dual", namespace, DSR, **DUAL))
    eventually(lambda: "is for IPv4" in programmed(cluster, "dual--http--ipv6", namespace), "the family is named")
    vip = cluster.vip("far", namespace)
    eventually(lambda: "refused" in cluster.count(client, 3, vip)["failures"], "a node without a backend refuses")


def test_stlsdnat_says_that_nftlb_cannot_and_works_as_dnat_when_told_so(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace, {"mode": "stlsdnat"}))
    pods = run_on(cluster, "web", 2, namespace, cluster.nodes[0])
    vip = cluster.vip("web", namespace)
    eventually(lambda: "nftlb 1.0.7 cannot load" in programmed(cluster, "web--http", namespace), "the farm says why")
    eventually(lambda: "refused" in cluster.count("client", 3, vip)["failures"], "nobody waits for an answer")
    annotate(cluster, "web", namespace, "dnat")
    cluster.reaches("client", pods, vip)


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_local_limits_a_process_on_the_node(cluster: Cluster, namespace: str, family: str) -> None:
    node, vip = cluster.nodes[0], {"ipv4": "10.96.77.1", "ipv6": "fd00:96::7701"}[family]
    spec = {"hostNetwork": True, "nodeName": node}
    wanted = deployment("web", 1, namespace, ports=[{"containerPort": 8099}])
    wanted["spec"]["template"]["spec"].update(spec)
    cluster.apply(wanted)
    cluster.rolled_out("web", 1, namespace)
    prefix = "128" if family == "ipv6" else "32"
    flags = ("nodad",) if family == "ipv6" else ()
    cluster.lab.exec(node, "ip", "address", "add", f"{vip}/{prefix}", "dev", "lo", *flags)
    try:
        wanted = farm("web", namespace, mode="local", family=family, addresses=[{"ip": vip, "ports": "8099"}])
        cluster.apply(wanted)
        cluster.farm_has("web", namespace, 0)
        pods = cluster.pods("web", namespace)
        cluster.reaches("client", pods, vip, 8099)
        assert set(cluster.count("client", 5, vip, 8099)["peers"]) <= OUTSIDE
        wanted["spec"]["limits"] = {"new": "1/hour", "newBurst": 5}
        cluster.apply(wanted)
        cluster.farm_has("web", namespace, 0)
        eventually(
            lambda: cluster.count("client", 8, vip, 8099, "--timeout", "0.2")["failures"] != {}, "new ones are limited"
        )
    finally:
        cluster.lab.exec(node, "ip", "address", "delete", f"{vip}/{prefix}", "dev", "lo")
