"""The readiness gate with real kubelets: they make a pod ready once the operator has set its condition."""

from typing import Any

import pytest

from kube_nftlb import names
from tests.e2e.real import RealCluster
from tests.e2e.test_walkthrough import my_service

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


def gated(body: dict[str, Any]) -> dict[str, Any]:
    """Give the pods of a Deployment the gate and its label."""
    template = body["spec"]["template"]
    template["metadata"]["labels"] = {**template["metadata"]["labels"], names.LABEL_READINESS_GATE: "enabled"}
    template["spec"]["readinessGates"] = [{"conditionType": names.READINESS_GATE}]
    return body


def test_no_connection_fails_while_gated_pods_are_replaced(cluster: RealCluster, namespace: str) -> None:
    cluster.install("--set", "readinessGate.enabled=true")
    body = gated(cluster.deployment("lower-prio", 2, namespace))
    cluster.apply(my_service(namespace), body)
    done = ("rollout", "status", "deployment/lower-prio", "-n", namespace, "--timeout=240s")
    cluster.kubectl(*done)
    cluster.farm_has("my-service--http", namespace, ready=2)
    vip = cluster.vip("my-service", namespace)
    before = cluster.pods("lower-prio", namespace)
    cluster.reaches("client", before, vip, 8080)
    with cluster.hammer("client", vip, 8080) as hammered:
        body["spec"]["template"]["metadata"]["annotations"] = {"rolled": "out"}
        cluster.apply(body)
        cluster.kubectl(*done)
        cluster.farm_has("my-service--http", namespace, ready=2)
    after = cluster.pods("lower-prio", namespace)
    assert not set(before) & set(after)
    for pod in after:
        conditions = cluster.get("pod", pod, namespace)["status"]["conditions"]
        found = {each["type"]: (each["status"], each.get("reason")) for each in conditions}
        assert found[names.READINESS_GATE] == ("True", "AllNodes")
        assert found["Ready"][0] == "True"
    assert hammered["failures"] == [], hammered
