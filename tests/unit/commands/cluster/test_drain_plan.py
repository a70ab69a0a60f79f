"""The writes, refusals and counts of drain."""

from typing import Any

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster import drain_connections, drain_plan, drain_states
from kube_nftlb.commands.cluster.drain_connections import Open
from kube_nftlb.commands.cluster.drain_plan import Member, PodRef
from kube_nftlb.commands.view import ClusterView
from tests.builders import endpoint, raw_backend, raw_farm, raw_nftlb_node, raw_service_farm, raw_slice

Json = dict[str, Any]

SLICES = [
    raw_slice(endpoint("10.244.1.2", "a", node="n1"), endpoint("10.244.2.2", "b", node="n2"), endpoint("192.0.2.1"))
]
SERVICE = raw_service_farm()
BY_HAND = raw_farm("hand", backends=[raw_backend("a", "10.244.1.2", None), raw_backend("x", "192.0.2.9", None)])
REFERRING = raw_farm("front", backends=[], backendsFrom=[{"service": "web", "port": "http"}])


def members(*raws: Json) -> list[Member]:
    return drain_plan.members(ClusterView(raws, slices=SLICES))


def plan(name: str, *raws: Json) -> tuple[drain_plan.Plan, list[str]]:
    everything = members(*raws)
    return drain_plan.plan(drain_plan.of_backend(name, "default", everything), everything)


def test_a_backend_of_a_service_drains_by_its_pod() -> None:
    todo, problems = plan("a", SERVICE)
    assert (todo.pods, todo.edits, problems) == ((PodRef("default", "a"),), (), [])
    assert todo.addresses == {("10.244.1.2", 8080)}


def test_it_can_be_named_by_its_address() -> None:
    assert plan("10.244.2.2", SERVICE)[0].pods == (PodRef("default", "b"),)


def test_farms_written_by_hand_say_it_themselves() -> None:
    todo, _ = plan("a", SERVICE, BY_HAND, REFERRING)
    assert todo.pods == (PodRef("default", "a"),)
    assert {edit.farm.name: edit.entry for edit in todo.edits} == {
        "hand": {"backends": [{"name": "a", "state": "drain"}]},
        "front": {"backendsFrom": [{"service": "web", "port": "http", "overrides": [{"pod": "a", "state": "drain"}]}]},
    }
    assert len({edit.manager for edit in todo.edits}) == 2, "an apply removes what its manager applied before"
    assert plan("x", BY_HAND)[0].addresses == {("192.0.2.9", 0)}


def test_an_endpoint_without_a_pod_cannot_be_drained() -> None:
    todo, problems = plan("192.0.2.1", SERVICE)
    assert todo.members == ()
    assert "has no Pod that could say that it drains" in problems[0]


def test_all_backends_on_a_node_are_those_of_the_node() -> None:
    everything = members(SERVICE, REFERRING)
    todo, _ = drain_plan.plan(drain_plan.of_node("n2", everything), everything)
    assert {each.backend.name for each in todo.members} == {"b"}


def test_the_last_backend_of_a_farm_is_noticed() -> None:
    assert plan("a", SERVICE)[0].emptied == ()
    alone = raw_farm("alone", backends=[raw_backend("a", "10.244.1.2"), raw_backend("y", "10.0.0.1", ready=False)])
    assert plan("a", SERVICE, alone)[0].emptied == (FarmKey("default", "alone"),)


def test_another_namespace_is_another_backend() -> None:
    everything = members(SERVICE)
    assert drain_plan.of_backend("a", "shop", everything) == []


def report(name: str, watermark: str, *busiest: Json) -> Json:
    return {"metadata": {"name": name}, "status": {"draining": {"watermark": watermark, "busiest": list(busiest)}}}


def test_connections_count_once_a_node_has_counted_since_the_drain() -> None:
    ours, other = {"ip": "10.244.1.2", "port": 8080, "connections": 3}, {"ip": "10.0.0.1", "connections": 9}
    reports = [report("n1", "20", ours, other), report("n2", "19", ours), {"metadata": {"name": "n3"}}]
    counted = drain_connections.open_connections({("10.244.1.2", 8080)}, 20, reports)
    assert counted == Open({"n1": 3}, ("n2", "n3"))
    assert counted.total == 3


def test_the_count_of_a_node_that_lists_others_alone_is_not_known() -> None:
    ours, other = {"ip": "10.244.1.2", "port": 8080, "connections": 3}, {"ip": "10.0.0.1", "connections": 9}
    reports = [report("n1", "20", other), report("n2", "20", ours), report("n3", "20", other)]
    for each, connections in zip(reports, (10, 4, 9), strict=True):
        each["status"]["draining"]["connections"] = connections
    counted = drain_connections.open_connections({("10.244.1.2", 8080)}, 20, reports)
    assert counted == Open({"n2": 3}, (), ("n1",))
    alone = drain_connections.open_connections({("10.244.1.2", 8080)}, 20, reports[:1])
    assert (alone.total, alone.done) == (0, False)
    alone = drain_connections.open_connections({("10.244.1.2", 8080)}, 20, reports[2:])
    assert (alone.total, alone.done) == (0, True)


def test_a_node_on_which_nothing_drains_has_no_connections_to_backends_that_are_gone() -> None:
    reports = [{"metadata": {"name": "n1"}, "status": {"draining": {}}}, report("n2", "19")]
    assert drain_connections.open_connections({("10.244.1.2", 8080)}, 20, reports, gone=True) == Open({}, ("n2",))


def test_a_node_whose_agent_is_silent_is_not_waited_for() -> None:
    silent = raw_nftlb_node("n2", ready="Unknown", reason="AgentSilent")
    counted = drain_connections.open_connections({("10.244.1.2", 8080)}, 20, [report("n1", "20"), silent])
    assert (counted, counted.done) == (Open({}, (), silent=("n2",)), True)


def test_a_backend_that_has_another_address_is_not_the_one_that_drained() -> None:
    todo, _ = plan("a", SERVICE)
    assert [each.entry for each in drain_plan.remaining(todo, members(SERVICE))] == ["a"]
    moved = ClusterView([SERVICE], slices=[raw_slice(endpoint("10.244.2.9", "a", node="n2"))])
    assert drain_plan.remaining(todo, drain_plan.members(moved)) == []


def test_a_farm_says_that_a_backend_drains() -> None:
    raw = raw_service_farm(backendsFrom=[{"service": "web", "overrides": [{"pod": "a", "state": "drain"}]}])
    assert drain_states.says_drain(raw, "a")
    assert not drain_states.says_drain(raw, "b")
    assert drain_states.says_drain(None, "a"), "the farm is gone"


def test_a_pod_in_two_groups_of_a_farm_drains_in_both() -> None:
    groups = [{"service": "web", "port": port, "weight": 1} for port in ("http", 8080)]
    todo, _ = plan("a", raw_farm("front", backends=[], backendsFrom=groups))
    overrides = [{"pod": "a", "state": "drain"}]
    (edit,) = todo.edits
    assert edit.entry == {
        "backendsFrom": [{"service": "web", "port": port, "overrides": overrides} for port in ("http", 8080)]
    }


def test_an_empty_name_is_not_that_of_backends_without_a_pod() -> None:
    assert plan("", BY_HAND, REFERRING)[0].members == ()
