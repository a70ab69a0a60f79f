"""A node that is taken out hands its addresses over first, and nothing fails. A crash of its agent moves nothing."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kube_nftlb.announce.ownership.gate import EXCLUDED
from lab.places import CLIENT
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.faults import suite
from tests.functional.segment import announce, cut, holder, note, record, served

HAMMER_S = suite.by_form(1, 5)
"""Before and after an address moves: thousands of connections in the long form."""


@pytest.fixture
def ip(pair: tuple[str, str]) -> str:
    return pair[0]


@contextlib.contextmanager
def drained(cluster: Cluster, node: str) -> Iterator[None]:
    kubectl = Kubectl(cluster)
    # A connection that was cut at the hand-over stays open for conntrack, so this may take all of the time. In a minute
    # the client would use each of its ports twice, and backends ignore a SYN of a connection that they still know.
    done = kubectl.run("drain", f"node/{node}", "--force", "--timeout", "5")
    assert f"node {node} announces no addresses" in done.stderr
    try:
        yield
    finally:
        assert kubectl.run("undrain", f"node/{node}").returncode == 0


@contextlib.contextmanager
def tainted(cluster: Cluster, node: str) -> Iterator[None]:
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    cluster.api.patch("node", node, "", {"spec": {"taints": [taint]}})
    try:
        yield
    finally:
        cluster.api.patch("node", node, "", {"spec": {"taints": None}})


@contextlib.contextmanager
def excluded(cluster: Cluster, node: str) -> Iterator[None]:
    cluster.api.patch("node", node, "", {"metadata": {"labels": {EXCLUDED: ""}}})
    try:
        yield
    finally:
        cluster.api.patch("node", node, "", {"metadata": {"labels": {EXCLUDED: None}}})


@contextlib.contextmanager
def restarted(cluster: Cluster, node: str) -> Iterator[None]:
    """As its pod at an upgrade: both of its programs are told to end at the same time."""
    os.kill(cluster.lab.pid("responder", node), signal.SIGTERM)
    cluster.lab.restart("agent", node)
    yield


@pytest.mark.parametrize("take_out", [drained, tainted, excluded, restarted])
def test_addresses_leave_first(
    cluster: Cluster,
    namespace: str,
    ip: str,
    take_out: Callable[[Cluster, str], contextlib.AbstractContextManager[None]],
) -> None:
    cluster.serve("web", 4, namespace)
    announce(cluster, "web", namespace, ip)
    served(cluster, ip)
    first = holder(cluster, ip)
    with cluster.hammer(CLIENT, ip) as met:
        time.sleep(HAMMER_S)
        with take_out(cluster, first):
            second = holder(cluster, ip, other_than=first)
            time.sleep(HAMMER_S)
    note(met, f"a node is {take_out.__name__}")
    print(f"{first} → {second}: {met['attempts']} connections, failed {met['failed']}, gap {met['longest_gap_ms']} ms")
    assert cut(met) <= 2, "those of the two threads that are open at the hand-over"
    assert met["failed"] == {}
    assert met["longest_gap_ms"] < 1000, "no SYN was lost: it would be repeated after a second"
    eventually(lambda: cluster.lab.pid("responder", first) > 0, "its responder runs again")


def test_an_upgrade_of_all_agents_one_after_another_fails_nothing(cluster: Cluster, namespace: str, ip: str) -> None:
    cluster.serve("web", 4, namespace)
    announce(cluster, "web", namespace, ip)
    served(cluster, ip)
    before = record(cluster, ip).transitions
    with cluster.hammer(CLIENT, ip) as met:
        for node in cluster.nodes:
            with restarted(cluster, node):
                address = str(cluster.lab.nodes[cluster.nodes.index(node)].addresses[0].ip)
                ready = partial(is_ready, cluster, address)
                eventually(ready, f"the agent of {node} is ready", 60)
    moves = record(cluster, ip).transitions - before
    note(met, "all agents are upgraded")
    print(f"{met['attempts']} connections, {moves} moves, failed {met['failed']}, gap {met['longest_gap_ms']} ms")
    assert cut(met) <= 2 * moves, "those of the two threads that are open at a hand-over"
    assert met["failed"] == {}


def is_ready(cluster: Cluster, address: str) -> bool:
    return (cluster.http_get(address, "/readyz", 10256) or (0,))[0] == 200


# A new agent has 5 s: beside other tests it may take longer to start.
@pytest.mark.alone
def test_the_responder_answers_while_a_new_agent_starts(cluster: Cluster, namespace: str, ip: str) -> None:
    cluster.serve("web", 4, namespace)
    announce(cluster, "web", namespace, ip)
    served(cluster, ip)
    first = holder(cluster, ip)
    with cluster.hammer(CLIENT, ip) as met:
        os.kill(cluster.lab.pid("agent", first), signal.SIGKILL)
        time.sleep(8)
    note(met, "the holder's agent crashes")
    print(f"{met['attempts']} connections, gap {met['longest_gap_ms']} ms, {record(cluster, ip).holder}")
    assert met["failed"] == {}


def test_an_address_that_no_node_announces_says_why_on_each(cluster: Cluster, namespace: str, ip: str) -> None:
    with contextlib.ExitStack() as stack:
        for node in cluster.nodes:
            stack.enter_context(excluded(cluster, node))
        cluster.serve("web", 1, namespace)
        announce(cluster, "web", namespace, ip)
        kubectl = Kubectl(cluster)
        # The first node that says so is enough for "no node announces"; the others follow.
        sentence = f"node-1, node-2, node-3: the node has the label {EXCLUDED} (NodeExcluded)"

        def said() -> bool:
            text = " ".join(kubectl.run("why", "web", "-n", namespace).stdout.split())
            return "no node announces" in text and sentence in text

        eventually(said, "why says it of each node")
    served(cluster, ip)
    eventually(lambda: "announced by node-" in kubectl.run("get", "web", "-n", namespace).stdout, "get says it")
