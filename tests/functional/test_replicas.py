"""Two operators: one leads, the other stands by and takes over."""

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab import addresses
from tests.builders.manifests import client_pod, service
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.test_health import ask

pytestmark = [pytest.mark.timeout(240), pytest.mark.once("operators")]

OPERATORS = {"operator": 9196, "operator-2": 9296}
NAMESPACE = "kube-nftlb-system"


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """A cluster with two operators."""
    with running("replicas", nodes=1, operators=len(OPERATORS)) as cluster:
        yield cluster


@pytest.fixture
def here(pair: Cluster) -> Iterator[str]:
    """A namespace with servers, and a client."""
    with pair.namespace() as name:
        pair.apply(client_pod("client", name, pair.nodes[0]))
        pair.wait("pod", "client", "Ready", name)
        pair.run("web", 2, name)
        yield name


def readiness(cluster: Cluster) -> dict[str, Any]:
    """Each operator's response to /readyz, None for one that is not running."""
    told = {name: ask(cluster, addresses.API_HOST, "/readyz", port) for name, port in OPERATORS.items()}
    return {name: answer for name, answer in told.items() if answer.status}


def leaders(cluster: Cluster) -> list[str]:
    return [name for name, answer in readiness(cluster).items() if answer.body["leader"]]


def leader(cluster: Cluster) -> str:
    eventually(lambda: len(leaders(cluster)) == 1, "there is one leader", 60)
    return leaders(cluster)[0]


def other_than(name: str) -> str:
    return next(each for each in OPERATORS if each != name)


def lease(cluster: Cluster) -> Any:
    return cluster.get("lease", "kube-nftlb-operator", NAMESPACE)["spec"]


def applied(cluster: Cluster, farm: str) -> dict[str, int]:
    """The number of farms that each operator has written."""
    counts = {}
    for name in OPERATORS:
        lines = [json.loads(line) for line in log_lines(cluster, name) if line.startswith("{")]
        counts[name] = sum(line["event"] == "farm applied" and line["farm"] == farm for line in lines)
    return counts


def log_lines(cluster: Cluster, component: str) -> list[str]:
    return cluster.lab.log_path(component).read_text().splitlines()


def serves(cluster: Cluster, namespace: str, name: str) -> None:
    """A new Service works."""
    cluster.apply(service(name, namespace, selector={"app": "web"}))
    eventually(lambda: cluster.farm(f"{name}--http", namespace) is not None, "it has its farm", 60)
    cluster.reaches(f"{namespace}/client", cluster.pods("web", namespace), cluster.vip(name, namespace))


def test_both_are_ready_one_leads_and_only_that_one_writes(pair: Cluster, here: str) -> None:
    first = leader(pair)
    told = readiness(pair)
    assert {name: answer.status for name, answer in told.items()} == dict.fromkeys(OPERATORS, 200)
    serves(pair, here, "once")
    pair.wait("farm", "once--http", "Programmed", here)
    assert applied(pair, "once--http") == {first: 1, other_than(first): 0}


def test_a_leader_that_is_asked_to_end_hands_over_at_once(pair: Cluster, here: str) -> None:
    serves(pair, here, "before")
    first, transitions = leader(pair), lease(pair)["leaseTransitions"]
    with pair.hammer(f"{here}/client", pair.vip("before", here)) as hammered:
        began = time.monotonic()
        pair.lab.restart(first)
        serves(pair, here, "after")
        print(f"planned: a Service that came with it was served after {time.monotonic() - began:.1f} s")
        assert leaders(pair) == [other_than(first)]
    assert hammered["attempts"] > 20
    assert hammered["failures"] == []
    assert lease(pair)["leaseTransitions"] == transitions + 1
    taken, given = lease(pair)["acquireTime"], stamp(pair, first, "lease released")
    print(f"planned: the lease was free at {given}, and taken at {taken}")
    assert applied(pair, "before--http")[other_than(first)] == 0, "what is right is not written again"


def stamp(cluster: Cluster, component: str, event: str) -> str:
    lines = [json.loads(line) for line in log_lines(cluster, component) if event in line]
    return str(lines[-1]["timestamp"])


def test_a_leader_that_dies_is_followed_when_its_lease_ends(pair: Cluster, here: str) -> None:
    serves(pair, here, "before")
    first, transitions = leader(pair), lease(pair)["leaseTransitions"]
    with pair.hammer(f"{here}/client", pair.vip("before", here)) as hammered:
        pair.lab.stop(other_than(first))
        pair.lab.start(other_than(first))
        eventually(lambda: len(readiness(pair)) == len(OPERATORS), "the other one stands by", 60)
        began = time.monotonic()
        os.kill(pair.lab.pid(first), signal.SIGKILL)
        serves(pair, here, "after")
        print(f"killed: a Service that came with it was served after {time.monotonic() - began:.1f} s")
    assert hammered["failures"] == []
    assert lease(pair)["leaseTransitions"] == transitions + 1


def test_a_leader_that_loses_its_lease_ends_with_a_sentence_and_stands_by(pair: Cluster, here: str) -> None:
    first, entries = leader(pair), {entry["component"]: entry["restarts"] for entry in pair.lab.status()}
    patch = json.dumps({"spec": {"holderIdentity": "somebody"}})
    pair.kubectl("patch", "lease", "kube-nftlb-operator", "-n", NAMESPACE, "--type=merge", "-p", patch)
    sentence = f"kube-nftlb: the lease {NAMESPACE}/kube-nftlb-operator was taken by 'somebody'"
    eventually(lambda: sentence in log_lines(pair, first), "it says why it ends")
    assert lease(pair)["holderIdentity"] == "somebody"
    serves(pair, here, "later")
    restarts = {entry["component"]: entry["restarts"] for entry in pair.lab.status()}
    assert restarts == {**entries, first: entries[first] + 1}
