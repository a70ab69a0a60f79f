from typing import Any

from tests.bystanders.verdict import Edit, judge, merged, told

MS = 1_000_000
EDITS = [Edit("one", 0, 50 * MS), Edit("another", 1000 * MS, 1100 * MS)]


def result(
    *, stalls: tuple[tuple[int, int], ...] = (), control: tuple[tuple[int, int], ...] = (), **record: Any
) -> dict[str, Any]:
    quiet = {"attempts": 1, "slow": [], "failed": []}
    streams = {"tcp to plain": {**quiet, **record}, "control tcp": {**quiet, "slow": control}}
    return {"a pod": {"stalls": stalls, "streams": streams}}


def test_a_failure_falls_to_the_last_edit_that_had_begun() -> None:
    (found,) = judge(result(failed=[(1020 * MS, 1021 * MS, "refused")]), EDITS)
    assert (found.edit, found.stream, found.after_ns) == ("another", "a pod: tcp to plain", 20 * MS)
    assert told([found]) == [
        "'another' was felt by a pod: tcp to plain: refused after 1 ms, 20 ms after it began",
    ]


def test_a_connection_under_way_when_an_edit_begins_is_its_own() -> None:
    (found,) = judge(result(slow=[(990 * MS, 2010 * MS)]), EDITS)
    assert (found.edit, found.what, found.after_ns) == ("another", "delayed after 1020 ms", -10 * MS)


def test_a_short_delay_is_none() -> None:
    assert judge(result(slow=[(0, 99 * MS)]), EDITS) == []


def test_a_delay_counts_as_far_as_the_machine_did_not_stall() -> None:
    slow = [(100 * MS, 260 * MS)]
    assert judge(result(slow=slow), EDITS)
    assert judge(result(slow=slow, stalls=((90 * MS, 200 * MS),)), EDITS) == []
    assert judge(result(slow=slow, control=((120 * MS, 250 * MS),)), EDITS) == []
    lost = [(100 * MS, 1100 * MS)]
    assert judge(result(slow=lost, stalls=((90 * MS, 200 * MS),)), EDITS), "a lost SYN beside a stall"


def test_a_failure_counts_whatever_the_machine_did() -> None:
    assert judge(result(failed=[(0, MS, "refused")], stalls=((0, 10 * MS),)), EDITS)


def test_many_failures_are_told_of_once() -> None:
    failed = [(number * MS, number * MS, "refused") for number in range(5)]
    (sentence,) = told(judge(result(failed=failed), EDITS))
    assert sentence.endswith("0 ms after it began, and 4 more")


def test_windows_are_merged() -> None:
    assert merged([(5, 9), (1, 3), (2, 4), (9, 10)]) == [(1, 4), (5, 10)]
