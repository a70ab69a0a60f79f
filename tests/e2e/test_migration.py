"""Real nodes move from kube-proxy to the chart and back under load, by the commands of docs/install.md."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import programs, versions
from lab.places import CLIENT
from tests.docs import pages
from tests.e2e import kube_proxy
from tests.e2e.real import CHECKOUT, RealCluster, until
from tests.e2e.test_walkthrough import my_service
from tests.functional import commands

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

PORT = 8080
LABEL = "kube-nftlb.io/service-proxy"
PAGE = pages.blocks((CHECKOUT / "docs/install.md").read_text())


def block(words: str) -> str:
    """The text of the only block of the page with these words."""
    [found] = [each.text for each in PAGE if words in each.text]
    return found


def follow(cluster: RealCluster, script: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        env={
            **os.environ,
            "KUBECONFIG": str(cluster.lab.kubeconfig),
            "PATH": f"{cluster.lab.bin}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}: {done.stdout}\n{done.stderr}\n{cluster.trouble()}"
    return done.stdout


@pytest.fixture
def with_kube_proxy(bare_cluster: RealCluster) -> Iterator[RealCluster]:
    """Nodes whose only service proxy is kube-proxy."""
    cluster = bare_cluster
    if cluster.is_installed():
        cluster.uninstall()
        # Those of agents that are gone are Ready until they are silent.
        cluster.kubectl("delete", "nftlbnodes", "--all")
    version = versions.of(None)
    [program] = programs.kubernetes([programs.KUBE_PROXY], version, lambda _: None).values()
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(kube_proxy.manifests(program, cluster.image)))
    try:
        rolled_out(cluster)
        yield cluster
    finally:
        if cluster.is_installed():
            cluster.uninstall()
        cluster.kubectl("delete", "daemonset", kube_proxy.NAME, "-n", kube_proxy.NAMESPACE, "--wait=true")
        for node in cluster.nodes:
            for family in ("ip", "ip6"):
                cluster.lab.exec(node, "nft", "delete", "table", family, "kube-proxy")


def rolled_out(cluster: RealCluster) -> None:
    cluster.kubectl("rollout", "status", f"daemonset/{kube_proxy.NAME}", "-n", kube_proxy.NAMESPACE, "--timeout=55s")


@contextlib.contextmanager
def hammered(cluster: RealCluster, vip: str) -> Iterator[dict[str, dict[str, Any]]]:
    """New connections from outside and from each node during the block; the results are filled in after it."""
    with contextlib.ExitStack() as stack:
        results = {}
        for where in (CLIENT, *cluster.nodes):
            results[where] = stack.enter_context(cluster.hammer(where, vip, PORT))
        yield results


def is_proxy(cluster: RealCluster, node: str, proxy: str) -> bool:
    """Return True if the node has tables of this service proxy, and none of the other."""
    tables = cluster.tables(node)
    return {name for name in ("kube-proxy", "nftlb") if any(name in table for table in tables)} == {proxy}


def test_nodes_move_from_kube_proxy_and_back_without_a_failed_connection(
    with_kube_proxy: RealCluster, tmp_path: Path
) -> None:
    cluster = with_kube_proxy
    (tmp_path / "moving.yaml").write_text(block("# moving.yaml"))
    options = ("--set", "profile=kube-proxy", "-f", str(tmp_path / "moving.yaml"))
    with cluster.namespace() as namespace:
        cluster.serve("lower-prio", 2, namespace)
        cluster.apply(my_service(namespace))
        vip = cluster.vip("my-service", namespace)
        for where in (CLIENT, *cluster.nodes):
            cluster.reaches(where, cluster.pods("lower-prio", namespace), vip, PORT)
        asked = commands.run(cluster, "preflight", "--profile", "kube-proxy")
        print(asked.stdout)
        assert asked.returncode == 0, asked.stdout + asked.stderr
        with hammered(cluster, vip) as results:
            follow(cluster, block("patch daemonset kube-proxy"))
            cluster.install(*options, nodes=[])
            for node in cluster.nodes:
                follow(cluster, block(f"{LABEL}=kube-nftlb").replace("worker-1", node))
                until(partial(is_proxy, cluster, node, "nftlb"), f"{node} has our tables alone")
            assert cluster.ready_nodes() == cluster.nodes
            first, *_ = cluster.nodes
            follow(cluster, block(f"node worker-1 {LABEL}-").replace("worker-1", first))
            until(partial(is_proxy, cluster, first, "kube-proxy"), f"{first} has kube-proxy's tables alone")
            follow(cluster, block(f"nodes --all {LABEL}-"))
            for node in cluster.nodes:
                until(partial(is_proxy, cluster, node, "kube-proxy"), f"{node} has kube-proxy's tables alone")
    # Not the gaps: a masqueraded port that comes back while its pod remembers it costs a second with any proxy.
    print({where: result["attempts"] for where, result in results.items()})
    assert {where: result["failed"] for where, result in results.items() if result["failed"]} == {}
    assert min(result["attempts"] for result in results.values()) > 1000
    for node in cluster.nodes:
        assert "KubeProxyRulesRemoved" in {event["reason"] for event in cluster.events("Node", node, "default")}
