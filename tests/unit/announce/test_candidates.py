"""Addresses are spread over the nodes, preferred ones first, and nothing moves because a node joins."""

from collections import Counter

from kube_nftlb.announce.ownership.candidates import Demand, candidates

IPS = [f"192.0.2.{number}" for number in range(1, 91)]
THREE, FOUR = frozenset({"a", "b", "c"}), frozenset({"a", "b", "c", "d"})


def test_new_addresses_are_spread_evenly() -> None:
    first = candidates(dict.fromkeys(IPS, Demand(THREE)), {})
    assert Counter(nodes[0] for nodes in first.values()) == {"a": 30, "b": 30, "c": 30}


def test_all_nodes_come_to_the_same_order() -> None:
    demands = dict.fromkeys(IPS, Demand(THREE))
    assert candidates(demands, {}) == candidates(dict(reversed(demands.items())), {})


def test_the_node_with_the_fewest_is_next() -> None:
    held = {IPS[0]: "a", IPS[1]: "a", IPS[2]: "b"}
    demands = dict.fromkeys(IPS[:4], Demand(THREE))
    assert candidates(demands, held)[IPS[3]][0] == "c"


def test_those_of_a_node_that_is_gone_are_spread_over_the_others() -> None:
    held = {ip: "abc"[number % 3] for number, ip in enumerate(IPS)}
    found = candidates(dict.fromkeys(IPS, Demand(frozenset({"b", "c", "d"}))), held)
    assert {found[ip][0] for ip in IPS if held[ip] == "a"} == {"d"}, "it has none yet"


def test_preferred_nodes_come_first_however_many_they_hold() -> None:
    held = dict.fromkeys(IPS[1:], "b")
    found = candidates({IPS[0]: Demand(FOUR, frozenset({"b"}))}, held)[IPS[0]]
    assert found[0] == "b"
    assert set(found) == FOUR


def test_an_address_that_no_node_may_have_has_no_candidates() -> None:
    assert candidates({IPS[0]: Demand(frozenset())}, {}) == {IPS[0]: ()}


def test_who_watches_a_holder_does_not_depend_on_how_much_others_hold() -> None:
    demands, held = dict.fromkeys(IPS[:2], Demand(FOUR)), {IPS[0]: "a", IPS[1]: "b"}
    assert candidates(demands, {**held, IPS[2]: "c"}) == candidates(demands, {**dict.fromkeys(IPS, "c"), **held})


def test_nodes_that_hold_an_address_watch_first_after_those_that_are_preferred() -> None:
    held = {IPS[0]: "a", IPS[1]: "b", IPS[2]: "d"}
    for ip in IPS[:3]:
        assert candidates({ip: Demand(FOUR)}, held)[ip][-1] == "c", "it may be unable to hold any"
        assert candidates({ip: Demand(FOUR, frozenset({"c"}))}, held)[ip][0] == "c"
