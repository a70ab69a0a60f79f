"""When a change of endpoints counts as shown."""

from benchmarks.status import _Change, _Statuses


def _shown(*statuses: tuple[float, int, bool], changes: tuple[tuple[float, int], ...], number: int = 0) -> object:
    seen = _Statuses()
    seen.seen["web"] = list(statuses)
    made = [_Change("10.250.0.1", True, ready, at) for at, ready in changes]
    return seen.shown_at("web", made, number)


def test_a_change_is_shown_by_its_own_status_or_that_of_a_later_change() -> None:
    changes = ((1.0, 11), (2.0, 12))
    assert _shown((1.5, 11, False), (1.7, 11, True), changes=changes) == (1.5, 1.7)
    assert _shown((0.5, 10, True), (3.0, 12, True), changes=changes) == (3.0, 3.0)
    assert _shown((3.0, 11, True), changes=changes, number=1) is None, "an earlier one"


def test_a_change_that_is_undone_is_shown_when_the_last_status_is_right_again() -> None:
    changes = ((1.0, 11), (2.0, 10))
    assert _shown((0.5, 10, True), changes=changes) == (2.0, 2.0)
    assert _shown((0.4, 10, True), (0.5, 10, False), changes=changes) is None, "not programmed"
    assert _shown((0.5, 10, True), (1.5, 11, True), (2.5, 10, True), changes=changes, number=1) == (2.5, 2.5)
