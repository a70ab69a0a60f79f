"""``kube-nftlb check``, which ``helm test`` runs too."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.builders.manifests import service
from tests.functional import commands
from tests.functional.cluster import Cluster, eventually


@pytest.fixture
def without_agent(cluster: Cluster) -> Iterator[str]:
    """A Node that no agent has ever run on."""
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}})
    try:
        yield "bare"
    finally:
        cluster.delete("node", "bare")


def test_it_is_content_where_every_node_serves(cluster: Cluster) -> None:
    done = commands.run(cluster, "check", "--wait", "60", where=cluster.nodes[0])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 nodes have a ready agent and serve default/kubernetes\n"


def test_it_names_a_node_without_an_agent(cluster: Cluster, without_agent: str) -> None:
    done = commands.run(cluster, "check", where=cluster.nodes[0])
    assert done.returncode == 1
    told = f"node {without_agent} has no status from an agent: does it have a pod of the DaemonSet?\n"
    assert done.stderr == told


def test_it_connects_to_a_service_and_tells_what_fails(cluster: Cluster, namespace: str) -> None:
    ports = [{"name": each.lower(), "protocol": each, "port": 80, "targetPort": 8081} for each in ("TCP", "UDP")]
    cluster.apply(service("echo", namespace, ports=ports))
    cluster.serve("echo", 1, namespace)
    for each in ("tcp", "udp"):
        cluster.farm_has(f"echo--{each}", namespace, 1)
    (pod,) = cluster.pods("echo", namespace)

    def check(*options: str) -> subprocess.CompletedProcess[str]:
        return commands.run(cluster, "check", "--service", f"{namespace}/echo", *options, where=cluster.nodes[0])

    with subprocess.Popen(cluster.lab.command(f"{namespace}/{pod}", "kube-nftlb", "echo", "--port", "8081")) as server:
        try:
            done = check("--wait", "30")
            assert done.returncode == 0, done.stderr
            said = done.stdout.splitlines()
            for protocol, line in zip(("TCP", "UDP"), said[1:], strict=True):
                assert re.fullmatch(rf"{protocol} [\d.]+:80 answered 20 of 20 connections, from \S+ \(20\)", line)
            done = check("--pods", "2")
            assert done.returncode == 1
            assert "(20) alone, not by 2 pods" in done.stderr
        finally:
            server.terminate()

    def fails() -> bool:
        done = check()
        return done.returncode == 1 and "failed 20 of 20 connections from this pod: 20 times" in done.stderr

    eventually(fails, "nobody answers any more", 30)
