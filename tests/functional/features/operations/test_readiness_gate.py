"""The readiness gate kube-nftlb.io/programmed: a pod is ready once the nodes that count send it connections."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import names
from lab import versions
from tests import engine
from tests.builders.manifests import client_pod, deployment, service
from tests.functional import commands
from tests.functional.cluster import Cluster, eventually, running

POLICY = Path(__file__).parents[4] / "charts/kube-nftlb/admission-mutating/readiness-gate.yaml"

SILENT_S = 90
SETTINGS = {
    **engine.OPERATOR,
    "KUBE_NFTLB_READINESS_GATE": "on",
    "KUBE_NFTLB_NOT_PROGRAMMED_SECONDS": "5",
    "KUBE_NFTLB_AGENT_SILENT_SECONDS": str(SILENT_S),
}


def gated(name: str, replicas: int, namespace: str, grace_s: int = 0) -> dict[str, Any]:
    """A Deployment whose pods have the gate and its label."""
    body = deployment(name, replicas, namespace, grace_s)
    template = body["spec"]["template"]
    template["metadata"]["labels"] = {**template["metadata"]["labels"], names.LABEL_READINESS_GATE: "enabled"}
    template["spec"]["readinessGates"] = [{"conditionType": names.READINESS_GATE}]
    return body


def is_ready(cluster: Cluster, pod: str, namespace: str, condition: str = "Ready") -> bool:
    return cluster.condition("pod", pod, condition, namespace).get("status") == "True"


def waits(cluster: Cluster, pod: str, namespace: str) -> bool:
    """True if a pod lacks nothing but the gate."""
    return is_ready(cluster, pod, namespace, "ContainersReady") and not is_ready(cluster, pod, namespace)


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """The VIP of a Service with one gated pod, which all nodes know to be ready: its farm lists it no longer."""
    cluster.apply(service("web", namespace), gated("web", 1, namespace))
    cluster.rolled_out("web", 1, namespace)
    cluster.farm_has("web--http", namespace, 1)
    eventually(lambda: lists_nothing(cluster, namespace), "the farm lists it no longer")
    return cluster.vip("web", namespace)


def added_pod(cluster: Cluster, namespace: str) -> str:
    """Scale the Deployment ``web`` up and return its new pod, once its containers are ready."""
    before = set(cluster.pods("web", namespace))
    cluster.scale("web", len(before) + 1, namespace)
    eventually(lambda: len(cluster.pods("web", namespace)) > len(before), "the pod exists")
    (pod,) = set(cluster.pods("web", namespace)) - before
    eventually(lambda: is_ready(cluster, pod, namespace, "ContainersReady"), "the pod's containers are ready")
    return pod


def lists_nothing(cluster: Cluster, namespace: str) -> bool:
    return not cluster.farm("web--http", namespace)["spec"]["backendsFrom"][0].get("gatedIPs")


def test_a_pod_is_ready_only_once_each_node_sends_it_connections(
    cluster: Cluster, namespace: str, client: str, far: str, web: str
) -> None:
    first, second = cluster.nodes
    clients = {first: client, second: far}
    with cluster.frozen("agent", second):
        pod = added_pod(cluster, namespace)
        eventually(lambda: pod in cluster.answers(clients[first], web), "the first node sends it connections")
        eventually(lambda: bool(cluster.events("Pod", pod, namespace)), "an Event tells what it waits for")
        (event,) = cluster.events("Pod", pod, namespace)
        assert event["reason"] == "ReadinessGatePending"
        assert "waiting for " + second in event["message"]
        assert waits(cluster, pod, namespace)
        assert pod not in cluster.answers(clients[second], web)
    eventually(lambda: is_ready(cluster, pod, namespace), "it is ready once the agent goes on")
    for where in clients.values():
        assert pod in cluster.answers(where, web), where
    eventually(lambda: lists_nothing(cluster, namespace), "the farm follows the slices again")
    for where in clients.values():
        assert pod in cluster.answers(where, web), where


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    """A lab from which the last test takes the second node."""
    with running("gate-gone", nodes=2, settings={"operator": SETTINGS}) as cluster:
        yield cluster


@pytest.fixture
def waiting(two_nodes: Cluster) -> Iterator[tuple[str, str]]:
    """A namespace and a pod in it, the second of ``web``, that waits for the second node, whose agent is frozen."""
    cluster = two_nodes
    with cluster.namespace() as namespace:
        cluster.apply(service("web", namespace), gated("web", 1, namespace))
        cluster.rolled_out("web", 1, namespace)
        cluster.farm_has("web--http", namespace, 1)
        with cluster.frozen("agent", cluster.nodes[1]):
            pod = added_pod(cluster, namespace)
            eventually(lambda: bool(cluster.events("Pod", pod, namespace)), "an Event tells what it waits for")
            assert waits(cluster, pod, namespace)
            yield namespace, pod


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_node_whose_agent_is_silent_does_not_hold_pods_back(two_nodes: Cluster, waiting: tuple[str, str]) -> None:
    cluster, (namespace, pod) = two_nodes, waiting
    first, second = cluster.nodes
    (old,) = set(cluster.pods("web", namespace)) - {pod}
    eventually(lambda: is_ready(cluster, pod, namespace), "the other node counts alone", SILENT_S + 60)
    ready = cluster.condition("nftlbnode", second, "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "AgentSilent")
    (event,) = (e for e in cluster.events("NftlbNode", second, "default") if e["reason"] == "AgentSilent")
    assert event["message"] == ready["message"]
    status = commands.run(cluster, "status", where=first)
    assert status.returncode == 1
    assert re.search(rf"node {second} for \d+s: AgentSilent: its agent has not reported since", status.stdout)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    cluster.reaches(first, [old, pod], vip)
    assert cluster.answers(second, vip) == {old}, "what it programmed goes on"
    os.kill(cluster.lab.pid("agent", second), signal.SIGCONT)
    eventually(lambda: cluster.condition("nftlbnode", second, "Ready").get("status") == "True", "it reports again")
    eventually(lambda: cluster.answers(second, vip) == {old, pod}, "it serves the new pod, too")


@pytest.mark.long
def test_a_node_that_is_deleted_does_not_hold_pods_back(two_nodes: Cluster, waiting: tuple[str, str]) -> None:
    # The last in this lab: the token of an agent ends with its Node, so the node cannot come back.
    namespace, pod = waiting
    two_nodes.delete("node", two_nodes.nodes[1])
    eventually(lambda: is_ready(two_nodes, pod, namespace), "the other node counts alone")


def test_a_pod_without_a_service_is_ready_at_once(cluster: Cluster, namespace: str) -> None:
    cluster.apply(gated("alone", 1, namespace))
    cluster.rolled_out("alone", 1, namespace)
    (pod,) = cluster.pods("alone", namespace)
    gate = cluster.condition("pod", pod, names.READINESS_GATE, namespace)
    assert (gate["reason"], gate["message"]) == ("NotServed", "no Service with farms selects the pod")


@pytest.mark.usefixtures("web")
def test_a_pod_that_is_not_ready_itself_gets_no_connection(cluster: Cluster, namespace: str) -> None:
    _, second = cluster.nodes
    with cluster.frozen("agent", second):
        pod = added_pod(cluster, namespace)
        eventually(lambda: not lists_nothing(cluster, namespace), "the farm lists it")
        cluster.lab.pod(False, f"{namespace}/{pod}")
        eventually(lambda: lists_nothing(cluster, namespace), "the farm lists it no longer")
    cluster.farm_has("web--http", namespace, 1)
    cluster.lab.pod(True, f"{namespace}/{pod}")
    eventually(lambda: is_ready(cluster, pod, namespace), "it is ready")


@pytest.mark.parametrize("late", [pytest.param(False, id="in time"), pytest.param(True, id="late")])
def test_no_connection_fails_in_a_rolling_update_with_a_node_that_is(
    cluster: Cluster, namespace: str, client: str, *, late: bool
) -> None:
    body = gated("web", 3, namespace, grace_s=2)
    body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster.apply(service("web", namespace), body)
    cluster.rolled_out("web", 3, namespace)
    cluster.farm_has("web--http", namespace, 3)
    before = set(cluster.pods("web", namespace))
    with cluster.hammer(client, cluster.vip("web", namespace)) as hammered:
        body["spec"]["template"]["metadata"]["annotations"] = {"rolled": "out"}
        if late:
            with cluster.frozen("agent", cluster.nodes[0]):
                cluster.apply(body)
                eventually(lambda: bool(set(cluster.pods("web", namespace)) - before), "a new pod exists")
                (pod,) = set(cluster.pods("web", namespace)) - before
                eventually(lambda: bool(cluster.events("Pod", pod, namespace)), "an Event tells what it waits for")
                assert set(cluster.pods("web", namespace)) == before | {pod}, "the update waits"
        cluster.apply(body)
        cluster.rolled_out("web", 3, namespace)
        cluster.farm_has("web--http", namespace, 3)
    after = set(cluster.pods("web", namespace))
    assert not before & after
    assert after <= set(hammered["answers"])
    assert hammered["failures"] == []


@pytest.mark.skipif(versions.of(None) < versions.of("1.36"), reason="MutatingAdmissionPolicy is on since 1.36")
def test_the_admission_policy_gives_pods_of_a_namespace_the_gate(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-f", str(POLICY))
    cluster.kubectl("label", "namespace", namespace, f"{names.LABEL_READINESS_GATE}=enabled")
    gate = [{"conditionType": names.READINESS_GATE}]

    def gets_the_gate() -> bool:
        body = {**client_pod("tried", namespace, cluster.nodes[0])}
        made = cluster.try_kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=str(body))
        return names.READINESS_GATE in made.stdout

    eventually(gets_the_gate, "the policy is in force")
    other = deployment("other", 1, namespace)
    other["spec"]["template"]["metadata"]["labels"][names.LABEL_READINESS_GATE] = "disabled"
    mixed = deployment("mixed", 1, namespace)
    mixed["spec"]["template"]["spec"]["readinessGates"] = [{"conditionType": "example.com/other"}]
    cluster.apply(service("web", namespace), deployment("web", 1, namespace), other, mixed)
    cluster.rolled_out("web", 1, namespace)
    cluster.rolled_out("other", 1, namespace)
    (pod,), (bare,) = cluster.pods("web", namespace), cluster.pods("other", namespace)
    assert cluster.get("pod", pod, namespace)["spec"]["readinessGates"] == gate
    assert is_ready(cluster, pod, namespace, names.READINESS_GATE)
    assert "readinessGates" not in cluster.get("pod", bare, namespace)["spec"]
    (both,) = cluster.pods("mixed", namespace)
    assert cluster.get("pod", both, namespace)["spec"]["readinessGates"] == [
        {"conditionType": "example.com/other"},
        *gate,
    ]
