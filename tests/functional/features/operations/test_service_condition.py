"""The condition kube-nftlb.io/Programmed of Services, where the administrator allows it."""

from typing import Any

from kube_nftlb import names
from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.operations.conftest import OPERATORS


def condition(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    return cluster.condition("service", name, names.SERVICE_CONDITION, namespace)


def says(cluster: Cluster, name: str, namespace: str, status: str, reason: str) -> str:
    """Wait until the condition of a Service says so, and return its message."""

    def is_so() -> bool:
        found = condition(cluster, name, namespace)
        return (found.get("status"), found.get("reason")) == (status, reason)

    eventually(is_so, f"the condition of {name} is {status} for {reason}", 40)
    return str(condition(cluster, name, namespace)["message"])


def test_a_service_says_that_all_nodes_have_it(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    wait = f"--for=condition={names.SERVICE_CONDITION}"
    cluster.kubectl("wait", "service/web", "-n", namespace, wait, "--timeout=40s")
    message = says(cluster, "web", namespace, "True", "AllNodes")
    assert message == f"all nodes have its farms (1), served by {engine.current()}"


def test_a_service_says_that_another_has_its_address(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("first", namespace, externalIPs=["192.0.2.7"]))
    says(cluster, "first", namespace, "True", "AllNodes")
    cluster.apply(service("second", namespace, externalIPs=["192.0.2.7"]))
    message = says(cluster, "second", namespace, "False", "AddressConflict")
    assert f"{namespace}/first--http has 192.0.2.7:80/TCP" in message
    cluster.delete("service", "first", namespace)
    says(cluster, "second", namespace, "True", "AllNodes")


def test_a_service_names_the_node_that_is_late(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    says(cluster, "web", namespace, "True", "AllNodes")
    _, second = cluster.nodes
    with cluster.frozen("agent", second):
        cluster.apply(service("web", namespace, {"scheduler": "weight"}))
        assert f"not been programmed on {second}" in says(cluster, "web", namespace, "False", "NotProgrammed")
    says(cluster, "web", namespace, "True", "AllNodes")


def test_it_is_removed_from_a_service_that_another_proxy_serves(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    says(cluster, "web", namespace, "True", "AllNodes")
    cluster.kubectl("label", "service", "web", "-n", namespace, f"{names.LABEL_PROXY_NAME}=other")
    eventually(lambda: not condition(cluster, "web", namespace), "the condition is removed")


def test_an_administrator_can_remove_it_once_it_is_switched_off(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    says(cluster, "web", namespace, "True", "AllNodes")
    for operator in OPERATORS:
        cluster.lab.stop(operator)
    try:
        body = f'{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"web","namespace":"{namespace}"}}}}'
        manager = f"--field-manager={names.FIELD_MANAGER_STATUS}"
        cluster.kubectl("apply", "--server-side", manager, "--subresource=status", "-f", "-", stdin=body)
        assert not condition(cluster, "web", namespace)
    finally:
        for operator in OPERATORS:
            cluster.lab.start(operator)
