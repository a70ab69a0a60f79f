"""A node dies that holds many addresses of both families: others answer for each of them."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kube_nftlb.announce.ownership import records
from lab.rights import NAMESPACE
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.features.announcing.test_failover import LONGEST_S, power_off
from tests.functional.segment import POOL, announce, arrivals, note

PAIRS = suite.by_form(50, 250)
pytestmark = [pytest.mark.long, pytest.mark.timeout(suite.by_form(180, 600))]


@pytest.fixture
def first(cluster: Cluster) -> Iterator[str]:
    """The node that gets all addresses of ``172.31.3.0/24`` and ``fd00:31::3:0/112``."""
    node = cluster.nodes[0]
    prefer = {"matchLabels": {"kubernetes.io/hostname": node}}
    spec = {"ranges": ["172.31.3.0/24", "fd00:31::3:0/112"], "announce": {"l2": {"prefer": prefer}}}
    cluster.apply({**POOL, "metadata": {"name": "many"}, "spec": spec})
    yield node
    cluster.delete("nftlbaddresspool", "many")


def holders(cluster: Cluster, ips: set[str]) -> Counter[str]:
    """The nodes that hold these addresses, and how many each."""
    leases = {each["metadata"]["name"]: each for each in cluster.get("lease", namespace=NAMESPACE)["items"]}
    found = (leases.get(records.name(ip)) for ip in ips)
    return Counter(records.parse(lease)[1].holder if lease is not None else "" for lease in found)


def gap_ms(met: dict[str, Any], began: float) -> float:
    """How long after ``began`` the last address was first connected to."""
    return float(max(each["connected_at"] for each in met.values()) - began) * 1000


def test_others_answer_for_all_addresses_of_a_node_that_dies(cluster: Cluster, namespace: str, first: str) -> None:
    for number, node in enumerate(cluster.nodes[1:], 1):
        cluster.serve("web", number, namespace, node)
    pairs = [(f"172.31.3.{number}", f"fd00:31::3:{number:x}") for number in range(1, PAIRS + 1)]
    ips = {ip for pair in pairs for ip in pair}
    for number, pair in enumerate(pairs):
        announce(cluster, f"web-{number}", namespace, *pair, selector={"app": "web"}, ipFamilyPolicy="RequireDualStack")
    eventually(lambda: "" not in holders(cluster, ips), "all are held")
    # An agent that has not seen the pool yet takes the first one for itself.
    ips = {ip for ip in ips if holders(cluster, {ip}) == {first: 1}}
    assert len(ips) > 2 * PAIRS - 10
    with power_off(cluster, first):
        began = time.monotonic()
        with arrivals(cluster) as (asked, met):
            asked.write("".join(f"{ip}\n" for ip in ips))
        after = holders(cluster, ips)
    assert {ip for ip, each in met.items() if each["connected_at"] is None} == set()
    took_ms = gap_ms(met, began)
    failures = Counter(each for one in met.values() for each in one["failures"])
    attempts = sum(each["connections"] for each in met.values())
    change = f"holder of {len(ips)} addresses: power off; the client asks who has them"
    note({"attempts": attempts, "failed": failures, "failed_to_open": failures, "longest_gap_ms": took_ms}, change)
    print(f"{len(ips)} addresses, the last connected to after {took_ms:.0f} ms; {attempts} connections; now {after}")
    assert failures == {}
    assert first not in after
    assert set(after) <= set(cluster.nodes)
    assert took_ms < LONGEST_S * 1000
