"""The lines in the programs' logs."""

import json
from functools import partial
from typing import Any

from kube_nftlb import names
from tests.builders.manifests import farm, policy, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique


def lines(cluster: Cluster, component: str, node: str | None = None) -> list[dict[str, Any]]:
    """The lines that are JSON; the lab adds some of its own, which begin with dashes."""
    written = cluster.lab.log_path(component, node).read_text(errors="replace").splitlines()
    return [json.loads(line) for line in written if not line.startswith("--")]


def about(cluster: Cluster, namespace: str, name: str, component: str, node: str | None = None) -> list[str]:
    """The events that a log tells of a farm, in their order."""
    found = lines(cluster, component, node)
    return [line["event"] for line in found if (line.get("namespace"), line.get("farm")) == (namespace, name)]


def test_a_service_is_followed_by_its_farms_name(cluster: Cluster, namespace: str) -> None:
    # No other test has a Service of this name, so that the lines are of this one.
    cluster.apply(service("followed", namespace))
    cluster.serve("followed", 2, namespace)
    cluster.farm_has("followed--http", namespace, 2)
    # Of a Service that is deleted the garbage collector may be faster than the operator.
    cluster.api.patch("service", "followed", namespace, {"metadata": {"labels": {names.LABEL_PROXY_NAME: "other"}}})
    eventually(lambda: "farm deleted" in about(cluster, namespace, "followed--http", "operator"), "the farm is gone")
    told = about(cluster, namespace, "followed--http", "operator")
    assert set(told) == {"farm applied", "farm deleted"}
    assert told[-1] == "farm deleted"

    def removed(node: str) -> bool:
        return about(cluster, namespace, "followed--http", "agent", node)[-1:] == ["farm removed"]

    for node in cluster.nodes:
        eventually(partial(removed, node), f"{node} logs that the farm is gone")
        assert set(about(cluster, namespace, "followed--http", "agent", node)) == {"farm programmed", "farm removed"}
    programmed = [
        line
        for line in lines(cluster, "agent", cluster.nodes[0])
        if (line["event"], line.get("farm")) == ("farm programmed", "followed--http")
    ]
    assert programmed[-1]["backends"] == 2
    assert (programmed[-1]["service"], programmed[-1]["node"]) == ("followed", cluster.nodes[0])
    assert programmed[-1]["level"] == "info"


def test_a_farm_that_fails_is_told_once_and_that_it_works_again(cluster: Cluster, own_namespace: str) -> None:
    node, namespace = cluster.nodes[0], own_namespace
    cluster.apply(farm("guarded", namespace, addresses=[{"ip": unique(), "ports": "80"}], policies=["later"]))
    eventually(lambda: "farm failed" in about(cluster, namespace, "guarded", "agent", node), "the failure is told")
    cluster.apply(service("other", namespace))
    cluster.wait("farm", "other--http", "Programmed", namespace)
    cluster.apply(policy("later", namespace, "allow", ["192.0.2.0/24"]))
    cluster.wait("farm", "guarded", "Programmed", namespace)
    told = about(cluster, namespace, "guarded", "agent", node)
    assert told.count("farm failed") == 1
    assert told[-1] == "farm programmed"
    taken = [line for line in lines(cluster, "agent", node) if line["event"] == "policy taken"]
    assert (namespace, "later") in {(line["namespace"], line["policy"]) for line in taken}
