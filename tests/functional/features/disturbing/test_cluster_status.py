"""``kubectl nftlb status`` and ``drain NODE``, which are about all that a cluster has."""

from typing import Any

import pytest

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.farms import unique


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(cluster)


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """A Service with two ready pods, one on each node."""
    cluster.expose("web", 2, namespace)
    return namespace


def test_one_look_says_that_all_is_well(cluster: Cluster, kubectl: Kubectl, web: str) -> None:
    eventually(lambda: kubectl.run("status").returncode == 0, "nothing is wrong")
    done = kubectl.run("status")
    assert "PROBLEMS   none" in done.stdout
    assert all(node in done.stdout for node in cluster.nodes)
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    assert kubectl.json("status")["healthy"] is True
    assert kubectl.run("why", "web", "-n", web).stdout == (
        f"farm {web}/web--http is healthy: programmed on 2/2 nodes, 2/2 backends ready\n"
    )


def test_it_names_what_is_wrong_and_exits_with_1(kubectl: Kubectl, cluster: Cluster, namespace: str) -> None:
    ip = unique()
    spec: dict[str, Any] = {"addresses": [{"ip": ip, "ports": "80"}], "backends": []}
    cluster.apply(farm("a-first", namespace, **spec))
    cluster.wait("farm", "a-first", "Accepted", namespace)
    # Ages are in whole seconds; of one second the name decides.
    cluster.apply(farm("second", namespace, **spec))
    eventually(lambda: cluster.reason("second", namespace).startswith("AddressConflict"), "the second farm loses")
    done = kubectl.run("status")
    assert done.returncode == 1
    assert f"farm {namespace}/second for" in done.stdout
    assert [each["reason"] for each in kubectl.json("status")["problems"]] == ["AddressConflict"]
    why = kubectl.run("why", "-n", namespace)
    assert why.returncode == 1
    (line,) = why.stdout.splitlines()
    assert f"{namespace}/a-first has {ip}:80/TCP" in line
    assert line.endswith("→ give one of the two another address or port, or delete one")
    assert kubectl.run("why", f"{namespace}/a-first").returncode == 0


def test_a_node_drains_with_all_that_is_on_it(cluster: Cluster, kubectl: Kubectl, web: str, client: str) -> None:
    vip, node = cluster.vip("web", web), cluster.nodes[1]
    here = [pod for pod in cluster.pods("web", web) if cluster.get("pod", pod, web)["spec"]["nodeName"] == node]
    elsewhere = sorted(set(cluster.pods("web", web)) - set(here))
    assert here
    assert elsewhere
    done = kubectl.run("drain", node, "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert f"kubectl cordon {node}" in done.stderr
    assert cluster.answers(client, vip) == set(elsewhere)
    assert kubectl.run("undrain", f"node/{node}").returncode == 0
    cluster.reaches(client, cluster.pods("web", web), vip)
