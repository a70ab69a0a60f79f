"""All farms move to another engine with an upgrade of the chart."""

import contextlib
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_engines import are_served_by


@contextlib.contextmanager
def operator_with(cluster: Cluster, engine: str) -> Iterator[None]:
    """In place of the lab's operator one with another default engine, as after an upgrade of the chart."""
    settings = (
        f"KUBE_NFTLB_DEFAULT_ENGINE={engine}",
        "KUBE_NFTLB_LOG_LEVEL=ERROR",
        "KUBE_NFTLB_METRICS_ADDRESS=127.0.0.1:9395",
        "KUBE_NFTLB_HEALTH_ADDRESS=127.0.0.1:9396",
    )
    process = cluster.lab.popen(cluster.nodes[0], "env", *settings, sys.executable, "-m", "kube_nftlb", "operator")
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


# Three operators start, one after the other, two of them beside two clients that never rest.
@pytest.mark.timeout(300)
def test_all_farms_move_at_once_by_an_upgrade_of_the_chart(cluster: Cluster, namespace: str, client: str) -> None:
    services = [f"web-{number}" for number in range(10)]
    cluster.lab.stop("operator")
    try:
        with operator_with(cluster, "nftlb"):
            cluster.apply(*(service(name, namespace, selector={"app": "web"}) for name in services))
            cluster.serve("web", 3, namespace)
            # On a busy machine it takes this program long to start.
            eventually(lambda: cluster.farm(f"{services[0]}--http", namespace) is not None, "the operator works", 60)
            for name in services:
                cluster.farm_has(f"{name}--http", namespace, 3)
        vips = [cluster.vip(name, namespace) for name in services]
        for engine in ("nftables", "nftlb"):
            with (
                cluster.hammer(client, vips[0]) as first,
                cluster.hammer(client, vips[-1]) as last,
                operator_with(cluster, engine),
            ):
                eventually(partial(are_served_by, cluster, vips, engine), f"{engine} serves them all", 60)
            assert first["failures"] == last["failures"] == []
    finally:
        cluster.lab.start("operator")
