"""Another node takes an address when its holder fails in any way, and two do not answer for it for long."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.places import CLIENT
from lab.rights import NAMESPACE
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.segment import (
    announce,
    answerers,
    cut,
    cut_off,
    forgetting,
    holder,
    note,
    note_answers,
    record,
    served,
    split,
    unplugged,
)

AWAY_S = suite.by_form(8, 120)
LONGEST_S = 15.0
"""It takes two seconds, or five more where the agent hangs; the machine may be busy."""
ASKING = "the client asks who has the address"
ANEW_S = 5.0
"""For a client that asks; it takes two seconds from the moment on at which nobody answers."""
TWO_MS = 1000
"""For how long two nodes may answer for an address, altogether."""
BACK_S = 3
"""For a node that was replaced, and is mended: it might answer again."""


def local(cluster: Cluster, namespace: str, *ips: str) -> None:
    """Have a Service with an endpoint on each node, which serves its own clients whatever becomes of the others."""
    for number, node in enumerate(cluster.nodes, 1):
        cluster.serve("web", number, namespace, node)
    policy = "RequireDualStack" if len(ips) > 1 else "SingleStack"
    announce(cluster, "web", namespace, *ips, ipFamilyPolicy=policy, externalTrafficPolicy="Local")


def one_answers(told: dict[str, Any], change: str) -> None:
    """The old and the new holder answered, but not both at the same time for long."""
    note_answers(told, change)
    print(f"two answered for {told['two_ms']} ms: {told['answers']}")
    assert len({mac for _, macs in told["answers"] for mac in macs}) > 1, "somebody else answers now"
    assert told["two_ms"] <= TWO_MS


@contextlib.contextmanager
def power_off(cluster: Cluster, node: str) -> Iterator[None]:
    programs = ("agent", "responder")
    with unplugged(cluster, node):
        for program in programs:
            os.kill(cluster.lab.pid(program, node), signal.SIGKILL)
        yield


@contextlib.contextmanager
def stopped_responder(cluster: Cluster, node: str) -> Iterator[None]:
    with cluster.frozen("responder", node):
        yield


@contextlib.contextmanager
def stopped_agent(cluster: Cluster, node: str) -> Iterator[None]:
    with cluster.frozen("agent", node):
        yield


FAULTS: dict[str, Callable[[Cluster, str], contextlib.AbstractContextManager[None]]] = {
    "power off": power_off,
    "link down": unplugged,
    f"responder stopped; {ASKING}": stopped_responder,
    f"agent stopped; {ASKING}": stopped_agent,
    # A client that knows the holder goes on with it: nothing of this takes time.
    **suite.by_form({}, {"responder stopped": stopped_responder, "agent stopped": stopped_agent}),
}
SPLITS: dict[str, tuple[list[str], list[str], int]] = {
    "the client hears all": ([], [], 15),
    "the client hears the other two": ([], [CLIENT], suite.by_form(6, 15)),
    "the client hears the holder, and knows it": ([CLIENT], [], suite.by_form(6, 15)),
}
"""Who else is on the side of the holder, and who on that of the others; and for how many seconds."""
pytestmark = pytest.mark.timeout(suite.by_form(120, 400))


@pytest.mark.parametrize("repetition", range(suite.by_form(1, 3)))
@pytest.mark.parametrize("family", [0, 1], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_client_connects_anew(
    cluster: Cluster, namespace: str, fault: str, pair: tuple[str, str], family: int, repetition: int
) -> None:
    ip = pair[family]
    local(cluster, namespace, *pair)
    served(cluster, ip)
    first = holder(cluster, ip)
    with answerers(cluster, ip) as told, cluster.hammer(CLIENT, ip, 80, "--timeout", "0.5") as met:
        # Others ask every half second from about when the Service is made: not all failures come just after that.
        time.sleep(0.2 * repetition)
        began = time.monotonic()
        asks = forgetting(cluster, ip) if ASKING in fault else contextlib.nullcontext()
        with asks, FAULTS[fault](cluster, first):
            second = holder(cluster, ip, other_than=first)
            took = time.monotonic() - began
            served(cluster, ip)
        time.sleep(BACK_S)
    note(met, f"holder: {fault}")
    one_answers(told, f"holder: {fault}")
    print(f"{first} → {second} after {took:.1f} s; longest gap {met['longest_gap_ms']} ms, failed {met['failed']}")
    assert met["longest_gap_ms"] < (ANEW_S if ASKING in fault else LONGEST_S) * 1000
    eventually(lambda: cluster.lab.pid("responder", first) > 0, "the node is mended")
    assert record(cluster, ip).holder == second, "it does not go back"


@pytest.fixture
def unwritable(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Have the API server fail to write the Leases of addresses from a call on: it cannot ask who is to admit them."""
    webhook = {
        "name": "nobody.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        "objectSelector": {"matchLabels": {"kube-nftlb.io/announced-address": "true"}},
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "apiVersions": ["*"],
                "operations": ["*"],
                "resources": ["leases"],
            }
        ],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    made = {**kind, "metadata": {"name": "nobody"}, "webhooks": [webhook]}

    def fails() -> bool:
        found = cluster.get("lease", namespace=NAMESPACE, labelSelector="kube-nftlb.io/announced-address=true")
        body = {"metadata": {"annotations": {"tried": "again"}}}
        try:
            cluster.api.patch("lease", found["items"][0]["metadata"]["name"], NAMESPACE, body)
        except AssertionError:
            return True
        return False

    def begin() -> None:
        cluster.apply(made)
        eventually(fails, "writes fail")

    yield begin
    cluster.delete("validatingwebhookconfiguration", "nobody")


def test_a_holder_that_dies_while_the_api_server_fails_to_write_is_replaced(
    cluster: Cluster, namespace: str, pair: tuple[str, str], unwritable: Callable[[], None]
) -> None:
    ip = pair[0]
    local(cluster, namespace, ip)
    served(cluster, ip)
    first = holder(cluster, ip)
    unwritable()
    with answerers(cluster, ip) as told, cluster.hammer(CLIENT, ip, 80, "--timeout", "0.5") as met:
        with power_off(cluster, first):
            time.sleep(AWAY_S)
            served(cluster, ip)
            assert record(cluster, ip).holder == first, "nobody could say that it holds the address"
            cluster.delete("validatingwebhookconfiguration", "nobody")
            second = holder(cluster, ip, other_than=first)
            served(cluster, ip)
        time.sleep(BACK_S)
    note(met, "holder: power off, while the API server fails to write")
    one_answers(told, "holder: power off, while the API server fails to write")
    print(f"{first} → {second}; longest gap {met['longest_gap_ms']} ms, failed {met['failed']}")
    assert met["longest_gap_ms"] < LONGEST_S * 1000


@pytest.mark.parametrize("client", SPLITS)
def test_nodes_that_do_not_hear_each_other_do_not_fight(
    cluster: Cluster, namespace: str, pair: tuple[str, str], client: str
) -> None:
    ip = pair[0]
    local(cluster, namespace, ip)
    served(cluster, ip)
    first = holder(cluster, ip)
    before = record(cluster, ip)
    others = [each for each in cluster.nodes if each != first]
    here, there, seconds = SPLITS[client]
    with answerers(cluster, ip) as told, cluster.hammer(CLIENT, ip, 80, "--timeout", "2") as met:
        with split(cluster, [first, *here], [*others, *there]):
            time.sleep(seconds)
        time.sleep(BACK_S)
    after = record(cluster, ip)
    taken = after.transitions - before.transitions
    change = f"nodes do not hear each other for {seconds} s; {client}"
    note(met, change)
    one_answers(told, change)
    print(f"{first} → {after.holder}, taken {taken} times; longest gap {met['longest_gap_ms']} ms, {met['failed']}")
    assert met["longest_gap_ms"] < LONGEST_S * 1000
    assert taken <= 3, "those that take it from each other wait ever longer"
    served(cluster, ip)


def test_without_the_api_server_all_keep_what_they_have_and_a_dead_holder_is_replaced(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip = pair[0]
    local(cluster, namespace, ip)
    served(cluster, ip)
    first = holder(cluster, ip)
    cluster.lab.stop("apiserver")
    try:
        with cluster.hammer(CLIENT, ip) as quiet:
            time.sleep(AWAY_S)
        with answerers(cluster, ip) as told:
            with unplugged(cluster, first):
                with cluster.hammer(CLIENT, ip, 80, "--timeout", "0.5") as met:
                    time.sleep(12)
                cluster.lab.start("apiserver")
                # A holder that were back before that would find its name in the Lease, and take the address back.
                eventually(lambda: record(cluster, ip).holder not in ("", first), "the Lease says who has taken it", 60)
            time.sleep(BACK_S)
    finally:
        cluster.lab.start("apiserver")
        # It may have ended meanwhile, and would wait before it starts again.
        cluster.lab.restart("controller-manager")
    note(quiet, f"the API server is away for {AWAY_S} s")
    change = "holder: link down, while the API server is away"
    note(met, change)
    one_answers(told, change)
    print(f"without a fault {quiet['failed']}; {first} unplugged: longest gap {met['longest_gap_ms']} ms")
    assert quiet["failed"] == {}
    assert met["longest_gap_ms"] < LONGEST_S * 1000
    served(cluster, ip)


def test_a_holder_whose_agent_alone_does_not_reach_the_api_server_is_superseded(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip = pair[0]
    local(cluster, namespace, ip)
    served(cluster, ip)
    first = holder(cluster, ip)
    change = "the holder's agent alone does not reach the API server"
    with answerers(cluster, ip) as told:
        with cluster.hammer(CLIENT, ip) as met, cut_off(cluster, first):
            began = time.monotonic()
            eventually(lambda: record(cluster, ip).holder not in ("", first), "another node takes the address", 90)
            took = time.monotonic() - began
            second = record(cluster, ip).holder
            time.sleep(2)
        time.sleep(BACK_S)
    note(met, change)
    one_answers(told, change)
    print(f"{first} → {second} after {took:.1f} s; gap {met['longest_gap_ms']} ms, failed {met['failed']}")
    assert took > 29, "others reach the API server for half a minute"
    assert cut(met) <= 2, "those of the two threads that are open at the hand-over"
    assert met["failed"] == {}
    assert record(cluster, ip).holder == second, "it does not go back"


def test_nobody_writes_while_nothing_happens(cluster: Cluster, namespace: str, pair: tuple[str, str]) -> None:
    ip = pair[0]
    cluster.serve("web", 2, namespace)
    announce(cluster, "web", namespace, ip)
    served(cluster, ip)
    version = record(cluster, ip).version
    time.sleep(5)
    assert record(cluster, ip).version == version
