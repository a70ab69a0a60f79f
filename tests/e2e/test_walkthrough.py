"""The original kube-nftlb's walk-through, with real containers, from installation on."""

import re
from functools import partial

import pytest

from tests.e2e.real import PORT, SYSTEM, RealCluster, until

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

ANNOTATIONS = {
    "service.kubernetes.io/kube-nftlb-load-balancer-mode": "snat",
    "service.kubernetes.io/kube-nftlb-load-balancer-scheduler": "symhash",
    "service.kubernetes.io/kube-nftlb-load-balancer-persistence": "none",
}


def my_service(namespace: str, annotations: dict[str, str] | None = None, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "my-service", "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "selector": {"app": "lower-prio"},
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "targetPort": PORT}],
            **spec,
        },
    }


def test_what_runs_has_the_rights_it_needs_and_no_more(cluster: RealCluster) -> None:
    operators, agents = cluster.system_pods("operator"), cluster.system_pods("agent")
    assert sorted(pod["spec"]["nodeName"] for pod in operators) == cluster.nodes, "one on each"
    assert sorted(pod["spec"]["nodeName"] for pod in agents) == cluster.nodes
    net_admin, net_raw = 1 << 12, 1 << 13
    expected = [
        (operators[0], "operator", "65532", f"{0:016x}"),
        (agents[0], "agent", "0", f"{net_admin | net_raw:016x}"),
        (agents[0], "nftlb", "0", f"{net_admin:016x}"),
    ]
    for pod, container, uid, capabilities in expected:
        name = pod["metadata"]["name"]
        status = cluster.in_container(SYSTEM, name, container, "cat", "/proc/1/status")
        facts = dict(line.split(":", 1) for line in status.splitlines())
        assert (facts["Uid"].split()[0], facts["CapEff"].strip()) == (uid, capabilities), container
        assert (facts["NoNewPrivs"].strip(), facts["Seccomp"].strip()) == ("1", "2"), container
        refused = cluster.try_kubectl("exec", "-n", SYSTEM, name, "-c", container, "--", "touch", "/etc/x")
        assert "Read-only file system" in refused.stderr, container


def test_helm_test_sends_packets_and_leaves_its_log_alone(cluster: RealCluster) -> None:
    said = cluster.helm("test", "kube-nftlb", "--namespace", SYSTEM, "--logs")
    assert "Succeeded" in said
    pod = r"kube-nftlb-test-\w+-\w+ \(\d+\)"
    for protocol in ("TCP", "UDP"):
        assert re.search(rf"{protocol} [\d.]+:80 answered 20 of 20 connections, from {pod} and {pod}", said), said
    assert cluster.get("service", "kube-nftlb-test", SYSTEM) is None
    assert cluster.get("deployment", "kube-nftlb-test", SYSTEM) is None
    assert cluster.get("pod", "kube-nftlb-test", SYSTEM)["status"]["phase"] == "Succeeded"


def test_the_walk_through(cluster: RealCluster, namespace: str) -> None:
    cluster.apply(my_service(namespace, ANNOTATIONS))
    cluster.farm_has("my-service--http", namespace, ready=0)
    vip = cluster.vip("my-service", namespace)
    assert cluster.count(cluster.nodes[0], 1, vip, 8080)["failures"]["refused"] == 1

    cluster.serve("lower-prio", 2, namespace)
    pods = cluster.pods("lower-prio", namespace)
    assert len(pods) == 2
    for where in ("client", *cluster.nodes):
        cluster.reaches(where, pods, vip, 8080)

    def reaches_all(pod: str) -> bool:
        return cluster.ask_from_pod(pod, namespace, vip, 8080) == set(pods)

    for pod in pods:
        until(partial(reaches_all, pod), f"{pod} reaches {pods}")

    cluster.farm_has("my-service--http", namespace, ready=2)
    shown = cluster.kubectl("get", "nftlbfarms", "-n", namespace)
    assert [row.split()[:7] for row in shown.splitlines()[1:]] == [
        ["my-service--http", vip, "8080", "TCP", "snat", "symhash", "2/2"]
    ]

    cluster.scale("lower-prio", 4, namespace)
    cluster.kubectl("rollout", "status", "deployment/lower-prio", "-n", namespace, "--timeout=120s")
    pods = cluster.pods("lower-prio", namespace)
    assert len(pods) == 4
    until(lambda: cluster.answers("client", vip, 8080, number=60) == set(pods), f"the client reaches {pods}")

    with cluster.hammer("client", vip, 8080) as hammered:
        cluster.scale("lower-prio", 1, namespace)
        until(lambda: len(cluster.pods("lower-prio", namespace)) == 1, "one pod is left")
        cluster.farm_has("my-service--http", namespace, ready=1)
    assert hammered["failed"] == {}, hammered

    cluster.delete("service", "my-service", namespace)
    until(lambda: cluster.farm("my-service--http", namespace) is None, "the farm is gone")
    until(lambda: cluster.count("client", 1, vip, 8080)["failures"].get("refused") == 1, f"{vip} is refused")


def test_a_session_keeps_its_container(cluster: RealCluster, namespace: str) -> None:
    cluster.serve("lower-prio", 3, namespace)
    cluster.apply(my_service(namespace, sessionAffinity="ClientIP"))
    cluster.farm_has("my-service--http", namespace, ready=3)
    vip = cluster.vip("my-service", namespace)
    assert len(cluster.answers("client", vip, 8080, number=30)) == 1
    assert len(cluster.answers(cluster.nodes[1], vip, 8080, number=30)) == 1


def test_a_node_port_is_answered_by_every_node(cluster: RealCluster, namespace: str) -> None:
    cluster.serve("lower-prio", 2, namespace)
    cluster.apply(my_service(namespace, type="NodePort"))
    cluster.farm_has("my-service--http", namespace, ready=2)
    pods = cluster.pods("lower-prio", namespace)
    port = cluster.get("service", "my-service", namespace)["spec"]["ports"][0]["nodePort"]
    for node in cluster.lab.nodes:
        for address in node.addresses[:1]:
            cluster.reaches("client", pods, str(address.ip), port)
