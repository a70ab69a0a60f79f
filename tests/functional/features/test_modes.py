"""The modes other than snat and dnat: who answers, what backends see, and that nothing is left behind."""

import json

import pytest

from lab.addresses import CLIENT
from tests.builders.manifests import deployment, farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique

DUAL = {"ipFamilyPolicy": "RequireDualStack"}
DSR = {"mode": "dsr"}
OUTSIDE = {str(interface.ip) for interface in CLIENT}


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
    cluster.api.patch("service", name, namespace, {"metadata": {"annotations": {key: mode}}})


def programmed(cluster: Cluster, name: str, namespace: str) -> str:
    """The farm's condition."""
    found = cluster.condition("farm", name, "Programmed", namespace)
    return str(found["message"]) if found.get("status") == "False" else ""


def mode_of(cluster: Cluster, name: str, namespace: str) -> str:
    """The farm's mode, ``""`` while there is no farm."""
    return str((cluster.farm(name, namespace) or {}).get("spec", {}).get("mode", ""))


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_dsr_spreads_over_the_nodes_pods_which_answer_the_client_directly(
    cluster: Cluster, namespace: str, client: str, protocol: str
) -> None:
    ports = [{"name": "http", "port": 80, "protocol": protocol}]
    cluster.serve("web", 3, namespace, cluster.nodes[0])
    cluster.apply(service("web", namespace, DSR, ports=ports))
    pods = cluster.pods("web", namespace)
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
    cluster.serve("web", 2, namespace, cluster.nodes[0])
    cluster.apply(service("web", namespace, DSR))
    pods, vip = cluster.pods("web", namespace), cluster.vip("web", namespace)
    first, second = (f"{namespace}/{pod}" for pod in pods)
    cluster.reaches(client, pods, vip)
    eventually(lambda: loopback(cluster, first) == {vip}, "the pod has the addresses")
    assert arp(cluster, first) == ["1", "2"]

    cluster.api.patch("pod", pods[0], namespace, {"metadata": {"labels": {"app": "other"}}})
    eventually(lambda: clean(cluster, first), "a pod that has left is as it was")
    assert loopback(cluster, second) == {vip}

    annotate(cluster, "web", namespace, "snat")
    eventually(lambda: clean(cluster, second), "a pod of a farm in another mode is as it was")
    cluster.reaches("client", pods[1:], vip)

    annotate(cluster, "web", namespace, "dsr")
    eventually(lambda: loopback(cluster, second) == {vip}, "the pod has the addresses again")
    cluster.delete("service", "web", namespace)
    eventually(lambda: clean(cluster, second), "a pod whose Service is deleted is as it was")


def test_a_backend_that_comes_or_goes_is_followed(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 1, namespace, cluster.nodes[0])
    cluster.apply(service("web", namespace, DSR))
    vip = cluster.vip("web", namespace)
    for replicas in (1, 3, 1, 2):
        cluster.serve("web", replicas, namespace, cluster.nodes[0])
        cluster.reaches(client, cluster.pods("web", namespace), vip)
    cluster.serve("web", 0, namespace)
    eventually(lambda: "refused" in cluster.count(client, 3, vip)["failures"], "without a backend it is refused")


def test_what_the_mode_dsr_cannot_do_is_said(cluster: Cluster, namespace: str, client: str) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    cluster.serve("web", 1, namespace, cluster.nodes[0])
    cluster.apply(service("web", namespace, DSR, ports=ports))
    eventually(
        lambda: "must listen on the farm's port" in programmed(cluster, "web--http", namespace), "the ports are named"
    )
    cluster.serve("far", 1, namespace, cluster.nodes[1])
    cluster.apply(service("far", namespace, DSR))
    # One node alone says so, whose own words its NftlbNode has.
    eventually(lambda: "NoLocalBackend" in programmed(cluster, "far--http", namespace), "the other node is named")
    failed = cluster.get("nftlbnode", cluster.nodes[0])["status"]["failedFarms"]
    assert any("own bridges" in each["message"] for each in failed)
    cluster.apply(service("dual", namespace, DSR, **DUAL))
    eventually(lambda: mode_of(cluster, "dual--http--ipv6", namespace) == "snat", "IPv6 has the default mode")

    def told() -> list[str]:
        return [event["message"] for event in cluster.events("Service", "dual", namespace)]

    eventually(lambda: any("mode dsr requires family ipv4" in message for message in told()), "its Events say why")
    vip = cluster.vip("far", namespace)
    eventually(lambda: "refused" in cluster.count(client, 3, vip)["failures"], "a node without a backend refuses")


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_local_limits_a_process_on_the_node(cluster: Cluster, namespace: str, family: str) -> None:
    node, vip, port = cluster.nodes[0], unique(family), {"ipv4": 8098, "ipv6": 8099}[family]
    spec = {"hostNetwork": True, "nodeName": node}
    wanted = deployment("web", 1, namespace, ports=[{"containerPort": port}])
    wanted["spec"]["template"]["spec"].update(spec)
    cluster.apply(wanted)
    cluster.rolled_out("web", 1, namespace)
    prefix = "128" if family == "ipv6" else "32"
    flags = ("nodad",) if family == "ipv6" else ()
    cluster.lab.exec(node, "ip", "address", "add", f"{vip}/{prefix}", "dev", "lo", *flags)
    try:
        wanted = farm("web", namespace, mode="local", family=family, addresses=[{"ip": vip, "ports": str(port)}])
        cluster.apply(wanted)
        cluster.farm_has("web", namespace, 0)
        pods = cluster.pods("web", namespace)
        cluster.reaches("client", pods, vip, port)
        assert set(cluster.count("client", 5, vip, port)["peers"]) <= OUTSIDE
        wanted["spec"]["limits"] = {"new": "1/hour", "newBurst": 5}
        cluster.apply(wanted)
        cluster.farm_has("web", namespace, 0)
        eventually(
            lambda: cluster.count("client", 8, vip, port, "--timeout", "0.2")["failures"] != {}, "new ones are limited"
        )
    finally:
        cluster.lab.exec(node, "ip", "address", "delete", f"{vip}/{prefix}", "dev", "lo")
