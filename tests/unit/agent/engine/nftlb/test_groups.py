"""Groups with weights in nftlb: as weights of backends, with the share that nobody serves in the agent table."""

from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb.groups import NUMBERS_MAX, contents, unsupported, weights
from kube_nftlb.agent.engine.nftlb.translate import translate
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.netfilter.table_text import Contents
from tests.builders import Grouped, farm, grouped_farm

HERE = NodeFacts("here", "a")


def ips(group: int, count: int) -> list[str]:
    return [f"10.244.{group}.{number}" for number in range(1, count + 1)]


def grouped(*groups: tuple[int, int], **spec: Any) -> NodeFarm:
    """A farm with groups of a weight and a number of endpoints."""
    of = {f"s{number}": Grouped(weight, ips(number, count)) for number, (weight, count) in enumerate(groups)}
    return node_farm(grouped_farm(groups=of, **spec), HERE, None)


def of_groups(wanted: NodeFarm) -> list[list[int]]:
    found = weights(wanted)
    return [[found[each.backend.name] for each in group.endpoints] for group in wanted.groups]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (((70, 1), (30, 1)), [[7], [3]]),
        (((70, 3), (30, 2)), [[14] * 3, [9] * 2]),
        (((1, 2), (1, 0), (1, 1)), [[1, 1], [], [2]]),
        (((0, 1), (2, 1), (4, 2)), [[1], [1, 1]]),
    ],
)
def test_a_backend_has_its_part_of_the_share_of_its_group(
    groups: tuple[tuple[int, int], ...], expected: list[list[int]]
) -> None:
    assert of_groups(grouped(*groups)) == expected
    assert unsupported(grouped(*groups)) is None


def test_weights_of_pods_count_within_their_group() -> None:
    made = grouped_farm(groups={"a": Grouped(1, ips(0, 2)), "b": Grouped(1, ips(1, 1))})
    first, *others = made.spec.backends
    spec = made.spec.model_copy(update={"backends": (first.model_copy(update={"weight": 3}), *others)})
    wanted = node_farm(made.model_copy(update={"spec": spec}), HERE, None)
    assert of_groups(wanted) == [[3, 1], [4]]


def test_what_does_not_fit_exactly_is_rounded_to_what_no_group_notices() -> None:
    groups = ((1, 3000), (999_999, 1), (3, 11), (17, 13))
    found = of_groups(grouped(*groups))
    assert sum(map(sum, found)) == NUMBERS_MAX
    total = sum(weight for weight, _ in groups)
    for numbers, (weight, _) in zip(found, groups, strict=True):
        assert abs(sum(numbers) / NUMBERS_MAX - weight / total) < 0.01


def test_nftlb_chooses_at_random_where_it_would_stay_with_a_backend_for_long() -> None:
    options = [translate(grouped((7, 1), (3, count)), None).options["scheduler"] for count in (1, 0)]
    assert options == ["weight", "weight"], "a group that nobody serves changes nothing for others"
    assert translate(grouped((7, 1), (3, 1), scheduler="hash"), None).options["scheduler"] == "hash"
    assert translate(grouped((7, 1), (0, 1)), None).options.get("scheduler", "rr") == "rr"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"persistence": "srcip"}, "persistence srcip"),
        ({"scheduler": "symhash"}, "the scheduler symhash"),
        ({"trafficPolicy": "Local"}, "the traffic policy Local"),
        ({"mode": "dsr"}, "the mode dsr"),
    ],
)
def test_what_nftlb_cannot_do_with_groups_is_refused_with_a_reason(spec: dict[str, Any], named: str) -> None:
    why = unsupported(grouped((1, 1), (1, 1), **spec))
    assert why is not None
    assert f"has no groups in backendsFrom with {named}; use the engine nftables" in why
    assert unsupported(grouped((1, 1), (0, 1), **spec)) is None, "one group is as none"


@pytest.mark.parametrize(
    ("spec", "draw"),
    [
        ({}, "numgen random mod 10 < 3 goto refuse"),
        ({"protocol": "UDP"}, "numgen random mod 10 < 3 drop"),
        ({"scheduler": "hash"}, "jhash ip saddr mod 10 seed 0x1 < 3 goto refuse"),
        (
            {"scheduler": "hash", "schedParam": "srcip srcport"},
            "jhash ip saddr . th sport mod 10 seed 0x1 < 3 goto refuse",
        ),
    ],
)
def test_the_share_that_nobody_serves_is_refused_in_the_agent_table(spec: dict[str, Any], draw: str) -> None:
    found = contents(grouped((7, 2), (3, 0), **spec))
    (chain,) = found.chains
    assert chain.rules == ("ct status dnat return", draw)
    assert {each.value for each in found.elements} == {f"goto {chain.name}"}


def test_nothing_is_refused_where_all_groups_are_served_or_none_is() -> None:
    for wanted in (grouped((7, 2), (3, 1)), grouped((7, 0), (3, 0)), node_farm(farm(), HERE, None)):
        assert contents(wanted) == Contents()
