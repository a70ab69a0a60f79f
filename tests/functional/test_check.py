"""``kube-nftlb check``, which ``helm test`` runs too."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.builders.manifests import client_pod, service
from tests.functional.cluster import Cluster, eventually

pytestmark = [pytest.mark.timeout(120), pytest.mark.once("what the command asks")]


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


@pytest.mark.timeout(300)  # five commands that each start Python, one after another
def test_it_connects_to_a_service_and_tells_what_fails(cluster: Cluster) -> None:
    with cluster.namespace() as name:
        pod = client_pod("server", name, cluster.nodes[1])
        pod["metadata"]["labels"] = {"app": "echo"}
        ports = [{"name": each.lower(), "protocol": each, "port": 80, "targetPort": 8081} for each in ("TCP", "UDP")]
        cluster.apply(pod, service("echo", name, ports=ports))
        for each in ("tcp", "udp"):
            cluster.farm_has(f"echo--{each}", name, 1)
        check = ("kube-nftlb", "check", "--wait", "30", "--service", f"{name}/echo")

        with subprocess.Popen(cluster.lab.command(f"{name}/server", "kube-nftlb", "echo", "--port", "8081")) as server:
            try:
                done = cluster.lab.exec(cluster.nodes[0], *check, timeout_s=150)
                assert done.returncode == 0, done.stderr
                said = done.stdout.splitlines()
                for protocol, line in zip(("TCP", "UDP"), said[1:], strict=True):
                    assert re.fullmatch(rf"{protocol} [\d.]+:80 answered 20 of 20 connections, from \S+ \(20\)", line)

                done = cluster.lab.exec(cluster.nodes[0], *check, "--wait", "0", "--pods", "2", timeout_s=60)
                assert done.returncode == 1
                assert "(20) alone, not by 2 pods" in done.stderr
            finally:
                server.terminate()

        def fails() -> bool:
            done = cluster.lab.exec(cluster.nodes[0], *check, "--wait", "0", timeout_s=60)
            return done.returncode == 1 and "failed 20 of 20 connections from this pod: 20 times" in done.stderr

        eventually(fails, "nobody answers any more", 30)
