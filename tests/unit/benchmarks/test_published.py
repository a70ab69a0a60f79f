"""docs/performance.md and what the README says of it: made of the records that are kept."""

import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import charts, excerpts, expected, machine, records, report, targets
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
            assert re.search(rf"^- not measured: {re.escape(subject)}: .*{re.escape(metric)}", page, re.MULTILINE), (
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


@pytest.mark.parametrize("name", excerpts.DOCUMENTS)
def test_what_documents_say_of_the_records_is_so(name: str) -> None:
    measured = records.read(RUNS)
    made = excerpts.made(name, measured, machine.read(RUNS))
    document = (CHECKOUT / excerpts.DOCUMENTS[name]).read_text()
    assert excerpts.put(document, name, made) == document, (
        "python -m benchmarks.report benchmarks/results/published --docs docs makes it anew"
    )


def test_figures_name_the_version_of_kube_proxy_and_runs_of_code_that_nobody_has() -> None:
    measured, runs = records.read(RUNS), machine.read(RUNS)
    made = excerpts.figures(measured, [{**run, "commit": "0123-dirty"} for run in runs])
    rows = [line for line in made.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 16
    assert all(re.search(r"\| 1\.\d\d\.\d+, of code that was not committed \|$", row) for row in rows)


def test_what_is_missed_has_target_and_measurement() -> None:
    made = excerpts.figures(records.read(RUNS), machine.read(RUNS))
    missed = [line for line in made.splitlines() if line.startswith("- ")]
    assert missed
    assert [line for line in missed if not re.match(r"- [^;:]+; target: [^;:]+; measured: \d", line)] == []


def test_a_document_without_a_place_is_named() -> None:
    with pytest.raises(ValueError, match="figures -->"):
        excerpts.put("# Nothing", "figures", "| |")
