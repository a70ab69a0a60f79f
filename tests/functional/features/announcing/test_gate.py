"""A node answers for an address once it serves it: who connects at the first answer is neither refused nor lost."""

import threading
import time
from collections import Counter
from statistics import median
from typing import Any

import pytest

from lab.places import CLIENT
from tests.builders.manifests import deployment, endpoint_slice
from tests.functional.cluster import Cluster
from tests.functional.faults import suite
from tests.functional.segment import announce, arrivals, cut, holder, note, record, served

NEW, MOVES, RESTARTS = suite.by_form((20, 6, 3), (1000, 200, 20))
"""How often is tried."""
pytestmark = pytest.mark.timeout(suite.by_form(120, 2400))
THREADS = 8
_IPV4 = 50
_GRACE_S = 10


class Changes:
    """Ten endpoints a second that come and go, for a block."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = Cluster(cluster.lab)
        self._namespace = namespace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._change)
        self.number = 0

    def __enter__(self) -> "Changes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._cluster.close()

    def _change(self) -> None:
        while not self._over.wait(0.1):
            self.number += 1
            ready = self.number % 2 == 0
            address = f"10.244.1.{100 + self.number % 50}"
            name = f"changing-{self.number % 5}"
            self._cluster.apply(endpoint_slice(name, self._namespace, "changing", (address, ready)))


def test_new_addresses_are_served_from_the_first_answer_on(cluster: Cluster, namespace: str) -> None:
    cluster.serve("web", 3, namespace)
    ips = [f"172.31.0.{100 + n}" if n < min(_IPV4, NEW - 5) else f"fd00:31::1:{n:x}" for n in range(NEW)]
    created: dict[str, float] = {}
    announce(cluster, "changing", namespace)
    with arrivals(cluster) as (asked, met), Changes(cluster, namespace) as changes:
        for number, ip in enumerate(ips):
            asked.write(f"{ip}\n")
            asked.flush()
            created[ip] = time.monotonic()
            families = ["IPv6"] if ":" in ip else ["IPv4"]
            announce(cluster, f"web-{number}", namespace, ip, selector={"app": "web"}, ipFamilies=families)
            time.sleep(0.1)
    waited = sorted(each["connected_at"] - created[ip] for ip, each in met.items() if each["connected_at"])
    times = f"after {median(waited):.3f} s, at most {waited[-1]:.3f} s, n = {len(waited)}"
    print(f"{changes.number} changes of other endpoints; connected {times}")
    failures = Counter(each for one in met.values() for each in one["failures"])
    attempts = sum(each["connections"] for each in met.values())
    # No address moves: whatever fails is new.
    note({"attempts": attempts, "failed": failures, "failed_to_open": failures}, "new address", NEW)
    for seconds in waited:
        suite.record("announced", "served after", "ms", seconds * 1000, change="new address", times=NEW)
    assert {ip: each["failures"] for ip, each in met.items() if each["failures"]} == {}
    assert all(each["connections"] == 20 for each in met.values())
    assert max(each["slowest_s"] for each in met.values()) < 1, "no SYN was lost: it would be repeated after a second"


def test_an_address_moves_with_its_local_endpoints_and_nobody_is_refused(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip = pair[0]
    # Several moves a second: no pod ends while its node still has an earlier turn's connections.
    grace_s = _GRACE_S + MOVES
    cluster.apply(rolling("web", namespace, grace_s=grace_s))
    cluster.rolled_out("web", 1, namespace)
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local")
    served(cluster, ip)
    announce(cluster, "changing", namespace)
    holders = [record(cluster, ip).holder]
    with cluster.hammer(CLIENT, ip) as met, Changes(cluster, namespace) as changes:
        for number in range(MOVES):
            node = next(each for each in cluster.nodes if each != holders[-1])
            cluster.apply(rolling("web", namespace, node, number, grace_s=grace_s))
            holders.append(holder(cluster, ip, other_than=holders[-1]))
            cluster.rolled_out("web", 1, namespace)
    print(f"{met['attempts']} connections, {MOVES} moves, {changes.number} changes of other endpoints")
    print(f"failed {met['failed']}, to open {met['failed_to_open']}, longest gap {met['longest_gap_ms']} ms")
    note(met, "the only endpoint moves, while ten others a second change", MOVES)
    assert cut(met) <= 2 * MOVES, "those of the two threads that are open at a hand-over"
    assert met["failed"] == {}
    assert met["longest_gap_ms"] < 1000, "no SYN was lost: it would be repeated after a second"


def test_rolling_restarts_on_all_nodes_refuse_nobody(cluster: Cluster, namespace: str, pair: tuple[str, str]) -> None:
    ip = pair[0]
    cluster.apply(rolling("web", namespace, replicas=3))
    cluster.rolled_out("web", 3, namespace)
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local")
    served(cluster, ip)
    before = record(cluster, ip).transitions
    with cluster.hammer(CLIENT, ip, 80, "--threads", str(THREADS), "--timeout", "5") as met:
        for number in range(1, RESTARTS + 1):
            cluster.apply(rolling("web", namespace, number=number, replicas=3))
            cluster.rolled_out("web", 3, namespace)
    moves = record(cluster, ip).transitions - before
    print(f"{met['attempts']} connections, {RESTARTS} restarts, {moves} moves, longest gap {met['longest_gap_ms']} ms")
    note(met, "rolling restart on all nodes", RESTARTS)
    assert cut(met) <= THREADS * moves, "those that are open at a hand-over"
    assert met["failed"] == {}


def rolling(
    name: str,
    namespace: str,
    node: str | None = None,
    number: int = 0,
    replicas: int = 1,
    grace_s: int = _GRACE_S,
) -> dict[str, Any]:
    """A Deployment; the successor of a pod is ready before that ends, and it serves while it does."""
    made = deployment(name, replicas, namespace, grace_s=grace_s)
    made["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = {"number": str(number)}
    if node is not None:
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made
