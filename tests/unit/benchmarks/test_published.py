"""docs/performance.md and what the README says of it: made of the records that are kept."""

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import report

CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / "docs/performance.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    docs = tmp_path_factory.mktemp("docs")
    report.write(CHECKOUT / "benchmarks/results/published", docs)
    return docs


def test_the_page_is_what_the_records_make(made):
    assert (made / "performance.md").read_text() == PAGE.read_text(), (
        "python -m benchmarks.report benchmarks/results/published makes it anew"
    )


def test_the_charts_are_there(made):
    charts = {path.name for path in (made / "performance").iterdir()}
    assert {path.name for path in (CHECKOUT / "docs/performance").iterdir()} == charts


def test_the_figures_of_the_readme_are_on_the_page():
    (sentence,) = re.findall(r"^Measured .*?(?=\n\n)", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    figures = re.findall(r"[\d,.]*\d(?= ms| rules)", sentence)
    assert len(figures) >= 6
    page = PAGE.read_text()
    assert [figure for figure in figures if not re.search(rf"[ |]{re.escape(figure)}[ |]", page)] == []
