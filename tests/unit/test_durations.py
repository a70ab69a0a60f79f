"""The table at the end of a test run."""

from pathlib import Path

from tests.durations import Budgets, Durations, budgets, suite

TESTS = Path(__file__).parents[1]
UNIT = "tests/unit/api/test_a.py::test_b"
CONFORMANCE = "tests/functional/conformance/disturbing/test_c.py::test_d[nftlb]"


def test_a_suite_is_a_folder() -> None:
    assert [suite(UNIT), suite(CONFORMANCE), suite("tests/functional/test_e.py::test_f")] == [
        "unit",
        "functional/conformance/disturbing",
        "functional",
    ]


def test_suites_and_tests_over_their_budget_are_named() -> None:
    durations = Durations()
    durations.add(UNIT, "call", 0.5, long=False)
    durations.add(CONFORMANCE, "setup", 20, long=False)
    durations.add(CONFORMANCE, "call", 21, long=False)
    durations.add("tests/docs/test_pages.py::test_page", "call", 300, long=True)
    durations.add("tests/docs/test_pages.py::test_readme", "setup", 21, long=False)
    lines = durations.table(
        Budgets({"unit": 10, "functional/conformance/disturbing": 40, "docs, long": 400}, test=20),
        [("functional", 8.0)],
    )
    assert [line.split() for line in lines[1:]] == [
        ["docs,", "long", "1", "300.0", "400"],
        ["functional/conformance/disturbing", "1", "41.0", "40", "OVER", "ITS", "BUDGET"],
        ["docs", "1", "21.0", "-"],
        ["unit", "1", "0.5", "10"],
        ["starts", "of", "labs", "1", "8.0"],
        ["over", "20", "s:", CONFORMANCE, "21.0"],
    ]


def test_every_suite_and_nothing_else_has_a_budget() -> None:
    files = (file.relative_to(TESTS.parent).as_posix() for file in TESTS.rglob("test_*.py"))
    assert {suite(file) for file in files} == {name.removesuffix(", long") for name in budgets().suites}
