"""Which tests stay together in one process, and which start first."""

import pytest

from tests import labs, slow
from tests.distribution import ROOT, order, together

IMAGE = "tests/image/test_image.py::test_a"
PAGE = "tests/docs/test_pages.py::test_what_a_page_says_works_and_comes_out_so[README.md]"
LAB = "tests/functional/features/gateway/test_gateway.py::test_b"
SAME_LAB = "tests/functional/features/gateway/test_hostile.py::test_c"
SHARING = "tests/functional/test_policies.py::test_d"
CHAIN = "tests/contract/test_choice.py::test_e"
SAME_CHAIN = "tests/contract/test_choice.py::test_f"
UNIT = "tests/unit/operator/test_main.py::test_g"
QUICK = "tests/unit/operator/test_main.py::test_h"
PUBLISHED = "tests/unit/benchmarks/test_published.py::test_i"


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        (LAB, "gateway"),
        (SAME_LAB, "gateway"),
        (CHAIN, "tests/contract/test_choice.py"),
        (PUBLISHED, "tests/unit/benchmarks/test_published.py"),
        ("tests/functional/features/test_addresses.py::test_j", "tests/functional/features/test_addresses.py"),
        *((each, each) for each in (PAGE, SHARING, UNIT)),
    ],
)
def test_tests_that_share_a_lab_or_a_fixture_stay_together(nodeid: str, name: str) -> None:
    assert together(nodeid) == name


def test_what_takes_longest_starts_first_with_all_that_stays_together() -> None:
    seconds = {LAB: 10, SAME_LAB: 40, SHARING: 15, CHAIN: 10, SAME_CHAIN: 10, UNIT: 30}
    # No contract test comes before one with a lab: its process does not reach the labs of others any more.
    wanted = [IMAGE, LAB, SAME_LAB, SHARING, PAGE, UNIT, CHAIN, SAME_CHAIN, QUICK]
    assert sorted(sorted(wanted), key=order(wanted, seconds)) == wanted


def test_what_a_run_took_is_kept_in_steps_of_five_seconds_and_changes_no_more_than_it_must() -> None:
    known = {UNIT: 10, CHAIN: 10, LAB: 5, PAGE: 70}
    took = {
        UNIT: {"setup": 0.1, "call": 14.8},  # nearly the same
        CHAIN: {"setup": 14.0, "call": 7.0, "teardown": 2.0},
        LAB: {"call": 2.0},
        QUICK: {"call": 4.9},
        SHARING: {"setup": 40.0, "call": 5.1},  # its setup waits for a lab
    }
    assert slow.renewed(known, took) == {UNIT: 10, CHAIN: 25, PAGE: 70, SHARING: 5}


def test_the_slow_tests_are_there() -> None:
    for nodeid, seconds in slow.seconds().items():
        file, _, function = nodeid.partition("[")[0].partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(), "python -m tests.slow leaves out what is gone"
        assert seconds > 0


def test_what_tests_share_that_stay_together_ends_with_the_last_of_them() -> None:
    ended: list[str] = []
    labs.with_last_of(LAB).callback(ended.append, "gateway")
    labs.end_group(CHAIN)
    assert ended == []
    labs.end_group(SAME_LAB)
    labs.end_group(LAB)
    assert ended == ["gateway"]
