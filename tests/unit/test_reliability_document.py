"""docs/reliability.md is made of the records that are kept."""

from pathlib import Path

from benchmarks import machine, records
from tests.functional.faults import report

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests/functional/faults/published"


def test_the_page_matches_the_records() -> None:
    made = report.page(records.read(RUN), machine.read(RUN))
    assert made == (ROOT / "docs" / report.PAGE).read_text(), f"python -m {report.__name__} {RUN} --docs docs makes it"


def test_every_scenario_of_the_records_is_on_the_page() -> None:
    kept = {record.scenario for record in records.read(RUN)}
    assert kept <= {chapter.scenario for chapter in report.CHAPTERS}
