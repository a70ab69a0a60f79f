"""Failures and restarts, and what a client notices of them; tests/functional/faults has more, under load."""

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually

IMPATIENT = ("--timeout", "0.3")
"""For tests of when traffic is back: do not wait for a lost connection."""


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """The VIP of a Service with three backends."""
    return cluster.expose("web", 3, namespace)


def test_a_restarted_agent_changes_nothing(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    cluster.apply(service("empty", namespace, selector={"app": "nobody"}))
    cluster.farm_has("empty--http", namespace, 0)
    before = cluster.changing_requests()
    pids = [cluster.lab.pid("agent", node) for node in cluster.nodes]
    with cluster.hammer(client, web) as hammered:
        cluster.lab.restart("agent")
        assert [cluster.lab.pid("agent", node) for node in cluster.nodes] != pids
        # The restarted agents work: they follow the next change.
        cluster.apply(service("late", namespace, selector={"app": "web"}))
        cluster.farm_has("late--http", namespace, 3)
        cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("late", namespace))
    assert hammered["failures"] == []
    new = cluster.changing_requests()[len(before) :]
    assert len(new) <= 2 * len(cluster.nodes), ("only the new farm was sent, and its backends", new)


@pytest.mark.parametrize("signal_or_restart", ["restart", "kill"])
def test_traffic_is_back_within_two_seconds_of_a_restart_of_nftlb(
    cluster: Cluster, client: str, web: str, signal_or_restart: str
) -> None:
    # The start-up file is written some seconds after a change at the latest.
    time.sleep(3)
    with cluster.streams(2, client, web) as streams, cluster.hammer(client, web, 80, *IMPATIENT) as hammered:
        if signal_or_restart == "restart":
            cluster.lab.restart("nftlb")
        else:
            for node in cluster.nodes:
                os.kill(cluster.lab.pid("nftlb", node), signal.SIGKILL)
        time.sleep(3)
    assert hammered["longest_gap_ms"] < 2000, hammered
    assert len(cluster.answers(client, web)) == 3
    assert all(stream["complete"] for stream in streams), streams


@pytest.mark.engines
def test_traffic_is_back_within_two_seconds_of_a_flushed_ruleset(cluster: Cluster, client: str, web: str) -> None:
    before = repaired(cluster)
    with cluster.streams(2, client, web) as streams, cluster.hammer(client, web, 80, *IMPATIENT) as hammered:
        for node in cluster.nodes:
            cluster.nft(node, "flush", "ruleset")
        time.sleep(3)
    assert hammered["longest_gap_ms"] < 2000, hammered
    assert "refused" not in hammered["failed"], hammered
    assert all(stream["complete"] for stream in streams), streams
    assert len(cluster.answers(client, web)) == 3
    for node, times in before.items():
        eventually(lambda node=node, times=times: repaired(cluster)[node] > times, f"{node} counts it")  # type: ignore[misc]  # bound loop variables


def repaired(cluster: Cluster) -> dict[str, int]:
    """How often each node has said that it repaired drift."""
    return {node: cluster.get("nftlbnode", node)["status"].get("driftRepaired", 0) for node in cluster.nodes}


DAMAGE = {
    "nftlb": {
        "base chain": "flush chain ip nftlb prerouting",
        "farm's chain": "flush chain ip nftlb nat-{farm}",
        "listener": "delete element ip nftlb nat-proto-services {{ tcp . {vip} . 80 }}",
        "table": "delete table ip nftlb",
    },
    "nftables": {
        "base chain": "flush chain inet kube-nftlb-services prerouting",
        "endpoints": "flush map inet kube-nftlb-services endpoints-ip",
        "listener": "delete element inet kube-nftlb-services services-ip {{ tcp . {vip} . 80 }}",
        "table": "delete table inet kube-nftlb-services",
    },
}


@pytest.mark.engines
def test_damage_to_the_rules_is_repaired(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    for what, damage in DAMAGE[engine.current()].items():
        cluster.nft(cluster.nodes[0], damage.format(farm=f"{namespace}.web--http", vip=web))
        eventually(
            partial(is_served, cluster, client, web), f"all backends answer in spite of damage to the {what}", 10
        )


def is_served(cluster: Cluster, client: str, web: str) -> bool:
    return len(cluster.answers(client, web, 80, "--timeout", "0.3")) == 3


@pytest.mark.usefixtures("web")
def test_damage_to_what_nftlb_masquerades_is_repaired(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    cluster.nft(node, "flush chain ip nftlb postrouting")

    def masquerades() -> bool:
        return "masquerade" in cluster.lab.exec(node, "nft", "list", "chain", "ip", "nftlb", "postrouting").stdout

    eventually(masquerades, "it masquerades again", 10)


@pytest.mark.engines
def test_damage_beside_a_change_of_ours_is_repaired(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    for scheduler in ("weight", "symhash", "rr"):
        cluster.nft(cluster.nodes[0], DAMAGE[engine.current()]["base chain"])
        cluster.apply(service("web", namespace, {"scheduler": scheduler}))
        eventually(lambda: bool(cluster.answers(client, web, 80, "--timeout", "0.3")), "it answers", 10)


@contextlib.contextmanager
def changing(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Change another Service all the time."""
    cluster.apply(service("busy", namespace, selector={"app": "web"}))
    cluster.farm_has("busy--http", namespace, 3)
    stopped = threading.Event()

    def change() -> None:
        for scheduler in itertools.cycle(("weight", "symhash", "rr")):
            if stopped.is_set():
                return
            cluster.apply(service("busy", namespace, {"scheduler": scheduler}, selector={"app": "web"}))

    changer = threading.Thread(target=change)
    changer.start()
    try:
        yield
    finally:
        stopped.set()
        changer.join()


@pytest.mark.engines
def test_damage_is_repaired_while_changes_never_stop(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    node = cluster.nodes[0]
    with changing(cluster, namespace):
        for _ in range(3):
            cluster.nft(node, "flush chain inet kube-nftlb refuse")
            eventually(lambda: "reject" in cluster.nft(node, "list chain inet kube-nftlb refuse"), "it refuses", 5)
            cluster.nft(node, DAMAGE[engine.current()]["base chain"])
            eventually(lambda: bool(cluster.answers(client, web, 80, "--timeout", "0.3")), "it answers", 8)


def test_an_nftlb_that_returns_with_old_state_is_brought_up_to_date(
    cluster: Cluster, namespace: str, client: str, web: str
) -> None:
    time.sleep(3)
    cluster.lab.stop("nftlb")
    cluster.serve("web", 5, namespace)
    cluster.lab.start("nftlb")
    eventually(lambda: len(cluster.answers(client, web)) == 5, "all five answer", 10)
    cluster.farm_has("web--http", namespace, 5)


def test_what_is_deleted_while_nobody_looks_is_gone_afterwards(
    cluster: Cluster, namespace: str, client: str, web: str
) -> None:
    cluster.apply(service("stays", namespace, selector={"app": "web"}))
    cluster.farm_has("stays--http", namespace, 3)
    cluster.lab.stop("operator")
    cluster.lab.stop("agent")
    try:
        cluster.delete("service", "web", namespace)
        time.sleep(1)
        assert len(cluster.answers(client, web)) == 3, "the rules stay as they were"
    finally:
        cluster.lab.start("operator")
        cluster.lab.start("agent")
    eventually(lambda: cluster.farm("web--http", namespace) is None, "the farm is gone")
    eventually(lambda: f"{namespace}.web--http" not in cluster.node_farms(namespace), "nftlb has forgotten it")
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("stays", namespace))


MANY = 30
"""Services of each of two namespaces that come at once."""


def test_many_new_services_delay_nobody_in_another_namespace(cluster: Cluster) -> None:
    with cluster.namespace() as one, cluster.namespace() as another, cluster.namespace() as third:
        # The new operator is told of them in this order: half of the crowd comes before, and half of it afterwards.
        before, quiet, behind = sorted((one, another, third))
        cluster.lab.stop("operator")
        try:
            for crowd in (before, behind):
                cluster.apply(*(service(f"many-{number}", crowd) for number in range(MANY)))
            cluster.apply(service("single", quiet))
        finally:
            cluster.lab.start("operator")
        eventually(lambda: cluster.farm("single--http", quiet) is not None, "the single Service has its farm", 60)

        def served(crowd: str) -> int:
            return len(cluster.get("farm", namespace=crowd)["items"])

        def all_served(crowd: str) -> bool:
            return served(crowd) == MANY

        assert served(before) + served(behind) < MANY, "it did not wait for the others"
        for crowd in (before, behind):
            eventually(partial(all_served, crowd), f"all Services in {crowd} have their farms", 60)


def test_nothing_is_deleted_while_the_api_server_is_away(cluster: Cluster, client: str, web: str) -> None:
    farms = cluster.node_farms()
    node = cluster.nodes[0]
    cluster.lab.stop("apiserver")
    try:
        with cluster.hammer(client, web) as hammered:
            time.sleep(3)
            assert cluster.node_farms() == farms
        assert hammered["failures"] == []
        cluster.nft(node, "flush", "ruleset")
        eventually(lambda: len(cluster.answers(client, web)) == 3, "drift is repaired all the same", 5)
        cluster.lab.restart("agent", node)
        time.sleep(1)
        assert len(cluster.answers(client, web)) == 3, "an agent without a list deletes nothing"
    finally:
        cluster.lab.start("apiserver")
        eventually(lambda: cluster.try_kubectl("get", "nodes").returncode == 0, "the API server is back")
        # It would wait for up to half a minute before it looks again.
        cluster.lab.restart("controller-manager")
