"""nftlb answers nonsense, half, nothing, or has done nothing: the node says so, traffic goes on, and it recovers."""

import time
from functools import partial
from typing import Any

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import nftlb_proxy, suite
from tests.functional.faults.load import PODS, Web
from tests.functional.faults.nftlb_proxy import NftlbProxy, Spoil

SPOILS: tuple[Spoil, ...] = (nftlb_proxy.nothing, nftlb_proxy.no_effect)
"""tests/unit/nftlb/test_client.py has that the others are taken for no answer."""
OTHERS: tuple[Spoil, ...] = (
    nftlb_proxy.garbage,
    nftlb_proxy.no_http,
    nftlb_proxy.error_500,
    nftlb_proxy.half,
    nftlb_proxy.half_json,
)
TOLD_WITHIN_S = 20
SERVED_WITHIN_S = suite.by_form(30, 120)


def status(cluster: Cluster, node: str) -> Any:
    return (cluster.get("nftlbnode", node) or {}).get("status", {})


def ready(cluster: Cluster, node: str) -> str:
    return str(cluster.condition("nftlbnode", node, "Ready").get("status", ""))


def failed(cluster: Cluster, node: str) -> list[str]:
    return [each["name"] for each in status(cluster, node).get("failedFarms", [])]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "spoil",
    [*SPOILS, *(pytest.param(spoil, marks=pytest.mark.long) for spoil in OTHERS)],
    ids=lambda spoil: spoil.__name__,
)
def test_the_node_says_so_traffic_goes_on_and_it_recovers(cluster: Cluster, web: Web, spoil: Spoil) -> None:
    node, namespace = cluster.nodes[0], web.namespace
    name = f"late-{spoil.__name__.replace('_', '-')}"
    late = partial(service, name, namespace, selector={"app": "web"})
    with NftlbProxy(cluster, node).between() as proxy, web.loaded() as load:
        eventually(lambda: bool(proxy.requests), "the agent asks the proxy")
        proxy.spoil = spoil
        began = time.monotonic()
        cluster.apply(late({"engine": "nftlb"}))
        eventually(
            lambda: ready(cluster, node) == "False" or f"{name}--http" in failed(cluster, node),
            "the node says that its nftlb is of no use",
            TOLD_WITHIN_S,
        )
        suite.record("nftlb", "told after", "s", time.monotonic() - began, answer=spoil.__name__)
        proxy.spoil = nftlb_proxy.as_it_is
        began = time.monotonic()
        if spoil is nftlb_proxy.no_effect and not suite.LONG:
            # A farm that the kernel has not is tried again when it changes, or else ever less often.
            cluster.apply(late({"engine": "nftlb", "scheduler": "weight"}))
        pods, vip = cluster.pods("web", namespace), cluster.vip(name, namespace)
        eventually(lambda: cluster.answers(web.client, vip) == set(pods), f"{name} is served", SERVED_WITHIN_S)
        suite.record("nftlb", "served again after", "s", time.monotonic() - began, answer=spoil.__name__)
        eventually(lambda: ready(cluster, node) == "True" and not failed(cluster, node), "the node is well again")
        cluster.farm_has(f"{name}--http", namespace, PODS)
    suite.record("nftlb", "failed connections", "", load.failed, answer=spoil.__name__)
    assert load.failed == 0, load
