"""Farms become placements: which chain a listener leads to, and which number an endpoint has."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.agent.engine.nftables import elements, layout, scheduling
from kube_nftlb.agent.engine.nftables.layout import Target, packed, target
from kube_nftlb.agent.engine.nftables.numbering import renumber, stable_numbers
from kube_nftlb.agent.engine.nftables.placement import Placement, place
from kube_nftlb.agent.engine.nftlb.translate import translate
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from tests.builders import Grouped, endpoint, farm, grouped_farm, raw_backend

HERE = NodeFacts("here", "a", {"ipv4": ("172.31.0.11",)}, {"ipv4": ("10.244.1.0/24",)})
TWO = [raw_backend("a", "10.244.1.2", nodeName="here"), raw_backend("b", "10.244.2.2", nodeName="there")]
A, B = target("10.244.1.2", 8080), target("10.244.2.2", 8080)
CLUSTER_IP = {"type": "ClusterIP", "ip": "10.96.0.10", "ports": "80"}
NODE_PORT = {"type": "NodePort", "ip": "", "ports": "30080"}


def placed(before: Placement | None = None, **spec: Any) -> Placement:
    spec = {"addresses": [CLUSTER_IP], "backends": TWO, **spec}
    return place(node_farm(farm(**spec), HERE, None), before, layout.farm_number(1))


GROUPS = {
    "first": Grouped(7, [endpoint("10.244.1.2", node="here"), endpoint("10.244.2.2", node="there")]),
    "off": Grouped(0, ["10.244.1.3"]),
    "second": Grouped(2, [endpoint("10.244.2.4", node="there")]),
    "nobody": Grouped(1, []),
}


def placed_groups(groups: Mapping[str, Grouped], before: Placement | None = None, **spec: Any) -> Placement:
    made = grouped_farm(groups=groups, **{"addresses": [CLUSTER_IP], "scheduler": "weight", **spec})
    return place(node_farm(made, HERE, None), before, layout.farm_number(1))


def chains(placement: Placement) -> list[str]:
    return [entry.chain for entry in placement.entries]


@pytest.mark.parametrize(
    ("spec", "chain"),
    [
        ({"scheduler": "rr"}, "rr-2-2-ip"),
        ({"scheduler": "weight"}, "random-2-ip"),
        ({"scheduler": "hash"}, "hash-srcip-2-ip"),
        ({"scheduler": "hash", "schedParam": "srcip srcport"}, "hash-srcip.srcport-2-ip"),
        ({"scheduler": "symhash"}, "symhash-2-ip"),
        ({"backends": TWO[:1]}, "random-1-ip"),
        ({"backends": [TWO[0], {**TWO[1], "weight": 3}], "scheduler": "weight"}, "random-4-ip"),
        ({"backends": [{**each, "weight": 10} for each in TWO], "scheduler": "weight"}, "random-2-ip"),
        ({"persistence": "srcip", "scheduler": "weight"}, "known-60-ip/default"),
        ({"backends": []}, "refuse"),
        ({"state": "drain"}, "refuse"),
        ({"state": "off"}, "refuse"),
        ({"trafficPolicy": "Local"}, "random-1-ip"),
        ({"trafficPolicy": "Local", "backends": TWO[1:]}, layout.DROP),
    ],
)
def test_the_chain_of_a_cluster_ip(spec: dict[str, Any], chain: str) -> None:
    assert chains(placed(**spec)) == [chain]


def test_clients_of_this_node_get_others_with_the_policy_local() -> None:
    (entry,) = placed(trafficPolicy="Local", addresses=[NODE_PORT], scheduler="weight").entries
    assert (entry.chain, entry.outside, entry.inside) == ("by-client-ip", "random-1-ip", "random-2-inside-ip")
    (entry,) = placed(trafficPolicy="Local", addresses=[NODE_PORT], backends=TWO[1:]).entries
    assert (entry.chain, entry.outside, entry.inside) == ("by-client-ip", layout.DROP, "random-1-inside-ip")


@pytest.mark.parametrize(
    ("spec", "masquerade"),
    [
        ({"mode": "snat"}, "masquerade-always"),
        ({"mode": "dnat", "masquerade": "AsNeeded"}, "masquerade-from-outside"),
        ({"mode": "dnat", "masquerade": "Never"}, ""),
        ({"mode": "dnat", "masquerade": "AsNeeded", "addresses": [NODE_PORT]}, "masquerade-always"),
        (
            {"mode": "dnat", "masquerade": "AsNeeded", "addresses": [NODE_PORT], "trafficPolicy": "Local"},
            "masquerade-from-itself",
        ),
    ],
)
def test_who_is_masqueraded(spec: dict[str, Any], masquerade: str) -> None:
    assert [entry.masquerade for entry in placed(**spec).entries] == [masquerade]


def test_a_port_that_is_kept_is_the_listener_s() -> None:
    addresses = [{**CLUSTER_IP, "ports": "8000-8001"}]
    placement = placed(addresses=addresses, backends=[{"name": "a", "ip": "10.244.1.2"}])
    values = {each.data[-4:-2] for each in elements.elements(placement) if each.map == "endpoints-ip"}
    assert values == {(8000).to_bytes(2), (8001).to_bytes(2)}


def test_all_ports_of_an_address() -> None:
    placement = placed(
        protocol="All",
        addresses=[{"ip": "10.96.0.10"}],
        backends=[{"name": "a", "ip": "10.244.1.2"}],
        engine="nftables",
    )
    maps = {each.map: each for each in elements.elements(placement)}
    assert maps.keys() == {"services-all-ip", "endpoints-all-ip", "masquerade-all-ip"}
    assert maps["endpoints-all-ip"].data.endswith(packed("10.244.1.2"))


def test_remembered_endpoints_keep_their_numbers_and_sessions_go_to_them() -> None:
    sessions = [{"client": "10.0.0.9", "backend": "b"}]
    first = placed(persistence="srcip", sessions=sessions)
    assert first.sticky is not None
    assert dict(first.sticky.endpoints) == {1: A, 2: B}
    assert first.sticky.sessions == ((packed("10.0.0.9"), 2),)
    assert chains(first) == ["sessions-60-ip/default"]
    # The first goes, and another comes: b is still 2, and nobody who is remembered with 1 gets the other.
    new = raw_backend("c", "10.244.2.3", nodeName="there")
    second = placed(first, persistence="srcip", sessions=sessions, backends=[TWO[1], new])
    assert second.sticky is not None
    assert dict(second.sticky.endpoints) == {2: B, 3: target("10.244.2.3", 8080)}
    assert second.sticky.farm == first.sticky.farm


def numbers(placement: Placement) -> dict[Target, int]:
    assert placement.sticky is not None
    return {to: number for number, to in placement.sticky.endpoints}


def test_an_endpoint_that_comes_does_not_get_the_clients_of_one_that_went_while_no_agent_ran() -> None:
    before = placed(persistence="srcip")
    assert before.sticky is not None
    # The kernel does not tell which number was given last.
    adopted = before._replace(sticky=before.sticky._replace(last=0))
    same = placed(adopted, persistence="srcip")
    assert same == adopted
    after = placed(adopted, persistence="srcip", backends=[*TWO, raw_backend("c", "10.244.2.3", nodeName="there")])
    assert numbers(after) == {A: 1, B: 2, target("10.244.2.3", 8080): 1027}


def test_clients_from_outside_forget_an_endpoint_that_becomes_one_for_clients_of_this_node_alone() -> None:
    outside: dict[str, Any] = {"persistence": "srcip", "addresses": [NODE_PORT], "mode": "dnat"}
    first = placed(**outside)
    assert numbers(first) == {A: 1, B: 2}
    local = placed(first, **outside, trafficPolicy="Local")
    # Replies of the remote one would not come back through this node.
    assert numbers(local) == {A: 1, B: 3}
    assert numbers(placed(local, **outside, trafficPolicy="Local")) == {A: 1, B: 3}
    assert numbers(placed(local, **outside, trafficPolicy="Local", state="drain")) == {A: 1, B: 3}


def test_a_fixed_session_leads_no_client_from_outside_to_an_endpoint_for_clients_of_this_node() -> None:
    sessions = [{"client": f"192.0.2.{number}", "backend": name} for number, name in ((1, "a"), (2, "b"))]
    spec: dict[str, Any] = {"persistence": "srcip", "sessions": sessions, "trafficPolicy": "Local"}

    def held(placement: Placement) -> list[bytes]:
        assert placement.sticky is not None
        return [client for client, _ in placement.sticky.sessions]

    assert held(placed(**spec, addresses=[NODE_PORT])) == [packed("192.0.2.1")]
    of_nftlb = node_farm(farm(**spec, backends=TWO, addresses=[NODE_PORT]), HERE, None)
    assert translate(of_nftlb, None).sessions == {"192.0.2.1": "a"}
    assert held(placed(**spec)) == [packed("192.0.2.1"), packed("192.0.2.2")]


@pytest.mark.parametrize(
    ("spec", "remembers"),
    [
        ({"state": "drain"}, True),
        ({"state": "off"}, False),
        ({"backends": []}, False),
        ({"trafficPolicy": "Local", "backends": [{**TWO[0], "state": "drain"}, TWO[1]]}, True),
    ],
    ids=["a farm that drains", "a farm that is off", "nobody is left", "all of this node drain"],
)
def test_the_map_of_clients_stays_in_use_while_nobody_is_served(spec: dict[str, Any], remembers: bool) -> None:
    (entry,) = placed(persistence="srcip", **spec).entries
    assert (entry.chain, entry.choice) in (("refuse", ""), (layout.DROP, ""))
    assert (entry.memory == "remember-60-ip/default") == remembers


def test_a_draining_backend_is_remembered_but_not_chosen() -> None:
    placement = placed(persistence="srcip", backends=[TWO[0], {**TWO[1], "state": "drain"}])
    assert placement.sticky is not None
    assert dict(placement.sticky.endpoints) == {1: A, 2: B}
    assert placement.sticky.picks == (1,)


targets = st.lists(st.integers(1, 6), max_size=12)


@given(targets, targets)
def test_renumbering_keeps_what_can_stay(before: list[int], wanted: list[int]) -> None:
    after = renumber(before, wanted)
    assert Counter(after) == Counter(wanted)
    moved = sum(1 for position, each in enumerate(before[: len(after)]) if after[position] != each)
    both = Counter(before) & Counter(wanted)
    gone_or_new = len(before) - both.total() + len(wanted) - both.total()
    assert moved <= gone_or_new


@given(st.sets(st.integers(1, 20)), st.sets(st.integers(1, 20)), st.integers(0, 40))
def test_numbers_for_life_are_unique_and_a_free_one_stays_free(before: set[int], wanted: set[int], last: int) -> None:
    def at(each: int) -> Target:
        return Target(bytes((10, 0, 0, each)), 80)

    had = {at(each): number for number, each in enumerate(sorted(before), 1)}
    numbers, after = stable_numbers(((number, to) for to, number in had.items()), map(at, wanted), last, 41)
    assert numbers.keys() == set(map(at, wanted))
    assert len(set(numbers.values())) == len(numbers)
    assert {to: numbers[to] for to in had if to in numbers} == {to: had[to] for to in had if to in numbers}
    given = [numbers[to] for to in sorted(numbers.keys() - had.keys())]
    assert after == (given[-1] if given else last)
    assert all(0 < number < 41 for number in given)
    # In the order of the cycle, so that each free one has its turn.
    assert sorted(given, key=lambda number: (number - last - 1) % 40) == given


WITHIN = {"random-2-group-0-ip", "random-1-group-2-ip"}


@pytest.mark.parametrize(
    ("spec", "chain", "choice", "within"),
    [
        ({}, "draw-random-10-random-2.o.1.x-ip", "", WITHIN),
        ({"scheduler": "rr"}, "draw-random-10-rr-3_2.o.1.x-ip", "", {"rr-3-2-group-0-ip", "random-1-group-2-ip"}),
        (
            {"scheduler": "symhash"},
            "draw-symhash-10-symhash-2.o.1.x-ip",
            "",
            {"symhash-2-group-0-ip", "random-1-group-2-ip"},
        ),
        ({"protocol": "UDP"}, "draw-random-10-random-2.o.1.d-ip", "", WITHIN),
        (
            {"scheduler": "hash", "schedParam": "srcip srcport"},
            "draw-hash-srcip.srcport-10-hash-srcip.srcport-2.o.1.x-ip",
            "",
            {"hash-srcip.srcport-2-group-0-ip", "random-1-group-2-ip"},
        ),
        (
            {"persistence": "srcip"},
            "known-60-ip/default",
            "pick-draw-hash-srcip-10-random-2.o.1.x-ip",
            {f"pick-{each}" for each in WITHIN} | {"remember-60-ip/default"},
        ),
        ({"trafficPolicy": "Local"}, "draw-random-10-random-1.o.d.x-ip", "", {"random-1-group-0-ip"}),
    ],
)
def test_a_listener_draws_a_group_and_each_group_chooses(
    spec: dict[str, Any], chain: str, choice: str, within: set[str]
) -> None:
    placement = placed_groups(GROUPS, **spec)
    (entry,) = placement.entries
    assert (entry.chain, entry.choice) == (chain, choice)
    assert [(each.number, each.share) for each in placement.groups] == [(0, 7), (2, 2), (3, 1)]
    assert elements.chains(placement) == {chain, *within} | ({choice} if choice else set())
    for name in elements.chains(placement):
        assert scheduling.parse(name).name == name


def test_clients_of_the_node_draw_for_themselves_where_their_endpoints_differ() -> None:
    placement = placed_groups(GROUPS, trafficPolicy="Local", addresses=[CLUSTER_IP, NODE_PORT])
    drawn = "draw-random-10-random-1.o.d.x-ip"
    assert [(each.chain, each.inside, each.outside) for each in placement.entries] == [
        (drawn, "", ""),
        ("by-client-ip", "draw-random-10-random-2.o.1.x-inside-ip", drawn),
    ]
    nowhere = {**GROUPS, "first": Grouped(7, [endpoint("10.244.2.2", node="there")])}
    assert chains(placed_groups(nowhere, trafficPolicy="Local")) == [layout.DROP]


@pytest.mark.parametrize("to", ["", "x.", ".2", "0", "1_0", "2..3", "y"])
def test_a_name_that_is_nobodys_is_no_chain_of_ours(to: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a chain"):
        scheduling.parse(f"draw-random-3-rr-{to}-ip")


def test_chains_that_draw_are_made_after_those_to_which_they_lead_and_deleted_before() -> None:
    names = sorted(elements.chains(placed_groups(GROUPS)), key=scheduling.rank)
    assert names[-1].startswith("draw-")
    assert set(scheduling.leads_to(names[-1])) == WITHIN == set(names[:-1])


def test_a_farm_with_one_group_is_as_one_without() -> None:
    one = {name: each._replace(weight=9 * (name == "first")) for name, each in GROUPS.items()}
    assert placed_groups(one) == placed(scheduler="weight")
    none = {name: each._replace(weight=0) for name, each in GROUPS.items()}
    assert chains(placed_groups(none)) == ["refuse"]


@pytest.mark.parametrize("more", [{}, {"persistence": "srcip"}, {"scheduler": "hash"}])
@pytest.mark.parametrize("weights", [(7, 3), (997, 3), (1, 1)])
def test_an_endpoint_costs_as_many_elements_as_without_weights(more: dict[str, Any], weights: tuple[int, int]) -> None:
    def cost(*others: Grouped) -> int:
        few, many = (
            {"a": Grouped(weights[0], [f"10.244.1.{number}" for number in range(1, 1 + count)])}
            | {f"other-{number}": each for number, each in enumerate(others)}
            for count in (5, 6)
        )
        before = placed_groups(few, **more)
        after = placed_groups(many, before, **more)
        return len(set(elements.elements(before)) ^ set(elements.elements(after)))

    assert cost(Grouped(weights[1], ["10.244.3.1", "10.244.3.2"])) == cost()


def test_a_share_that_changes_renumbers_no_endpoint() -> None:
    before = placed_groups(GROUPS)
    after = placed_groups({**GROUPS, "nobody": Grouped(2, [])}, before)
    changed = {each.map for each in set(elements.elements(before)) ^ set(elements.elements(after))}
    assert changed == {"services-ip", "shares-ip"}
