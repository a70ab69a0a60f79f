"""kube-proxy was deleted before kube-nftlb came: the rules that it left serve until farms do, however late these are.

The operator is held back for 12 s here, twice as long as the agent waits for a kube-proxy to come back; with
KUBE_NFTLB_TEST_HELD_BACK_S for longer.
"""

import json
import os
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests import engine
from tests.builders.manifests import service
from tests.bystanders.stage import PORT, Stage
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.features.test_migration import failures, lines, of_kube_proxy, serves

pytestmark = pytest.mark.timeout(600)

NAMESPACE = "left"
_PORT = {"name": "tcp", "port": 80, "targetPort": PORT}
HELD_BACK_S = float(os.environ.get("KUBE_NFTLB_TEST_HELD_BACK_S", "12"))


@pytest.fixture(scope="module", params=["nftables", "iptables"])
def cluster_without_operator(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes with kube-proxy, and agents that wait to be started; the operator has never written a farm."""
    settings = {"operator": {**engine.OPERATOR, "KUBE_NFTLB_DEFAULT_MODE": "dnat"}}
    proxy = f"kube-proxy-{request.param}+kube-nftlb"
    with running(f"left-{request.param}", nodes=2, proxy=proxy, settings=settings) as cluster:
        cluster.lab.stop("operator")
        cluster.kubectl("delete", "farms", "--all", "--all-namespaces")
        yield cluster


def gone(cluster: Cluster, node: str) -> tuple[str, str]:
    """The reason and the message of the condition KubeProxyGone."""
    found = cluster.condition("nftlbnode", node, "KubeProxyGone")
    return found.get("reason", ""), found.get("message", "")


def waits(cluster: Cluster, node: str) -> bool:
    reason, message = gone(cluster, node)
    return reason == "KubeProxyRulesPending" and "there is none for" in message


def taken_over(cluster: Cluster, node: str) -> bool:
    return gone(cluster, node)[0] == "NoKubeProxy"


def test_rules_that_serve_stay_until_farms_do(cluster_without_operator: Cluster) -> None:
    cluster, lab = cluster_without_operator, cluster_without_operator.lab
    nodes = [node.name for node in lab.nodes]
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    eventually(lambda: cluster.get("serviceaccount", "default", NAMESPACE) is not None, "it has a service account")
    stage = Stage(cluster, NAMESPACE, 10, programmed=False)
    # One that is gone before there are farms must not keep the rules for ever.
    cluster.apply(service("gone", NAMESPACE, selector={"app": "bystander"}, ports=[_PORT]))
    services = cluster.get("service", namespace=NAMESPACE)["items"]
    pods = cluster.get("pod", namespace=NAMESPACE, labelSelector="app=bystander")["items"]
    ips = [each["ip"] for pod in pods for each in pod["status"]["podIPs"]]
    for node in nodes:
        eventually(partial(serves, cluster, node, services, ips), f"kube-proxy on {node} serves", 60)
    began = time.monotonic()

    def mark(what: str) -> None:
        print(f"{what} after {time.monotonic() - began:.1f} s")

    with stage.hammered() as results:
        mark("clients have started")
        for node in nodes:
            lab.stop("kube-proxy", node)
        cluster.delete("service", "gone", NAMESPACE)
        for node in nodes:
            lab.start("nftlb", node)
            lab.start("agent", node)
        for node in nodes:
            eventually(partial(waits, cluster, node), "it waits for farms")
        mark("agents wait for farms")
        time.sleep(HELD_BACK_S)
        for node in nodes:
            assert waits(cluster, node)
            assert serves(cluster, node, services, ips)
        assert cluster.get("farm", namespace=NAMESPACE)["items"] == []
        mark("the operator starts")
        lab.start("operator")
        for node in nodes:
            eventually(partial(taken_over, cluster, node), "it is taken over", 90)
        mark("taken over")
        # Some connections are made by the new rules alone.
        time.sleep(5)
    for node in nodes:
        assert [line for line in lines(cluster, node) if of_kube_proxy(line)] == []
    attempts = sum(record["attempts"] for result in results.values() for record in result["streams"].values())
    print(attempts, "attempts")
    assert failures(results) == []
    assert attempts > 100
    told = {event["reason"] for event in cluster.events("Node", nodes[0], "default")}
    assert "KubeProxyRulesRemoved" in told, json.dumps(sorted(told))
