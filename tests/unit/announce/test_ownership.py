"""Nodes that hold addresses together: who answers, how long nobody does, and how long two do, in simulated time."""

import sys
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from kube_nftlb.announce.ownership.address import Write
from kube_nftlb.announce.ownership.candidates import Demand, candidates
from kube_nftlb.announce.ownership.gate import Blocker, Reason
from kube_nftlb.announce.ownership.node import Address, Ownership
from kube_nftlb.announce.ownership.records import NOBODY, Record
from kube_nftlb.announce.wire import arp
from kube_nftlb.announce.wire.heard import Asked, Statement
from kube_nftlb.announce.wire.heard import Heard as HeardFrame
from kube_nftlb.announce.wire.messages import Heard, LinkChanged, Peer, Place, Probed, Ready, Silent, Yielded
from kube_nftlb.announce.wire.responder import Responder
from kube_nftlb.announce.wire.sending import LinkAddresses
from tests.unit.announce.cluster import STEP_S, Cluster

FOUR, SIX = "192.0.2.10", "2001:db8::a"
NOT_YET = Blocker(Reason.NOT_PROGRAMMED, "")
FAMILIES = pytest.mark.parametrize("ip", [FOUR, SIX], ids=["ipv4", "ipv6"])


def settled(nodes: int, *ips: str) -> Cluster:
    cluster = Cluster(nodes, list(ips))
    cluster.run(2.0)
    return cluster


@FAMILIES
def test_an_address_is_answered_for_by_one_node_soon_and_nothing_is_written_any_more(ip: str) -> None:
    cluster = settled(3, ip)
    first = next(at for at, who in cluster.answered[ip] if who)
    assert first <= 0.3, "probed, written and announced"
    assert cluster.doubles(ip, 0) == 0
    cluster.writes.clear()
    cluster.frames.clear()
    cluster.run(60)
    assert cluster.writes == []
    assert len(cluster.frames) <= 60 * 2 * 2, "two nodes ask the holder twice a second, and nobody announces"


def test_addresses_are_spread_and_stay_when_a_node_joins() -> None:
    ips = [f"192.0.2.{number}" for number in range(1, 31)]
    cluster = Cluster(3, ips)
    for name in ("n2", "n3"):
        cluster.nodes[name].agent_runs = True
    cluster.run(3.0)
    holders = {ip: cluster.holder(ip) for ip in ips}
    assert sorted(list(holders.values()).count(name) for name in cluster.nodes) == [10, 10, 10]
    cluster.demands = {ip: Demand(frozenset(cluster.nodes), frozenset({"n1"})) for ip in ips}
    cluster.run(5.0)
    assert {ip: cluster.holder(ip) for ip in ips} == holders, "a preference counts when a holder is sought"


def test_no_node_answers_that_has_not_programmed_the_farms() -> None:
    cluster = Cluster(2, [FOUR])
    cluster.nodes["n1"].blocked = cluster.nodes["n2"].blocked = {FOUR: NOT_YET}
    cluster.run(2.0)
    assert cluster.answerers(FOUR) == frozenset()
    cluster.nodes["n2"].blocked = {}
    cluster.run(1.0)
    assert cluster.holder(FOUR) == "n2", "the other one need not be the first choice"


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_node_that_dies_while_the_api_server_fails_to_write_is_replaced_by_the_wire_alone(nodes: int) -> None:
    """As when etcd has no space left, or a webhook does not answer: it is reached, and all Leases can be read."""
    cluster = settled(nodes, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    for node in cluster.nodes.values():
        node.writes = False
    cluster.kill(holder)
    cluster.run(20.0)
    second = cluster.holder(FOUR)
    assert second != holder
    assert cluster.gaps(FOUR, since) <= 8.0
    assert cluster.doubles(FOUR, since) == 0
    assert cluster.leases[FOUR].holder == holder
    assert cluster.nodes[second].again < cluster.now + 4, "it goes on trying to write"
    for node in cluster.nodes.values():
        node.writes = True
    cluster.run(4.0)
    assert (cluster.leases[FOUR].holder, cluster.holder(FOUR)) == (second, second)
    cluster.start(holder)
    cluster.run(4.0)
    assert cluster.holder(FOUR) == second
    assert cluster.doubles(FOUR, since) == 0


@pytest.mark.parametrize("moved", [False, True])
def test_a_node_that_comes_back_while_the_api_server_fails_to_write_does_not_answer_beside_another(
    *, moved: bool
) -> None:
    cluster = settled(2, FOUR)
    holder = cluster.holder(FOUR)
    if moved:
        # The other one has held it before: its link-layer address is known.
        cluster.kill(holder)
        cluster.run(5.0)
        cluster.start(holder)
        cluster.run(5.0)
        holder = cluster.holder(FOUR)
    for node in cluster.nodes.values():
        node.writes = False
    cluster.kill(holder)
    cluster.run(10.0)
    assert cluster.holder(FOUR) != holder
    since = cluster.now
    cluster.start(holder)
    cluster.run(10.0)
    assert len(cluster.answerers(FOUR)) == 1
    assert cluster.doubles(FOUR, since) <= 1.0


def test_a_write_that_fails_once_makes_nobody_take_an_address_alone() -> None:
    cluster = settled(2, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    second = "n1" if holder == "n2" else "n2"
    cluster.nodes[second].writes = False
    cluster.kill(holder)
    cluster.run(2.0)
    cluster.nodes[second].writes = True
    cluster.run(3.0)
    assert (cluster.leases[FOUR].holder, cluster.holder(FOUR)) == (second, second)
    assert cluster.gaps(FOUR, since) <= 3.5


@FAMILIES
def test_another_node_takes_over_when_the_holder_dies(ip: str) -> None:
    cluster = settled(3, ip)
    since, holder = cluster.now, cluster.holder(ip)
    cluster.kill(holder)
    cluster.run(5.0)
    assert cluster.holder(ip) != holder
    assert cluster.gaps(ip, since) <= 2.2
    assert cluster.doubles(ip, 0) == 0


def test_a_takeover_takes_two_seconds_whenever_in_a_round_the_holder_dies() -> None:
    gaps = []
    for number in range(20):
        cluster = settled(3, FOUR)
        cluster.run(number * 0.03)
        since = cluster.now
        cluster.kill(cluster.holder(FOUR))
        cluster.run(4.0)
        gaps.append(cluster.gaps(FOUR, since))
    assert sorted(gaps)[10] <= 1.9
    assert max(gaps) <= 2.2


def test_a_node_takes_over_even_if_those_that_come_first_cannot() -> None:
    cluster = settled(5, FOUR)
    client = arp.question(bytes.fromhex("0200000000c8"), bytes((192, 0, 2, 10)))
    holder = cluster.holder(FOUR)
    standbys = [name for name in candidates(cluster.demands, {FOUR: holder})[FOUR] if name != holder]
    for name in standbys[:2]:
        cluster.nodes[name].blocked = {FOUR: Blocker(Reason.NO_LINK, "")}
    since = cluster.now
    cluster.kill(holder)
    while cluster.now < since + 40:
        for node in cluster.nodes.values():
            node.inbox.append(client)
        cluster.run(0.5)
    assert cluster.holder(FOUR) in standbys[2:]
    assert cluster.gaps(FOUR, since) <= 35
    assert cluster.doubles(FOUR, since) == 0


def test_nodes_that_hold_addresses_watch_before_those_that_may_be_unable_to() -> None:
    ips = [f"192.0.2.{number}" for number in range(1, 31)]
    cluster = Cluster(8, ips)
    for name in ("n4", "n5", "n6", "n7", "n8"):
        cluster.nodes[name].agent_runs = cluster.nodes[name].responder_runs = False
    cluster.run(15.0)
    assert {cluster.holder(ip) for ip in ips} == {"n1", "n2", "n3"}
    since = cluster.now
    cluster.kill("n1")
    cluster.run(6.0)
    assert {cluster.holder(ip) for ip in ips} == {"n2", "n3"}
    assert max(cluster.gaps(ip, since) for ip in ips) <= 3.0


def test_a_node_that_is_cut_off_from_the_segment_takes_nothing_if_two_others_watch() -> None:
    cluster = settled(5, FOUR)
    holder = cluster.holder(FOUR)
    last = [name for name in candidates(cluster.demands, {FOUR: holder})[FOUR] if name != holder][-1]
    cluster.nodes[last].side = 1
    cluster.writes.clear()
    cluster.run(120)
    assert cluster.writes == []


def test_many_nodes_ask_a_holder_little() -> None:
    cluster = settled(12, FOUR)
    cluster.frames.clear()
    cluster.run(60)
    # Two ask all the time, the others now and then.
    assert 60 * 2 * 2 < len(cluster.frames) <= 60 * 2 * 2 + 9 * 2 * 7


def test_all_addresses_of_a_node_that_dies_are_taken_within_three_seconds() -> None:
    ips = [f"192.0.2.{number}" for number in range(1, 101)]
    cluster = Cluster(2, ips)
    cluster.run(8.0)
    since = cluster.now
    cluster.kill("n1")
    cluster.run(6.0)
    assert {cluster.holder(ip) for ip in ips} == {"n2"}
    assert max(cluster.gaps(ip, since) for ip in ips) <= 3.0


def test_a_hung_agent_loses_its_addresses_within_five_seconds_and_two_answer_never() -> None:
    cluster = settled(2, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.nodes[holder].agent_runs = False
    cluster.run(10.0)
    assert cluster.holder(FOUR) != holder
    assert cluster.gaps(FOUR, since) <= 2.2, "it answers for five seconds, then it takes two"
    cluster.nodes[holder].agent_runs = True
    cluster.run(10.0)
    assert cluster.holder(FOUR) != holder
    assert cluster.doubles(FOUR, 0) == 0


def test_an_agent_that_restarts_keeps_its_addresses() -> None:
    cluster = settled(2, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.writes.clear()
    node = cluster.nodes[holder]
    node.agent_runs = False
    cluster.run(3.0)
    node.ownership = type(node.ownership)(holder)
    node.responder.events = node.responder.standing(cluster.now)
    node.agent_runs = True
    cluster.set_api(holder, reachable=True)
    # It begins once it has the Leases.
    for _, ip, record in node.due:
        node.ownership.record(ip, record, cluster.now)
    cluster.run(10.0)
    assert cluster.holder(FOUR) == holder
    assert cluster.gaps(FOUR, since) == 0
    assert cluster.writes == []


@pytest.mark.parametrize("stopped_s", [0.5, 3.0, 8.0])
def test_a_responder_that_stood_still_answers_beside_nobody(stopped_s: float) -> None:
    cluster = settled(3, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.nodes[holder].responder_runs = False
    cluster.run(stopped_s)
    cluster.nodes[holder].responder_runs = True
    cluster.run(10.0)
    assert len(cluster.answerers(FOUR)) == 1
    assert cluster.gaps(FOUR, since) <= max(2.2, 0.0)
    assert cluster.doubles(FOUR, since) <= 2 * STEP_S


def test_a_drain_moves_addresses_without_a_gap() -> None:
    cluster = settled(3, FOUR, SIX)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.nodes[holder].ownership.leaving = True
    cluster.run(3.0)
    assert cluster.holder(FOUR) != holder
    assert cluster.gaps(FOUR, since) == 0
    assert cluster.doubles(FOUR, since) <= 0.1
    assert [each.write for _, _, each in cluster.writes if each.ip == FOUR] == [Write.CLAIM, Write.LEAVE, Write.CLAIM]


def test_the_last_node_that_may_have_an_address_keeps_it_though_it_drains() -> None:
    cluster = settled(1, FOUR)
    cluster.nodes["n1"].ownership.leaving = True
    cluster.run(5.0)
    assert cluster.holder(FOUR) == "n1"


def test_endpoints_move_make_before_break() -> None:
    cluster = settled(3, FOUR)
    holder = cluster.holder(FOUR)
    target = next(name for name in cluster.nodes if name != holder)
    for name, node in cluster.nodes.items():
        node.blocked = {FOUR: NOT_YET} if name == target else {FOUR: Blocker(Reason.NO_ENDPOINT, "")}
    since = cluster.now
    cluster.demands = {FOUR: Demand(frozenset({target}))}
    cluster.run(1.0)
    assert cluster.holder(FOUR) == holder, "the new node has not programmed the farms"
    cluster.nodes[target].blocked = {}
    cluster.run(1.0)
    assert cluster.holder(FOUR) == target
    assert cluster.gaps(FOUR, since) == 0
    assert cluster.doubles(FOUR, since) <= 0.1


def test_while_nobody_reaches_the_api_server_all_keep_what_they_have() -> None:
    cluster = settled(3, FOUR, SIX)
    since, holders = cluster.now, {cluster.holder(FOUR), cluster.holder(SIX)}
    cluster.set_api("n1", "n2", "n3", reachable=False)
    cluster.run(120.0)
    cluster.set_api("n1", "n2", "n3", reachable=True)
    cluster.run(5.0)
    assert {cluster.holder(FOUR), cluster.holder(SIX)} == holders
    assert max(cluster.gaps(FOUR, since), cluster.gaps(SIX, since)) == 0
    assert max(cluster.doubles(FOUR, 0), cluster.doubles(SIX, 0)) == 0


def test_a_node_that_dies_while_nobody_reaches_the_api_server_is_replaced_by_the_wire_alone() -> None:
    cluster = settled(3, FOUR)
    cluster.set_api("n1", "n2", "n3", reachable=False)
    cluster.run(3.0)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.kill(holder)
    cluster.run(20.0)
    taker = cluster.holder(FOUR)
    assert 6.0 <= cluster.gaps(FOUR, since) <= 8.0
    cluster.writes.clear()
    cluster.set_api(*(cluster.nodes.keys() - {holder}), reachable=True)
    cluster.run(5.0)
    assert cluster.holder(FOUR) == taker
    assert [(node, each.write) for _, node, each in cluster.writes] == [(taker, Write.CLAIM)]
    assert cluster.doubles(FOUR, since) == 0


def test_a_segment_that_was_split_has_one_holder_a_second_after_it_is_whole() -> None:
    cluster = settled(3, FOUR)
    holder = cluster.holder(FOUR)
    cluster.nodes[holder].side = 1
    cluster.set_api(holder, reachable=False)
    cluster.run(20.0)
    assert len(cluster.answerers(FOUR)) == 2, "each side has one"
    cluster.nodes[holder].side = 0
    since = cluster.now
    cluster.run(20.0)
    assert cluster.holder(FOUR) != holder
    assert cluster.doubles(FOUR, since) <= 1.0
    assert cluster.gaps(FOUR, since) == 0


def test_a_holder_that_lost_only_its_segment_stops_and_does_not_take_the_address_back_at_once() -> None:
    cluster = settled(3, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.nodes[holder].side = 1
    cluster.run(3.0)
    taker = cluster.holder(FOUR)
    assert taker != holder
    cluster.run(8.0)
    assert cluster.holder(FOUR) == taker, "it reaches the API server, but hears nobody"
    assert cluster.doubles(FOUR, since) <= 0.1


def test_two_sides_that_do_not_hear_each_other_do_not_take_an_address_back_and_forth() -> None:
    cluster = settled(2, FOUR)
    cluster.nodes["n1"].side = 1
    cluster.writes.clear()
    client = arp.question(bytes.fromhex("0200000000c8"), bytes((192, 0, 2, 99)))
    for _ in range(200):
        for node in cluster.nodes.values():
            # Neither is alone: both hear clients.
            node.inbox.append(client)
        cluster.run(0.3)
    taken = [at for at, _, writing in cluster.writes if writing.write is Write.CLAIM]
    assert 1 <= len(taken) <= 4, "within a minute"
    cluster.nodes["n1"].side = 0
    cluster.run(60.0)
    assert len(cluster.answerers(FOUR)) == 1


@pytest.mark.parametrize("nodes", [3, 6])
@FAMILIES
def test_a_holder_that_alone_cannot_reach_the_api_server_is_superseded_after_half_a_minute(ip: str, nodes: int) -> None:
    cluster = settled(nodes, ip)
    since, holder = cluster.now, cluster.holder(ip)
    cluster.set_api(holder, reachable=False)
    cluster.run(30.0)
    assert cluster.holder(ip) == holder
    cluster.run(5.0)
    taker = cluster.holder(ip)
    assert taker != holder
    assert cluster.gaps(ip, since) == 0
    assert cluster.doubles(ip, since) <= 0.1
    cluster.run(30.0)
    cluster.set_api(holder, reachable=True)
    cluster.run(20.0)
    assert cluster.holder(ip) == taker, "the one that was cut off does not take it back"


def test_an_agent_that_restarts_learns_that_the_holder_cannot_reach_the_api_server() -> None:
    cluster = settled(2, FOUR)
    holder = cluster.holder(FOUR)
    other = cluster.nodes[next(name for name in cluster.nodes if name != holder)]
    other.blocked = {FOUR: NOT_YET}
    cluster.set_api(holder, reachable=False)
    cluster.run(33.0)
    assert cluster.holder(FOUR) == holder, "the other one does not serve the address"
    other.ownership, other.told, other.blocked = Ownership(other.name), None, {}
    other.responder.events = other.responder.standing(cluster.now)
    cluster.set_api(other.name, reachable=True)
    cluster.run(3.0)
    assert cluster.holder(FOUR) == other.name


def test_a_holder_whose_only_successor_cannot_serve_the_address_keeps_it_without_the_api_server() -> None:
    cluster = settled(2, FOUR)
    holder = cluster.holder(FOUR)
    other = next(name for name in cluster.nodes if name != holder)
    cluster.nodes[other].blocked = {FOUR: NOT_YET}
    cluster.set_api(holder, reachable=False)
    cluster.run(60.0)
    assert cluster.holder(FOUR) == holder


@pytest.mark.parametrize("first", ["n1", "n2", "n3"])
def test_when_the_api_server_is_back_for_one_node_before_the_others_all_keep_what_they_have(first: str) -> None:
    cluster = settled(3, FOUR, SIX)
    holders = {cluster.holder(FOUR), cluster.holder(SIX)}
    cluster.writes.clear()
    cluster.set_api("n1", "n2", "n3", reachable=False)
    cluster.run(120.0)
    cluster.set_api(first, reachable=True)
    cluster.run(5.0)
    cluster.set_api(*(cluster.nodes.keys() - {first}), reachable=True)
    cluster.run(60.0)
    assert {cluster.holder(FOUR), cluster.holder(SIX)} == holders
    assert cluster.writes == []


def test_a_holder_cut_off_from_the_api_server_is_superseded() -> None:
    cluster = settled(3, FOUR)
    since, holder = cluster.now, cluster.holder(FOUR)
    cluster.set_api(holder, reachable=False)
    cluster.run(31.0)
    assert cluster.holder(FOUR) == holder
    cluster.demands = {FOUR: Demand(frozenset(cluster.nodes) - {holder})}
    cluster.run(5.0)
    assert cluster.holder(FOUR) != holder
    assert cluster.gaps(FOUR, since) == 0
    assert cluster.doubles(FOUR, since) <= 1.0


@pytest.mark.parametrize("before", [True, False])
def test_an_address_that_a_foreign_host_has_is_not_announced_until_it_is_free(before: bool) -> None:
    cluster = Cluster(2, [FOUR])
    stranger = bytes.fromhex("0200000000ee")
    if not before:
        cluster.run(2.0)
    ip = bytes((192, 0, 2, 10))
    end = cluster.now + 15.0
    while cluster.now < end:
        for node in cluster.nodes.values():
            node.inbox.append(arp.announcement(stranger, ip, reply=True))
        cluster.run(0.05)
    assert cluster.answerers(FOUR) == frozenset()
    acts = [node.ownership.acts[FOUR] for node in cluster.nodes.values()]
    assert "02:00:00:00:00:ee" in {act.used_by for act in acts}
    cluster.run(25.0)
    assert len(cluster.answerers(FOUR)) == 1, "it is free again"


def test_an_address_whose_service_is_gone_is_no_longer_answered_for_and_its_lease_goes() -> None:
    cluster = settled(2, FOUR)
    cluster.demands = {}
    cluster.run(2.0)
    assert cluster.answerers(FOUR) == frozenset()
    assert not cluster.leases[FOUR].version


def test_the_lease_of_an_address_goes_whose_service_is_deleted_while_its_holder_is_gone() -> None:
    cluster = settled(4, FOUR)
    holder = cluster.holder(FOUR)
    others = cluster.nodes.keys() - {holder}
    cluster.demands = {}
    cluster.kill(holder)
    cluster.writes.clear()
    cluster.run(150.0)
    assert cluster.writes == [], "it may come back, and give the address up itself"
    cluster.working.remove(holder)
    cluster.run(60.0)
    assert cluster.writes == []
    cluster.run(65.0)
    assert not cluster.leases[FOUR].version
    assert [each.write for _, _, each in cluster.writes] == [Write.CLAIM, Write.GIVE_UP]
    assert {node for _, node, _ in cluster.writes} <= others
    assert cluster.answerers(FOUR) == frozenset()


def with_leases(number: int, working: tuple[str, ...] = ("n1", "n2")) -> Ownership:
    """A node with an address of its own, where ``n2`` has as many Leases of addresses without farms."""
    node = Ownership("n1")
    node.facts({FOUR: Address("eth0", "02:00:00:00:00:01", ("n1", "n2"))}, working)
    node.event(Ready(holds=True), 0.0)
    node.record(FOUR, Record("1", "n1", "02:00:00:00:00:01"), 0.0)
    for each in range(number):
        node.record(f"198.18.{each // 256}.{each % 256}", Record("2", "n2", f"02:00:00:00:00:{each % 256:02x}"), 0.0)
    return node


def calls(run: Callable[[], object]) -> int:
    """The number of functions that are called."""
    found: list[str] = []
    sys.setprofile(lambda _, event, __: found.append(event))
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(found)


def test_leases_of_addresses_without_farms_cost_a_node_nothing_while_their_holder_works() -> None:
    few, many = with_leases(1), with_leases(1000)
    assert calls(lambda: few.decide(1.0)) == calls(lambda: many.decide(1.0))
    assert (list(many.acts), many.held([FOUR]), many.held_after("")) == ([FOUR], {FOUR: "n1"}, FOUR)


def test_the_leases_that_a_node_leaves_behind_go_some_at_a_time() -> None:
    node, now, most = with_leases(100, working=("n1",)), 0.0, 0
    node.decide(now)
    while now < 600:
        now += 10.0
        writes = node.decide(now).writes
        most = max(most, len(writes))
        for each in writes:
            node.record(each.ip, Record("3", "n1") if each.write is Write.CLAIM else NOBODY, now)
    assert most == 64
    assert node.held_after("") == FOUR
    assert not any(node.held([f"198.18.0.{each}"]) for each in range(100))


def test_a_node_has_as_many_link_addresses_as_its_last_leases_say() -> None:
    node = with_leases(100)
    node.record(FOUR, Record("3", "n1", "02:00:00:00:00:01"), 9.0)
    for mac, answers in (("02:00:00:00:00:00", False), ("02:00:00:00:00:63", True)):
        node.event(Yielded(FOUR, "eth0", mac), 1.0)
        assert node.decide(9.0).state.answer == ()
        assert node.decide(9.0).state.answer == (() if not answers else (Place(FOUR, "eth0"),))


def contradicted(addresses: int, per_s: int, seconds: float) -> list[tuple[float, str]]:
    """The reads of a node that holds addresses, while frames say as often that another node has them."""
    node, other, mine = Ownership("n1"), "02:00:00:00:00:02", "02:00:00:00:00:01"
    ips = [f"192.0.2.{each}" for each in range(addresses)]
    node.facts({ip: Address("eth0", mine, ("n1", "n2")) for ip in ips}, ("n1", "n2"))
    node.event(Ready(holds=True), 0.0)
    records = {ip: Record(str(number), "n1", mine) for number, ip in enumerate(ips, 1)}
    for ip, record in (*records.items(), ("198.51.100.1", Record("999", "n2", other))):
        node.record(ip, record, 0.0)
    reads: list[tuple[float, str]] = []
    for number in range(round(per_s * seconds)):
        now = 1.0 + number / per_s
        node.event(Yielded(ips[number % addresses], "eth0", other), now)
        for ip in node.decide(now).reads:
            reads.append((now, ip))
            node.record(ip, records[ip], now)
    return reads


def test_a_lease_that_is_contradicted_again_and_again_is_read_at_once_and_then_ever_less_often() -> None:
    times = [at for at, _ in contradicted(1, 100, 60.0)]
    assert times[0] == 1.0
    assert [round(later - at, 1) for at, later in pairwise(times)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0]


def test_a_lease_that_cannot_be_read_is_tried_at_least_every_two_seconds() -> None:
    node, times = with_leases(1), list[float]()
    for number in range(300):
        now = 1.0 + number / 10
        node.event(Yielded(FOUR, "eth0", "02:00:00:00:00:02"), now)
        for ip in node.decide(now).reads:
            times.append(now)
            node.failed(ip, refused=True)
    assert [round(later - at, 1) for at, later in pairwise(times)] == [0.5, 1.0, *[2.0] * 14]


def test_a_lease_is_read_within_two_seconds_once_the_api_server_is_back_however_often_it_was_read_before() -> None:
    node = with_leases(1)
    other = "02:00:00:00:00:02"
    for number in range(300):
        now = 1.0 + number / 10
        node.event(Yielded(FOUR, "eth0", other), now)
        for ip in node.decide(now).reads:
            read_at = now
            node.record(ip, Record("1", "n1", "02:00:00:00:00:01"), now)
    node.api(away=True, now=read_at + 0.1)
    node.api(away=False, now=read_at + 1.5)
    node.event(Yielded(FOUR, "eth0", other), read_at + 1.5)
    assert node.decide(read_at + 1.9).reads == ()
    assert node.decide(read_at + 2.0).reads == (FOUR,)


def test_leases_that_are_contradicted_seldom_are_read_at_once() -> None:
    assert [at for at, _ in contradicted(1, 1, 1.0)] == [1.0]
    node = with_leases(1)
    for now in (10.0, 40.0, 70.0):
        node.event(Yielded(FOUR, "eth0", "02:00:00:00:00:02"), now)
        assert node.decide(now).reads == (FOUR,)
        node.record(FOUR, Record("1", "n1", "02:00:00:00:00:01"), now)


def test_a_node_reads_200_leases_a_second_at_most_and_none_of_them_is_forgotten() -> None:
    reads = contradicted(250, 1000, 3.0)
    for second in range(1, 4):
        assert len([at for at, _ in reads if second <= at < second + 1]) <= 200
    assert len({ip for at, ip in reads if at < 3.0}) == 250


def test_a_holder_that_may_not_go_on_leaves_no_lease_behind() -> None:
    cluster = settled(1, FOUR)
    cluster.nodes["n1"].kept_from = {FOUR: Blocker(Reason.NO_LINK, "")}
    cluster.run(2.0)
    assert cluster.answerers(FOUR) == frozenset()
    assert not cluster.leases[FOUR].version


@pytest.mark.parametrize("seed", range(6))
def test_after_any_faults_one_node_answers(seed: int) -> None:
    import random

    chance = random.Random(seed)  # noqa: S311 - choices of a test
    cluster = settled(3, FOUR, SIX)
    for _ in range(12):
        name = chance.choice(sorted(cluster.nodes))
        node = cluster.nodes[name]
        fault = chance.choice(["kill", "api", "split", "agent", "responder", "leave"])
        if fault == "kill":
            cluster.kill(name)
        elif fault == "api":
            cluster.set_api(name, reachable=False)
        elif fault == "split":
            node.side = 1
        elif fault == "agent":
            node.agent_runs = False
        elif fault == "responder":
            node.responder_runs = False
        else:
            node.ownership.leaving = True
        cluster.run(chance.uniform(0.1, 12.0))
        if chance.random() < 0.7:
            _mend(cluster)
            cluster.run(chance.uniform(0.1, 5.0))
    _mend(cluster)
    cluster.run(30.0)
    assert len(cluster.answerers(FOUR)) == len(cluster.answerers(SIX)) == 1


def _mend(cluster: Cluster) -> None:
    for name, node in cluster.nodes.items():
        if not node.agent_runs and not node.responder_runs:
            cluster.start(name)
        node.agent_runs = node.responder_runs = True
        node.side, node.ownership.leaving = 0, False
        if not node.api:
            cluster.set_api(name, reachable=True)


def test_a_node_whose_responder_does_not_run_takes_nothing() -> None:
    cluster = settled(3, FOUR)
    holder = cluster.holder(FOUR)
    first = next(name for name in cluster.nodes if name != holder)
    cluster.nodes[first].ownership.has_responder = False
    cluster.nodes[holder].ownership.leaving = True
    cluster.run(2.0)
    assert cluster.holder(FOUR) not in (first, holder)
    why_not = cluster.nodes[first].ownership.acts[FOUR].why_not
    assert why_not is not None
    assert why_not.reason is Reason.NO_RESPONDER


def holding(*candidates: str) -> Ownership:
    """The node ``n1``, which holds an address."""
    node = Ownership("n1")
    node.facts({FOUR: Address("eth0", "02:00:00:00:00:01", candidates)}, candidates)
    node.record(FOUR, Record("1", "n1", "02:00:00:00:00:01"), 0.0)
    return node


def test_a_holder_whose_responder_has_been_away_for_five_seconds_says_so_and_keeps_its_lease() -> None:
    node = holding("n1")
    node.event(Ready(holds=True), 0.0)
    assert node.decide(0.0).state.answer
    node.has_responder = False
    assert node.decide(10.0).again == 15.0
    assert node.acts[FOUR].answer, "it answers by what it was told last"
    for now in (15.0, 4000.0):
        outcome = node.decide(now)
        assert (outcome.state.answer, outcome.writes) == ((), ())
        assert node.acts[FOUR].why_not == Blocker(Reason.NO_RESPONDER, "the responder of this node does not run")
    node.event(Ready(holds=False), 4001.0)
    assert node.decide(4001.0).state.probe
    node.event(Probed(FOUR, "eth0"), 4002.0)
    assert node.decide(4002.0).state.answer
    assert node.acts[FOUR].why_not is None


def test_an_agent_that_finds_no_responder_says_so_after_five_seconds() -> None:
    node = holding("n1")
    assert node.decide(100.0).again == 105.0
    assert node.acts[FOUR].why_not is None
    node.decide(105.0)
    why_not = node.acts[FOUR].why_not
    assert why_not is not None
    assert why_not.reason is Reason.NO_RESPONDER


def test_a_node_whose_responder_cannot_use_a_link_says_why_and_takes_nothing_there() -> None:
    node, other = holding("n1", "n2"), "02:00:00:00:00:02"
    node.facts({ip: Address("eth0", "02:00:00:00:00:01", ("n1", "n2")) for ip in (FOUR, SIX)}, ("n1", "n2"))
    node.record(SIX, Record("2", "n2", other), 0.0)
    node.event(Ready(holds=True), 0.0)
    node.event(Silent(SIX, "eth0", other), 0.0)
    node.event(LinkChanged("eth0", error="Operation not permitted"), 0.0)
    node.event(Yielded(FOUR, "eth0", ""), 0.0)
    outcome = node.decide(100.0)
    assert (outcome.state.answer, outcome.writes) == ((), ())
    assert outcome.state.probe + outcome.state.watch, "the responder is to try it again"
    said = Blocker(Reason.NO_RESPONDER, "the responder of this node cannot use eth0: Operation not permitted")
    assert [node.acts[ip].why_not for ip in (FOUR, SIX)] == [said, said]
    node.event(LinkChanged("eth0", mac="02:00:00:00:00:01"), 101.0)
    assert [each.ip for each in node.decide(101.0).writes] == [SIX], "it is silent"
    assert [node.acts[ip].why_not for ip in (FOUR, SIX)] == [None, None]
    node.event(LinkChanged("eth0", error="Operation not permitted"), 102.0)
    node.event(Ready(holds=True), 103.0)
    node.decide(103.0)
    assert node.acts[FOUR].why_not is None, "the responder tells it again"


def test_that_the_former_holder_is_silent_is_no_reason_to_take_an_address_from_the_new_one() -> None:
    node, former, new = Ownership("n3"), "02:00:00:00:00:01", "02:00:00:00:00:02"
    node.facts({FOUR: Address("eth0", "02:00:00:00:00:03", ("n1", "n2", "n3"))}, ())
    node.event(Ready(holds=False), 0.0)
    node.record(FOUR, Record("1", "n1", former), 0.0)
    node.decide(0.0)
    node.record(FOUR, Record("2", "n2", new), 1.0)
    node.event(Silent(FOUR, "eth0", former), 1.01)
    assert node.decide(9.0).writes == ()
    node.event(Silent(FOUR, "eth0", new), 9.0)
    assert [each.write for each in node.decide(9.5).writes] == [Write.CLAIM]


@pytest.mark.parametrize("mac", ["33:33:00:00:00:01", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "x", ""])
def test_nothing_that_is_said_of_one_address_has_the_responder_refuse_the_others(mac: str) -> None:
    node, mine, responder = Ownership("n2"), "02:00:00:00:00:02", Responder()
    candidates = ("n1", "n2")
    node.facts({FOUR: Address("eth0", mine, candidates), SIX: Address("eth0", mine, candidates)}, candidates)
    node.record(FOUR, Record("1", "n2", mine), 0.0)
    node.record(SIX, Record("2", "n1", "02:00:00:00:00:01"), 0.0)
    node.event(Ready(holds=True), 0.0)
    for event in (Heard(SIX, "eth0", mac), Silent(SIX, "eth0", mac), Probed(SIX, "eth0", mac)):
        node.event(event, 1.0)
        responder.order(msgspec.structs.replace(node.decide(1.0).state, deadline=5.0), 1.0)
        assert responder.holds
    assert node.decide(2.0).state.watch == (Peer(SIX, "eth0", "02:00:00:00:00:01"),)


@pytest.mark.parametrize("lapses", [False, True], ids=["another is heard", "the deadline passes"])
@pytest.mark.parametrize("alone", [False, True], ids=["it held the address", "it answered without the API server"])
def test_a_node_that_learns_of_its_own_lease_right_after_it_has_yielded_answers_again(
    alone: bool, lapses: bool
) -> None:
    node, mine, other, responder = Ownership("n1"), "02:00:00:00:00:01", "02:00:00:00:00:02", Responder()
    own = LinkAddresses(bytes.fromhex("020000000001"))
    packed, client = bytes((192, 0, 2, 10)), bytes.fromhex("0200000000c8")
    asked = HeardFrame(Asked(packed, client, bytes((192, 0, 2, 99))), None)
    told = HeardFrame(None, Statement(packed, bytes.fromhex("020000000002"), to_all=True))

    def tell(now: float) -> float | None:
        outcome = node.decide(now)
        responder.order(msgspec.structs.replace(outcome.state, deadline=now + 5.0), now)
        responder.link("eth0", own, now)
        return outcome.again

    node.facts({FOUR: Address("eth0", mine, ("n1", "n2"))}, ("n1", "n2"))
    node.record(FOUR, Record("1", "n2", other), 0.0)
    node.event(Ready(holds=False), 0.0)
    if alone:
        node.api(away=True, now=0.0)
        node.event(Silent(FOUR, "eth0", other), 0.0)
        assert node.decide(5.0).state.answer
        node.api(away=False, now=5.0)
        assert node.decide(5.0).writes
    else:
        node.record(FOUR, Record("2", "n1", mine), 1.0)
        node.event(Probed(FOUR, "eth0"), 1.0)
    tell(5.0)
    assert responder.frame("eth0", asked, 5.0)
    responder.events.clear()
    now = 11.0 if lapses else 6.0
    if lapses:
        responder.due(now)
    else:
        responder.frame("eth0", told, now)
    assert not responder.frame("eth0", asked, now), "it yields"
    for event in responder.events:
        node.event(event, now)
    # Before the next decision the watch tells of the claim, or the API server answers it.
    now += 0.001
    node.record(FOUR, Record("2", "n1", mine), now)
    while (again := tell(now)) is not None and again <= now:
        pass
    if lapses and not alone:
        node.event(Probed(FOUR, "eth0"), now)
        tell(now)
    assert responder.frame("eth0", asked, now)


def test_a_write_that_fails_for_an_address_that_is_gone_is_forgotten() -> None:
    ownership = Ownership("n1")
    ownership.failed(FOUR)
    assert ownership.held([FOUR]) == {}


def test_an_address_that_was_gone_is_not_answered_for_without_the_api_server_any_more() -> None:
    node, mac = Ownership("n2"), "02:00:00:00:00:01"
    facts = {FOUR: Address("eth0", "02:00:00:00:00:02", ("n1", "n2"))}
    node.facts(facts, ())
    node.event(Ready(holds=False), 0.0)
    node.record(FOUR, Record("1", "n1", mac), 0.0)
    node.api(away=True, now=0.0)
    node.event(Silent(FOUR, "eth0", mac), 1.0)
    assert node.decide(9.0).state.answer
    node.facts({}, ())
    assert not node.decide(10.0).state.answer
    node.facts(facts, ())
    assert not node.decide(11.0).state.answer


@FAMILIES
@pytest.mark.parametrize("api", [True, False], ids=["it writes that", "it cannot write that yet"])
def test_a_holder_whose_link_address_changes_keeps_its_addresses_when_others_begin_to_watch(ip: str, api: bool) -> None:
    cluster = settled(3, ip)
    holder = cluster.holder(ip)
    cluster.writes.clear()
    cluster.nodes[holder].mac, cluster.nodes[holder].ordered = bytes.fromhex("0200000000aa"), True
    cluster.set_api(holder, reachable=api)
    cluster.run(2.0)
    for name in cluster.nodes.keys() - {holder}:
        cluster.start(name)
    cluster.run(10.0)
    assert cluster.holder(ip) == holder
    assert [(name, writing.mac) for _, name, writing in cluster.writes] == [(holder, "02:00:00:00:00:aa")] * api
    cluster.kill(holder)
    cluster.run(4.0)
    assert cluster.holder(ip) != holder, "it is watched by the new one"


@pytest.mark.parametrize("number", [110, pytest.param(200, marks=pytest.mark.long)])
def test_a_node_that_announces_much_takes_nothing_of_others_unless_they_die(number: int) -> None:
    cluster = Cluster(3, [f"192.0.{each // 200}.{each % 200}" for each in range(3 * number)])
    cluster.answered.clear()
    cluster.run(1.0 + 3 * number / 180)
    assert all(not writing.before.holder for _, _, writing in cluster.writes), "while all probe and announce"
    cluster.run(2 * number / 180)
    held = {ip for ip, record in cluster.leases.items() if record.holder == "n2"}
    cluster.start("n1")
    cluster.run(1.0)
    since = cluster.now
    cluster.kill("n2")
    cluster.run(2.5)
    taken = {writing.ip: writing.before.holder for _, _, writing in cluster.writes if writing.before.holder}
    assert {ip for ip, holder in taken.items() if holder == "n2"} == held, "they are taken in time"
    assert "n3" not in taken.values()
    assert all(at > since for at, _, writing in cluster.writes if writing.before.holder == "n2")
