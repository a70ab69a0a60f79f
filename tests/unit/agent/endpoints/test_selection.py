from typing import Any

import pytest

from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.node.info import NodeFacts
from tests.builders import farm, raw_backend
from tests.views import translated


def states(backends: list[dict[str, Any]], **changes: Any) -> dict[str, str]:
    spec = farm(backends=backends, **changes).spec
    selected = selection.select(spec, selection.candidates(spec, NodeFacts()))
    return {each.backend.name: "up" if each.schedulable else "off" for each in selected}


def backend(name: str, **changes: Any) -> dict[str, Any]:
    return raw_backend(name, f"10.244.1.{ord(name)}", **changes)


def test_draining_backends_are_not_scheduled_and_unusable_ones_absent() -> None:
    backends = [
        backend("a"),
        backend("b", state="drain"),
        backend("c", state="off"),
        backend("d", state="down"),
        backend("e", ready=False),
        backend("f", ready=False, state="drain"),
    ]
    assert states(backends) == {"a": "up", "b": "off"}


@pytest.mark.parametrize(
    ("state", "expected"), [("up", {"a": "up"}), ("drain", {"a": "off"}), ("off", {}), ("down", {})]
)
def test_the_state_of_the_farm_is_that_of_its_backends(state: str, expected: dict[str, str]) -> None:
    assert states([backend("a")], state=state) == expected


@pytest.mark.parametrize(
    ("backends", "priority", "used"),
    [
        ([("a", 1, True), ("b", 2, True), ("c", 3, True)], 1, {"a"}),
        ([("a", 1, True), ("b", 2, True), ("c", 3, True)], 2, {"a", "b"}),
        ([("a", 1, False), ("b", 2, True), ("c", 3, True)], 1, {"b"}),
        ([("a", 1, False), ("b", 2, False), ("c", 3, True)], 1, {"c"}),
        ([("a", 1, False), ("b", 1, True), ("c", 2, True), ("d", 3, True)], 1, {"b", "c"}),
        ([("a", 1, False), ("b", 1, False), ("c", 2, False), ("d", 4, True)], 1, {"d"}),
        ([("a", 1, False), ("b", 10, True), ("c", 20, True)], 1, {"b"}),
        ([("b", 10, True), ("c", 20, True)], 1, {"b"}),
        ([("a", 1, False), ("b", 2, False)], 1, set()),
    ],
)
def test_spare_backends_come_in_for_those_that_cannot(
    backends: list[tuple[str, int, bool]], priority: int, used: set[str]
) -> None:
    given = [backend(name, priority=rank, ready=ready) for name, rank, ready in backends]
    assert set(states(given, priority=priority)) == used


def test_connections_are_cut_that_lead_to_what_is_down() -> None:
    backends = [backend("a"), backend("b", state="down"), backend("c", state="off")]
    assert selection.cut_off(farm(backends=backends).spec) == {"10.244.1.98"}
    assert len(selection.cut_off(farm(backends=backends, state="down").spec)) == 3
    assert selection.cut_off(farm(backends=backends, state="off").spec) == {"10.244.1.98"}


def test_a_session_waits_for_its_backend_and_one_for_nobody_is_told_of() -> None:
    given = farm(
        persistence="srcip",
        backends=[backend("a"), backend("b", ready=False)],
        sessions=[{"client": f"10.0.0.{number}", "backend": name} for number, name in enumerate("abc")],
    )
    assert translated(given).sessions == {"10.0.0.0": "a"}
    assert selection.warning(given.spec) == "the session of 10.0.0.2 names the backend c, which the farm does not have"
    assert selection.warning(farm().spec) is None


def test_a_requested_mark_is_taken_from_others_and_the_rest_keep_theirs() -> None:
    before = translated(farm(backends=[backend("a"), backend("b"), backend("c")]))
    after = translated(farm(backends=[backend("a", mark=3), backend("b"), backend("c")]), before)
    marks = {name: each.mark for name, each in after.backends.items()}
    assert marks["a"] == 3
    assert marks["c"] == before.backends["c"].mark
    assert marks["b"] not in (2, 3, 4)
