"""Which backends get which marks."""

import pytest

from kube_nftlb.agent.engine.nftlb import marks
from kube_nftlb.nftlb.objects import MARK_FIRST, MARK_LAST


def test_new_backends_get_the_lowest_marks_from_two() -> None:
    assert marks.allocate(["a", "b"], {}) == {"a": 2, "b": 3}


def test_a_backend_keeps_the_mark_that_it_has() -> None:
    assert marks.allocate(["new", "old"], {"old": 2}) == {"new": 3, "old": 2}


def test_the_mark_of_a_backend_that_is_going_is_not_given_away() -> None:
    assert marks.allocate(["new"], {"going": 2}) == {"new": 3}


@pytest.mark.parametrize("bad", [0, 1, MARK_LAST + 1])
def test_a_mark_that_is_out_of_range_is_given_anew(bad: int) -> None:
    assert marks.allocate(["a"], {"a": bad}) == {"a": 2}


def test_of_two_backends_with_one_mark_the_second_gets_another() -> None:
    given = marks.allocate(["a", "b"], {"a": 5, "b": 5})
    assert given["a"] == 5
    assert given["b"] not in (0, 1, 5)


def test_backends_wait_for_the_marks_of_those_that_go() -> None:
    going = {f"old-{number}": number for number in range(MARK_FIRST, MARK_FIRST + 4000)}
    names = [f"new-{number}" for number in range(2000)]
    given = marks.allocate(names, going)
    assert list(given) == names[:94]
    assert set(given.values()).isdisjoint(going.values())


def test_there_are_4094_marks_and_no_more() -> None:
    names = [str(number) for number in range(MARK_LAST - MARK_FIRST + 1)]
    assert len(names) == 4094
    assert len(set(marks.allocate(names, {}).values())) == 4094
    with pytest.raises(ValueError, match="at most 4094"):
        marks.allocate([*names, "one more"], {})
