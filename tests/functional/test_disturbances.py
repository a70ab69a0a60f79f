"""Changes, failures and restarts, and what a client notices of them."""

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.builders.manifests import farm, service
from tests.engine import ENGINE
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(240)

GRACE_S = 4
"""Pods serve for so long after their deletion: longer than any node needs to know of it."""

IMPATIENT = ("--timeout", "0.3")
"""For tests of when traffic is back: do not wait for a lost connection."""


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """The VIP of a Service with three backends."""
    cluster.apply(service("web", namespace))
    cluster.run("web", 3, namespace, GRACE_S)
    cluster.farm_has("web--http", namespace, 3)
    return cluster.vip("web", namespace)


def test_scaling_up_and_down_fails_no_connection(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    survivors = cluster.pods("web", namespace)[:2]
    # Among pods of nearly one age, as these are, the controller goes by chance.
    for pod in survivors:
        cluster.kubectl("annotate", f"pod/{pod}", "controller.kubernetes.io/pod-deletion-cost=1", "-n", namespace)
    with cluster.streams(6, client, web) as streams, cluster.hammer(client, web) as hammered:
        cluster.scale("web", 10, namespace)
        cluster.farm_has("web--http", namespace, 10)
        time.sleep(1)
        cluster.scale("web", 2, namespace)
        cluster.farm_has("web--http", namespace, 2)
        time.sleep(GRACE_S + 1)
    assert sorted(cluster.pods("web", namespace)) == sorted(survivors)
    assert hammered["attempts"] > 1000
    assert hammered["failures"] == []
    assert len(hammered["answers"]) >= 10
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


def test_traffic_is_back_within_two_seconds_of_a_flushed_ruleset(cluster: Cluster, client: str, web: str) -> None:
    with cluster.hammer(client, web, 80, *IMPATIENT) as hammered:
        for node in cluster.nodes:
            cluster.nft(node, "flush", "ruleset")
        time.sleep(3)
    assert hammered["longest_gap_ms"] < 2000, hammered
    assert len(cluster.answers(client, web)) == 3
    for node in cluster.nodes:
        assert cluster.get("nftlbnode", node)["status"]["driftRepaired"] > 0


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
}[ENGINE]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_to_the_rules_is_repaired(cluster: Cluster, namespace: str, client: str, web: str, damage: str) -> None:
    cluster.nft(cluster.nodes[0], damage.format(farm=f"{namespace}.web--http", vip=web))
    eventually(lambda: len(cluster.answers(client, web, 80, "--timeout", "0.3")) == 3, "all backends answer", 10)


def test_damage_beside_a_change_of_ours_is_repaired(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    for scheduler in ("weight", "symhash", "rr"):
        cluster.nft(cluster.nodes[0], DAMAGE["base chain"])
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


def test_damage_is_repaired_while_changes_never_stop(cluster: Cluster, namespace: str, client: str, web: str) -> None:
    node = cluster.nodes[0]
    with changing(cluster, namespace):
        for _ in range(3):
            cluster.nft(node, "flush chain inet kube-nftlb refuse")
            eventually(lambda: "reject" in cluster.nft(node, "list chain inet kube-nftlb refuse"), "it refuses", 5)
            cluster.nft(node, DAMAGE["base chain"])
            eventually(lambda: bool(cluster.answers(client, web, 80, "--timeout", "0.3")), "it answers", 8)


def test_a_node_whose_nftlb_is_gone_is_not_ready(cluster: Cluster) -> None:
    node = cluster.nodes[1]

    def ready() -> str:
        conditions = cluster.get("nftlbnode", node)["status"]["conditions"]
        return str(next(c["status"] for c in conditions if c["type"] == "Ready"))

    cluster.lab.stop("nftlb", node)
    try:
        eventually(lambda: ready() == "False", "the node says so", 10)
        cluster.nft(node, "flush chain inet kube-nftlb refuse")
        eventually(lambda: "reject" in cluster.nft(node, "list chain inet kube-nftlb refuse"), "it refuses", 5)
    finally:
        cluster.lab.start("nftlb", node)
    eventually(lambda: ready() == "True", "it is well again", 10)


def test_an_nftlb_that_returns_with_old_state_is_brought_up_to_date(
    cluster: Cluster, namespace: str, client: str, web: str
) -> None:
    time.sleep(3)
    cluster.lab.stop("nftlb")
    cluster.scale("web", 5, namespace)
    cluster.rolled_out("web", 5, namespace)
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


def test_hundreds_of_new_services_delay_nobody_in_another_namespace(cluster: Cluster) -> None:
    with cluster.namespace() as one, cluster.namespace() as another, cluster.namespace() as third:
        # The new operator is told of them in this order: half of the crowd comes before, and half of it afterwards.
        before, quiet, behind = sorted((one, another, third))
        cluster.lab.stop("operator")
        try:
            for crowd in (before, behind):
                cluster.apply(*(service(f"many-{number}", crowd) for number in range(100)))
            cluster.apply(service("single", quiet))
        finally:
            cluster.lab.start("operator")
        eventually(lambda: cluster.farm("single--http", quiet) is not None, "the single Service has its farm", 60)

        def served(crowd: str) -> int:
            return len(cluster.get("farm", namespace=crowd)["items"])

        def all_served(crowd: str) -> bool:
            return served(crowd) == 100

        assert served(before) + served(behind) < 100, "it did not wait for the others"
        for crowd in (before, behind):
            eventually(partial(all_served, crowd), f"all Services in {crowd} have their farms", 60)


def test_nothing_is_deleted_while_the_api_server_is_away(cluster: Cluster, client: str, web: str) -> None:
    farms = cluster.node_farms()
    node = cluster.nodes[0]
    with cluster.hammer(client, web) as hammered:
        cluster.lab.stop("apiserver")
        try:
            time.sleep(3)
            assert cluster.node_farms() == farms
        finally:
            cluster.lab.start("apiserver")
    assert hammered["failures"] == []
    cluster.lab.stop("apiserver")
    try:
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


def test_a_farm_that_would_make_nftlb_reload_everything_is_never_sent(
    cluster: Cluster, namespace: str, client: str, web: str
) -> None:
    recoveries = cluster.recoveries()
    backend = [{"name": "a", "ip": "10.244.1.200", "port": 80}]
    with cluster.hammer(client, web) as hammered:
        # The same address and port as the Service's farm.
        cluster.apply(farm("thief", namespace, addresses=[{"ip": web, "ports": "80"}], backends=backend))
        eventually(lambda: _condition(cluster, "thief", namespace, "Accepted") == "False", "it is not accepted")
        time.sleep(1)
    assert hammered["failures"] == []
    assert len(hammered["answers"]) == 3
    assert cluster.recoveries() == recoveries
    conditions = {c["type"]: c for c in cluster.farm("thief", namespace)["status"]["conditions"]}
    assert conditions["Accepted"]["reason"] == "AddressConflict"
    assert f"{namespace}/web--http" in conditions["Accepted"]["message"]
    # When the winner goes, the loser takes over.
    cluster.delete("service", "web", namespace)
    cluster.wait("farm", "thief", "Programmed", namespace)


def _condition(cluster: Cluster, name: str, namespace: str, kind: str) -> str | None:
    conditions = (cluster.farm(name, namespace) or {}).get("status", {}).get("conditions", [])
    return next((c["status"] for c in conditions if c["type"] == kind), None)
