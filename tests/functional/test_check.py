"""``kube-nftlb check``, which ``helm test`` runs too."""

from collections.abc import Iterator

import pytest

from tests.functional.cluster import Cluster

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def without_agent(cluster: Cluster) -> Iterator[str]:
    """A Node that no agent has ever run on."""
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}})
    try:
        yield "bare"
    finally:
        cluster.kubectl("delete", "node", "bare")


def test_it_is_content_where_every_node_serves(cluster: Cluster) -> None:
    done = cluster.lab.exec(cluster.nodes[0], "kube-nftlb", "check", "--wait", "60", timeout_s=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 nodes have a ready agent and serve default/kubernetes\n"


def test_it_names_a_node_without_an_agent(cluster: Cluster, without_agent: str) -> None:
    done = cluster.lab.exec(cluster.nodes[0], "kube-nftlb", "check", timeout_s=60)
    assert done.returncode == 1
    told = f"node {without_agent} has no status from an agent: does it have a pod of the DaemonSet?\n"
    assert done.stderr == told
