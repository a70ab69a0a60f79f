"""The time that a change may be on its way until users are told."""

from kube_nftlb.operator.cache.farm_record import FarmRecord, parse_farm
from kube_nftlb.operator.cache.node_record import NodeRecord, parse_node
from kube_nftlb.operator.status.lateness import Late, Lateness, problem
from tests.builders import raw_farm, raw_nftlb_node


def farm(since: int = 10, generation: int = 1) -> FarmRecord:
    return parse_farm(raw_farm(version=since, generation=generation), None)[0]


def node(name: str, watermark: int, slices: int = 99) -> NodeRecord:
    return parse_node(raw_nftlb_node(name, watermark=str(watermark), slice_watermark=str(slices)))


def test_a_node_is_late_only_after_a_while() -> None:
    lateness, nodes = Lateness(30), [node("n1", 10), node("n2", 9)]
    assert lateness.look(farm(), 0, nodes, 100) == Late(again_s=30)
    assert lateness.look(farm(), 0, nodes, 120) == Late(again_s=10)
    assert lateness.look(farm(), 0, nodes, 130) == Late(("n2",))
    assert lateness.look(farm(), 0, [node("n1", 10), node("n2", 10)], 140) == Late()


def test_a_node_that_is_behind_with_endpoints_is_late_too() -> None:
    lateness, nodes = Lateness(30), [node("n1", 10, 50)]
    assert lateness.look(farm(), 51, nodes, 0).again_s == 30
    assert lateness.look(farm(), 51, nodes, 30).nodes == ("n1",)


def test_endpoints_that_never_rest_are_not_late_on_a_node_that_keeps_up() -> None:
    lateness = Lateness(30)
    for second in range(120):
        late = lateness.look(farm(), 1000 + second, [node("n1", 10, 1000 + second - 1)], second)
        assert late.nodes == ()


def test_endpoints_that_never_rest_are_late_on_a_node_that_stands_still() -> None:
    lateness = Lateness(30)
    lates = [lateness.look(farm(), 1000 + second, [node("n1", 10, 999)], second).nodes for second in range(60)]
    assert lates[29] == ()
    assert lates[30:] == [("n1",)] * 30


def test_a_node_that_is_left_out_and_back_has_its_time_anew() -> None:
    lateness, nodes = Lateness(30), [node("n1", 10), node("n2", 9)]
    lateness.look(farm(), 0, nodes, 0)
    assert lateness.look(farm(), 0, nodes[:1], 20) == Late()
    assert lateness.look(farm(), 0, nodes, 100) == Late(again_s=30)


def test_a_farm_that_is_gone_begins_anew() -> None:
    lateness, nodes = Lateness(30), [node("n1", 9)]
    lateness.look(farm(), 0, nodes, 0)
    lateness.forget(farm().key)
    assert lateness.look(farm(), 0, nodes, 60).again_s == 30


def test_users_are_told_which_node_and_what_to_do() -> None:
    told = problem(Late(("n1", "n2", "n3")), 30)
    assert told.reason == "NotProgrammed"
    assert told.message == (
        "its last change has not been programmed on n1 and 2 more nodes for more than 30 s; "
        "see kubectl describe nftlbnode n1"
    )
