"""Traffic while kube-nftlb itself is changed, and what is left after uninstalling."""

from functools import partial

import pytest

from lab import cni
from tests.e2e.real import SYSTEM, RealCluster, until
from tests.e2e.test_walkthrough import my_service

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.fixture
def vip(cluster: RealCluster, namespace: str) -> str:
    """A Service with two containers behind it."""
    cluster.serve("lower-prio", 2, namespace)
    cluster.apply(my_service(namespace))
    cluster.farm_has("my-service--http", namespace, ready=2)
    address = cluster.vip("my-service", namespace)
    cluster.reaches("client", cluster.pods("lower-prio", namespace), address, 8080)
    return address


def test_connections_go_on_while_the_release_is_upgraded(cluster: RealCluster, vip: str) -> None:
    before = {pod["metadata"]["uid"] for pod in cluster.system_pods("agent") + cluster.system_pods("operator")}
    with cluster.hammer("client", vip, 8080) as hammered:
        cluster.install("--set", "log.level=DEBUG")
    after = {pod["metadata"]["uid"] for pod in cluster.system_pods("agent") + cluster.system_pods("operator")}
    assert not before & after
    # nftlb begins each start with an empty table; a connection that is opened just then is dropped, and tried again.
    assert sum(hammered["failed"].values()) <= len(cluster.nodes), hammered


def test_connections_go_on_while_an_agent_is_replaced(cluster: RealCluster, vip: str, namespace: str) -> None:
    agent = next(pod for pod in cluster.system_pods("agent") if pod["spec"]["nodeName"] == cluster.nodes[0])
    with cluster.hammer("client", vip, 8080) as hammered:
        cluster.kubectl("delete", "pod", agent["metadata"]["name"], "-n", SYSTEM)
        cluster.kubectl("rollout", "status", "daemonset/kube-nftlb-agent", "-n", SYSTEM, "--timeout=120s")
    assert sum(hammered["failed"].values()) <= 1, hammered
    cluster.scale("lower-prio", 3, namespace)
    cluster.kubectl("rollout", "status", "deployment/lower-prio", "-n", namespace, "--timeout=120s")
    cluster.farm_has("my-service--http", namespace, ready=3)
    cluster.reaches("client", cluster.pods("lower-prio", namespace), vip, 8080)


def test_another_operator_takes_over(cluster: RealCluster, vip: str, namespace: str) -> None:
    def leader() -> str:
        lease = cluster.get("lease", "kube-nftlb-operator", SYSTEM)
        return str(lease["spec"].get("holderIdentity") or "") if lease else ""

    until(lambda: bool(leader()), "an operator leads")
    pods = [pod["metadata"]["name"] for pod in cluster.system_pods("operator")]
    first = next(pod for pod in pods if leader().startswith(pod))
    cluster.kubectl("delete", "pod", first, "-n", SYSTEM, "--wait=false")
    until(lambda: bool(leader()) and not leader().startswith(first), "another operator leads")
    cluster.scale("lower-prio", 3, namespace)
    cluster.kubectl("rollout", "status", "deployment/lower-prio", "-n", namespace, "--timeout=120s")
    cluster.farm_has("my-service--http", namespace, ready=3)
    cluster.reaches("client", cluster.pods("lower-prio", namespace), vip, 8080)


@pytest.mark.skipif(cni.chosen() == "ptp", reason="the mode dsr needs pods on bridges, and those of ptp are on none")
def test_the_mode_dsr_reaches_containers(cluster: RealCluster, namespace: str) -> None:
    cluster.install("--set", "dsr.enabled=true")
    cluster.serve("lower-prio", 2, namespace)
    annotation = {"service.kubernetes.io/kube-nftlb-load-balancer-mode": "dsr"}
    service = my_service(namespace, annotation)
    # In this mode nothing translates ports.
    service["spec"] = {**service["spec"], "ports": [{"name": "http", "port": 8080}]}  # type: ignore[dict-item]  # JSON
    cluster.apply(service)
    cluster.farm_has("my-service--http", namespace, ready=2)
    vip = cluster.vip("my-service", namespace)
    # Each node sends to its own pods; the client's connections come to the first one.
    here = [
        pod
        for pod in cluster.pods("lower-prio", namespace)
        if cluster.get("pod", pod, namespace)["spec"]["nodeName"] == cluster.nodes[0]
    ]
    cluster.reaches("client", here, vip, 8080)


def has_tables_of_before(cluster: RealCluster, node: str) -> bool:
    return cluster.tables(node) == cluster.tables_before[node]


def test_nothing_is_left_after_uninstalling(cluster: RealCluster, vip: str, namespace: str) -> None:
    for node in cluster.nodes:
        assert {"nftlb", "kube-nftlb"} <= set(cluster.tables(node))
    cluster.uninstall()
    for node in cluster.nodes:
        until(partial(has_tables_of_before, cluster, node), f"{node} has only the tables of before")
    # crds.keep: who uninstalls does not lose farms written by hand.
    assert cluster.farm("my-service--http", namespace) is not None
    # And it can be installed again.
    cluster.install()
    cluster.reaches("client", cluster.pods("lower-prio", namespace), vip, 8080)
