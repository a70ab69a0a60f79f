"""The nodes that should have an agent, by the DaemonSet's nodeSelector and node affinity."""

from typing import Any

import pytest

from kube_nftlb.commands.cluster.findings import agent_nodes
from tests.builders import raw_node

NODES = [
    raw_node("plain", labels={"kubernetes.io/os": "linux", "cores": "4"}),
    raw_node("virtual", labels={"kubernetes.io/os": "linux", "type": "virtual-kubelet", "cores": "16"}),
    raw_node("windows", labels={"kubernetes.io/os": "windows"}),
    raw_node("unlabelled"),
]


def daemon_set(*terms: dict[str, Any], **spec: Any) -> dict[str, Any]:
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        spec["affinity"] = {"nodeAffinity": required}
    return {"spec": {"template": {"spec": spec}}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_without_a_daemon_set_all_linux_nodes_should_have_one() -> None:
    assert agent_nodes(NODES, None) == agent_nodes(NODES, []) == {"plain", "virtual", "unlabelled"}


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (daemon_set(), {"plain", "virtual", "unlabelled"}),
        (daemon_set(nodeSelector={"kubernetes.io/os": "linux"}), {"plain", "virtual"}),
        (daemon_set(label("type", "NotIn", "virtual-kubelet")), {"plain", "unlabelled"}),
        (daemon_set(label("type", "DoesNotExist")), {"plain", "unlabelled"}),
        (daemon_set(label("type", "Exists")), {"virtual"}),
        (daemon_set(label("type", "In", "virtual-kubelet"), label("cores", "In", "4")), {"plain", "virtual"}),
        (daemon_set(label("cores", "Gt", "4")), {"virtual"}),
        (daemon_set(label("cores", "Lt", "5")), {"plain"}),
        (daemon_set(label("type", "Gt", "4")), set()),
        (daemon_set({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["plain"]}]}), {"plain"}),
        (daemon_set({}), set()),
        (daemon_set(label("type", "Exists"), nodeSelector={"cores": "4"}), set()),
    ],
)
def test_it_selects_as_kubernetes_does(made: dict[str, Any], names: set[str]) -> None:
    assert agent_nodes(NODES, [made]) == names
