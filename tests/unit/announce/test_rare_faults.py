"""Faults that come together, in simulated time: what holders and those that stand by do about an address."""

import pytest

from kube_nftlb.announce.ownership.candidates import Demand
from kube_nftlb.announce.ownership.gate import Blocker, Reason
from tests.unit.announce.cluster import Cluster

IP = "192.0.2.10"
NOT_YET = Blocker(Reason.NOT_PROGRAMMED, "the farm default/web--http is not programmed")


def settled(nodes: int, *ips: str) -> Cluster:
    cluster = Cluster(nodes, list(ips or [IP]))
    cluster.run(5.0)
    return cluster


@pytest.mark.parametrize("period_s", [0.5, 1.0, 1.4])
def test_farms_that_change_all_the_time_keep_nobody_from_taking_the_address_of_a_dead_node(period_s: float) -> None:
    """As where one of many tenants of a Gateway edits his route again and again."""
    cluster = settled(3)
    since, holder = cluster.now, cluster.holder(IP)
    cluster.kill(holder)
    while cluster.now < since + 6:
        for blocked in ({IP: NOT_YET}, {}):
            for node in cluster.nodes.values():
                node.blocked = blocked
            cluster.run(0.1 if blocked else period_s - 0.1)
    assert cluster.holder(IP) != holder
    assert cluster.gaps(IP, since) <= 3.5


def test_a_silence_from_before_a_node_stopped_watching_is_not_believed_later() -> None:
    cluster = settled(3)
    cut_off = cluster.nodes[cluster.holder(IP)]
    cut_off.side = 1
    cluster.run(4.5)
    assert cluster.leases[IP].holder != cut_off.name
    cut_off.blocked = {IP: NOT_YET}
    cluster.run(0.1)
    cut_off.blocked, cut_off.side = {}, 0
    since = cluster.now
    cluster.run(30.0)
    assert [each for each in cluster.writes if each[0] > since] == []


@pytest.mark.parametrize("api", ["away", "fails to write"])
def test_a_drained_holder_that_dies_is_replaced_though_no_lease_can_be_written(api: str) -> None:
    cluster = settled(3)
    holder = cluster.holder(IP)
    if api == "away":
        cluster.set_api(*cluster.nodes, reachable=False)
    for node in cluster.nodes.values():
        node.writes = False
    cluster.demands[IP] = Demand(frozenset(cluster.nodes) - {holder})
    cluster.run(5.0)
    assert cluster.holder(IP) == holder, "it answers until another one does"
    since = cluster.now
    cluster.kill(holder)
    cluster.run(15.0)
    assert cluster.holder(IP) != holder
    assert cluster.gaps(IP, since) <= 8.0


def test_a_holder_whose_api_server_answers_with_errors_alone_is_superseded() -> None:
    """As one of three that has lost its etcd, or that does not know the node's token any more."""
    cluster = settled(3)
    holder = cluster.holder(IP)
    cluster.nodes[holder].ownership.unread(cluster.now)
    cluster.run(28.0)
    assert cluster.holder(IP) == holder
    cluster.run(20.0)
    assert cluster.leases[IP].holder != holder
    assert cluster.gaps(IP, 5.0) == 0


def test_after_errors_for_all_nobody_takes_what_others_still_serve() -> None:
    """As after a while without a leader of etcd: each node learns by its own next read that it is over."""
    ips = [f"192.0.2.{number}" for number in range(10, 16)]
    cluster = settled(3, *ips)
    before = {ip: cluster.holder(ip) for ip in ips}
    for node in cluster.nodes.values():
        node.ownership.unread(cluster.now)
    cluster.run(40.0)
    for node in cluster.nodes.values():
        node.ownership.record(ips[0], cluster.leases[ips[0]], cluster.now)
        cluster.run(5.0)
    cluster.run(20.0)
    assert {ip: cluster.leases[ip].holder for ip in ips} == before


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_node_that_was_cut_off_takes_nothing_from_holders_that_served_all_the_time(nodes: int) -> None:
    ips = [f"192.0.2.{number}" for number in range(10, 16)]
    cluster = settled(nodes, *ips)
    others = {ip: cluster.holder(ip) for ip in ips if cluster.holder(ip) != "n2"}
    cluster.set_api(*cluster.nodes, reachable=False)
    cluster.run(3.0)
    cluster.nodes["n2"].side = 1
    cluster.run(10.0)
    cluster.nodes["n2"].side = 0
    since = cluster.now
    cluster.run(10.0)
    assert {ip: cluster.holder(ip) for ip in others} == others
    assert max(cluster.doubles(ip, since) for ip in others) <= 1.0
    cluster.set_api(*cluster.nodes, reachable=True)
    cluster.run(10.0)
    assert {ip: cluster.leases[ip].holder for ip in others} == others


@pytest.mark.parametrize("first_s", [0.0, 0.3, 1.0])
def test_a_node_that_alone_was_cut_off_from_all_takes_nothing_as_it_comes_back(first_s: float) -> None:
    ips = [f"192.0.2.{number}" for number in range(10, 16)]
    cluster = settled(3, *ips)
    others = {ip: cluster.holder(ip) for ip in ips if cluster.holder(ip) != "n2"}
    cluster.nodes["n2"].side = 1
    cluster.set_api("n2", reachable=False)
    cluster.run(15.0)
    cluster.set_api("n2", reachable=True)
    cluster.run(first_s)
    cluster.nodes["n2"].side = 0
    cluster.run(20.0)
    assert {ip: cluster.holder(ip) for ip in others} == others
    assert {ip: cluster.leases[ip].holder for ip in others} == others
