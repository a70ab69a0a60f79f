"""Two operators: one leads, the other stands by and takes over."""

import json
import os
import signal
import time
from typing import Any

import pytest

from lab import addresses
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.operations.conftest import OPERATORS

PORTS = dict(zip(OPERATORS, (9196, 9296), strict=True))
NAMESPACE = "kube-nftlb-system"


@pytest.fixture
def here(cluster: Cluster, namespace: str) -> str:
    """A namespace with servers."""
    cluster.serve("web", 2, namespace)
    return namespace


def readiness(cluster: Cluster) -> dict[str, tuple[int, Any]]:
    """The status and body of each operator's response to /readyz; those that run."""
    answers = {name: cluster.http_get(addresses.API_HOST, "/readyz", port) for name, port in PORTS.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def leaders(cluster: Cluster) -> list[str]:
    return [name for name, answer in readiness(cluster).items() if answer[1]["leader"]]


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


def test_both_are_ready_one_leads_and_only_that_one_writes(cluster: Cluster, here: str) -> None:
    first = leader(cluster)
    answers = readiness(cluster)
    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(OPERATORS, 200)
    serves(cluster, here, "once")
    cluster.wait("farm", "once--http", "Programmed", here)
    assert applied(cluster, "once--http") == {first: 1, other_than(first): 0}


def test_a_leader_that_is_asked_to_end_hands_over_at_once(cluster: Cluster, here: str) -> None:
    serves(cluster, here, "before")
    first, transitions = leader(cluster), lease(cluster)["leaseTransitions"]
    with cluster.hammer(f"{here}/client", cluster.vip("before", here)) as hammered:
        began = time.monotonic()
        cluster.lab.restart(first)
        serves(cluster, here, "after")
        print(f"planned: a Service that came with it was served after {time.monotonic() - began:.1f} s")
        assert leaders(cluster) == [other_than(first)]
    assert hammered["attempts"] > 20
    assert hammered["failures"] == []
    assert lease(cluster)["leaseTransitions"] == transitions + 1
    taken, given = lease(cluster)["acquireTime"], stamp(cluster, first, "lease released")
    print(f"planned: the lease was free at {given}, and taken at {taken}")
    assert applied(cluster, "before--http")[other_than(first)] == 0, "what is right is not written again"


def stamp(cluster: Cluster, component: str, event: str) -> str:
    lines = [json.loads(line) for line in log_lines(cluster, component) if event in line]
    return str(lines[-1]["timestamp"])


def test_a_leader_that_dies_is_followed_when_its_lease_ends(cluster: Cluster, here: str) -> None:
    serves(cluster, here, "before")
    first, transitions = leader(cluster), lease(cluster)["leaseTransitions"]
    with cluster.hammer(f"{here}/client", cluster.vip("before", here)) as hammered:
        cluster.lab.stop(other_than(first))
        cluster.lab.start(other_than(first))
        eventually(lambda: len(readiness(cluster)) == len(OPERATORS), "the other one stands by", 60)
        began = time.monotonic()
        os.kill(cluster.lab.pid(first), signal.SIGKILL)
        serves(cluster, here, "after")
        print(f"killed: a Service that came with it was served after {time.monotonic() - began:.1f} s")
    assert hammered["failures"] == []
    assert lease(cluster)["leaseTransitions"] == transitions + 1


def test_a_leader_that_loses_its_lease_ends_with_a_sentence_and_stands_by(cluster: Cluster, here: str) -> None:
    first, entries = leader(cluster), {entry["component"]: entry["restarts"] for entry in cluster.lab.status()}
    patch = json.dumps({"spec": {"holderIdentity": "somebody"}})
    cluster.kubectl("patch", "lease", "kube-nftlb-operator", "-n", NAMESPACE, "--type=merge", "-p", patch)
    sentence = f"kube-nftlb: the lease {NAMESPACE}/kube-nftlb-operator was taken by 'somebody'"
    eventually(lambda: sentence in log_lines(cluster, first), "it says why it ends")
    assert lease(cluster)["holderIdentity"] == "somebody"
    serves(cluster, here, "later")
    restarts = {entry["component"]: entry["restarts"] for entry in cluster.lab.status()}
    assert restarts == {**entries, first: entries[first] + 1}
