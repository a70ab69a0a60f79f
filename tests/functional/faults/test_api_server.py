"""The API server cannot be reached: its packets are dropped without a word, or it is gone for a long time."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from lab import addresses
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.faults.load import PODS, Web

AWAY_S = suite.by_form(8, 600)
WITHIN_S = 120
"""A connection that has been silent for 75 s is given up; the pauses before the next are 7.5 s at most."""


@contextlib.contextmanager
def dropped(cluster: Cluster) -> Iterator[None]:
    """Drop what the node sends to the API server, and what it gets from there."""
    table, port = "inet faults-api", addresses.API_PORT
    rules = "\n".join(
        f"chain {hook} {{ type filter hook {hook} priority -300; tcp {side} {port} drop; }}"
        for hook, side in (("output", "dport"), ("input", "sport"))
    )
    done = cluster.lab.exec(cluster.nodes[0], "nft", "-f", "-", input=f"table {table} {{\n{rules}\n}}\n")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        cluster.nft(cluster.nodes[0], f"delete table {table}")


@contextlib.contextmanager
def stopped(cluster: Cluster) -> Iterator[None]:
    cluster.lab.stop("apiserver")
    try:
        yield
    finally:
        cluster.lab.start("apiserver")
        eventually(lambda: cluster.try_kubectl("get", "nodes").returncode == 0, "the API server is back", 60)
        # It would wait for up to half a minute before it looks again.
        cluster.lab.restart("controller-manager")


@pytest.mark.long
@pytest.mark.timeout(AWAY_S + 300)
@pytest.mark.parametrize("away", suite.by_form([dropped], [dropped, stopped]), ids=lambda away: away.__name__)
def test_traffic_goes_on_without_the_api_server_and_changes_arrive_afterwards(
    cluster: Cluster, web: Web, away: Callable[[Cluster], contextlib.AbstractContextManager[None]]
) -> None:
    node, namespace = cluster.nodes[0], web.namespace
    told: dict[str, str | int | float] = {"fault": away.__name__, "seconds": AWAY_S}
    with web.loaded() as load:
        with away(cluster):
            if away is dropped:
                # The node does not hear of it.
                cluster.apply(service("late", namespace, selector={"app": "web"}))
            time.sleep(AWAY_S / 2)
            # What somebody else does to the rules is mended without anybody's help.
            cluster.nft(node, "flush chain inet kube-nftlb refuse")
            eventually(lambda: "reject" in cluster.nft(node, "list chain inet kube-nftlb refuse"), "it refuses", 10)
            time.sleep(AWAY_S / 2)
        began = time.monotonic()
        cluster.apply(service("late", namespace, selector={"app": "web"}))
        pods, vip = cluster.pods("web", namespace), cluster.vip("late", namespace)
        eventually(lambda: cluster.answers(web.client, vip) == set(pods), "the change arrives", WITHIN_S)
        suite.record("API server", "served again after", "s", time.monotonic() - began, **told)
        cluster.farm_has("late--http", namespace, PODS)
    suite.record("API server", "failed connections", "", load.failed, **told)
    assert load.failed == 0, load
