"""Changes of a Service, and what its clients notice of them."""

import time
from functools import partial

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.engines

GRACE_S = 4
"""Pods serve for so long after their deletion: longer than any node needs to know of it."""


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """The VIP of a Service with three backends."""
    return cluster.expose("web", 3, namespace)


def test_scaling_up_and_down_fails_no_connection(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 3, namespace, GRACE_S)
    cluster.farm_has("web--http", namespace, 3)
    web = cluster.vip("web", namespace)
    survivors = cluster.pods("web", namespace)[:2]
    # Among pods of nearly one age, as these are, the controller goes by chance.
    for pod in survivors:
        costs = {"controller.kubernetes.io/pod-deletion-cost": "1"}
        cluster.api.patch("pod", pod, namespace, {"metadata": {"annotations": costs}})
    with cluster.streams(6, client, web) as streams, cluster.hammer(client, web) as hammered:
        cluster.scale("web", 8, namespace)
        cluster.farm_has("web--http", namespace, 8)
        time.sleep(1)
        cluster.scale("web", 2, namespace)
        cluster.farm_has("web--http", namespace, 2)
        time.sleep(GRACE_S + 1)
    assert sorted(cluster.pods("web", namespace)) == sorted(survivors)
    assert hammered["attempts"] > 300
    assert hammered["failures"] == []
    assert len(hammered["answers"]) >= 8
    surviving = [stream for stream in streams if stream["pod"] in survivors]
    assert surviving, "six downloads over three pods, of which two stay"
    assert all(stream["complete"] for stream in surviving), streams


def test_a_change_of_scheduler_fails_no_connection(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    def has_scheduler(scheduler: str) -> bool:
        return bool(cluster.farm("web--http", namespace)["spec"]["scheduler"] == scheduler)

    with cluster.streams(3, client, web) as streams, cluster.hammer(client, web) as hammered:
        for scheduler in ("weight", "symhash", "rr"):
            cluster.apply(service("web", namespace, {"scheduler": scheduler}))
            eventually(partial(has_scheduler, scheduler), f"the farm has the scheduler {scheduler}")
            cluster.farm_has("web--http", namespace, 3)
    assert hammered["failures"] == []
    assert all(stream["complete"] for stream in streams), streams


def test_restarting_a_farm_breaks_no_open_connection_and_no_other_farm(
    cluster: Cluster, namespace: str, client: str, web: str
) -> None:
    cluster.apply(service("other", namespace, selector={"app": "web"}))
    cluster.farm_has("other--http", namespace, 3)
    other = cluster.vip("other", namespace)

    def has_mode(mode: str) -> bool:
        return bool(cluster.farm("web--http", namespace)["spec"]["mode"] == mode)

    with (
        cluster.streams(3, client, web) as streams,
        cluster.hammer(client, web) as hammered,
        cluster.hammer(client, other) as bystander,
    ):
        for mode in ("dnat", "snat"):
            cluster.apply(service("web", namespace, {"mode": mode}))
            eventually(partial(has_mode, mode), f"the farm has the mode {mode}")
            cluster.farm_has("web--http", namespace, 3)
    assert all(stream["complete"] for stream in streams), streams
    assert bystander["failures"] == []
    # Two restarts of the farm; each may lose what arrives within its few milliseconds.
    assert len(hammered["failures"]) <= 4, hammered["failures"]
    assert hammered["longest_gap_ms"] < 6000
