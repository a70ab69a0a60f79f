"""nftlb answers nonsense, half, nothing, or has done nothing: the node says so, traffic goes on, and it recovers."""

import time
from typing import Any

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import nftlb_proxy, suite
from tests.functional.faults.load import PODS, Web
from tests.functional.faults.nftlb_proxy import NftlbProxy, Spoil

SPOILS = (
    nftlb_proxy.garbage,
    nftlb_proxy.no_http,
    nftlb_proxy.error_500,
    nftlb_proxy.half,
    nftlb_proxy.half_json,
    nftlb_proxy.nothing,
    nftlb_proxy.no_effect,
)
TOLD_WITHIN_S = 20


def status(cluster: Cluster, node: str) -> Any:
    return (cluster.get("nftlbnode", node) or {}).get("status", {})


def ready(cluster: Cluster, node: str) -> str:
    return next((each["status"] for each in status(cluster, node)["conditions"] if each["type"] == "Ready"), "")


def failed(cluster: Cluster, node: str) -> list[str]:
    return [each["name"] for each in status(cluster, node).get("failedFarms", [])]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_the_node_says_so_traffic_goes_on_and_it_recovers(cluster: Cluster, namespace: str, spoil: Spoil) -> None:
    web, node = Web.start(cluster, namespace), cluster.nodes[0]
    late = service("late", namespace, {"engine": "nftlb"}, selector={"app": "web"})
    with NftlbProxy(cluster, node).between() as proxy, web.loaded() as load:
        eventually(lambda: bool(proxy.requests), "the agent asks the proxy")
        proxy.spoil = spoil
        began = time.monotonic()
        cluster.apply(late)

        def told() -> bool:
            return ready(cluster, node) == "False" or "late--http" in failed(cluster, node)

        try:
            eventually(told, "the node says that its nftlb is of no use", TOLD_WITHIN_S)
        finally:
            print("TOLD", round(time.monotonic() - began, 1), status(cluster, node))
        suite.record("nftlb", "told after", "s", time.monotonic() - began, answer=spoil.__name__)
        proxy.spoil = nftlb_proxy.as_it_is
        began = time.monotonic()
        cluster.reaches(web.client, cluster.pods("web", namespace), cluster.vip("late", namespace))
        suite.record("nftlb", "served again after", "s", time.monotonic() - began, answer=spoil.__name__)
        print("SERVED", round(time.monotonic() - began, 1))
        eventually(lambda: ready(cluster, node) == "True" and not failed(cluster, node), "the node is well again")
        cluster.farm_has("late--http", namespace, PODS)
    suite.record("nftlb", "failed connections", "", load.failed, answer=spoil.__name__)
    assert load.failed == 0, load
