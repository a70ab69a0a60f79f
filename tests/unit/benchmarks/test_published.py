"""docs/performance.md and what the README says of it: made of the records that are kept."""

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import charts, machine, records, report

CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / "docs/performance.md"
RUNS = CHECKOUT / "benchmarks/results/published"


def test_the_page_matches_the_records() -> None:
    drawn = {path.stem: charts.CAPTIONS[path.stem] for path in (CHECKOUT / "docs/performance").iterdir()}
    made = report.page(records.read(RUNS), machine.read(RUNS), drawn)
    assert made == PAGE.read_text(), (
        "python -m benchmarks.report benchmarks/results/published --docs docs makes it anew"
    )
    assert set(re.findall(r"\(performance/(\w+)\.png\)", made)) == drawn.keys()


def test_the_figures_of_the_readme_are_on_the_page() -> None:
    (sentence,) = re.findall(r"^Measured .*?(?=\n\n)", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    figures = re.findall(r"[\d,.]*\d(?= ms| rules)", sentence)
    assert len(figures) >= 6
    page = PAGE.read_text()
    assert [figure for figure in figures if not re.search(rf"[ |]{re.escape(figure)}[ |]", page)] == []
