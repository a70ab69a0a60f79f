"""docs/performance.md and what the README says of it: made of the records that are kept."""

import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import charts, expected, machine, records, report, targets
from benchmarks.__main__ import SCENARIOS

CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / "docs/performance.md"
RUNS = CHECKOUT / "benchmarks/results/published"


def test_the_page_matches_the_records() -> None:
    drawn = {path.stem: charts.CAPTIONS[path.stem] for path in (CHECKOUT / "docs/performance").iterdir()}
    made = report.page(records.read(RUNS), machine.read(RUNS), drawn)
    assert made == PAGE.read_text(), (
        "python -m benchmarks.report benchmarks/results/published --docs docs makes it anew"
    )
    assert set(re.findall(r"\(performance/([\w-]+)\.png\)", made)) == drawn.keys()


def test_each_target_has_its_verdict_on_the_page() -> None:
    page = PAGE.read_text()
    engines = {"kube-nftlb": "nftlb", "kube-nftlb nftables": "nftables"}
    for verdict in targets.verdicts([]):
        rows = re.findall(
            rf"^\| {re.escape(verdict.target)} \| {engines[verdict.subject]} \| \*\*(.*?)\*\*", page, re.MULTILINE
        )
        assert len(rows) == 1, verdict.target


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_a_scenario_measures_is_on_the_page_or_said_to_be_missing(scenario: str) -> None:
    measured, page = records.read(RUNS), PAGE.read_text()
    lost = expected.lacking(scenario, measured)
    for subject, metric in expected.of(scenario):
        if metric in lost.get(subject, ()):
            assert re.search(rf"^- not measured: {subject}: .*{re.escape(metric)}", page, re.MULTILINE), (
                subject,
                metric,
            )
        else:
            assert re.search(rf"^\*\*{re.escape(metric)}(, \S+( of a core)?)?\*\*$", page, re.MULTILINE), (
                subject,
                metric,
            )


def test_no_record_of_a_run_is_lost() -> None:
    there = Counter((record.run, record.scenario) for record in records.read(RUNS))
    counted = {(run["began"], name): number for run in machine.read(RUNS) for name, number in run["records"].items()}
    assert there == counted, "publish runs with python -m benchmarks.publish"


def test_the_figures_of_the_readme_are_on_the_page() -> None:
    (sentence,) = re.findall(r"^Measured .*?(?=\n\n)", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    figures = re.findall(r"[\d,.]*\d(?= ms| rules)", sentence)
    assert len(figures) >= 6
    page = PAGE.read_text()
    assert [figure for figure in figures if not re.search(rf"[ |]{re.escape(figure)}[ |]", page)] == []
