"""docs/reliability.md is made of the records that are kept."""

from pathlib import Path

import pytest

from benchmarks import machine, publish, records
from benchmarks.records import Record
from tests.functional.faults import report
from tests.functional.faults.__main__ import ended

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests/functional/faults/published"


def test_the_page_matches_the_records() -> None:
    made = report.page(records.read(RUN), machine.read(RUN))
    assert made == (ROOT / "docs" / report.PAGE).read_text(), f"python -m {report.__name__} {RUN} --docs docs makes it"


def test_every_scenario_of_the_records_is_on_the_page() -> None:
    kept = {record.scenario for record in records.read(RUN)}
    assert kept <= {chapter.scenario for chapter in report.CHAPTERS}


def test_a_column_that_earlier_runs_do_not_have_is_explained_where_it_is() -> None:
    def page(metric: str) -> str:
        return report.page([Record("announced", "nftlb", metric, "", 1.0, {"change": "it moves"})], [])

    assert '\n- "new and failed": connections that' in page("new and failed")
    assert '"new and failed"' not in page("refused or unreachable")


@pytest.mark.parametrize(("statuses", "blocker"), [([0, 0], None), ([0, 1], "it did not finish storm")])
def test_a_run_is_published_if_no_test_failed(statuses: list[int], blocker: str | None) -> None:
    measured = [Record("storm", "nftlb", "failed connections", "", 0.0)]
    run = ended({"commit": "0123456789ab", "scenarios": [], "seconds": {}}, measured, 12.3, statuses)
    assert publish.blocker(run, measured) == blocker
