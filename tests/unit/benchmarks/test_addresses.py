"""What the report says of announced addresses, and how connections that failed are counted."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import address_table, expected, records, report, series
from benchmarks import many_addresses as many
from benchmarks.addresses import SUBJECTS
from benchmarks.announcers import IDLE, SCENARIO
from benchmarks.handovers import ANEW, LONGEST, MOVE, POWER_OFF
from benchmarks.handovers import CONNECTIONS as MEANWHILE
from benchmarks.handovers import FAILED as FAILED_MEANWHILE
from benchmarks.new_addresses import CONNECTIONS, CREATED, FAILED, GAP, counted
from benchmarks.processes import PEAK
from benchmarks.records import Records
from benchmarks.subjects import ANNOUNCING, METALLB, METALLB_EAGER, NFTABLES


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Records(tmp_path) as made:
        for number, (ours, theirs) in enumerate(((80, 1100), (90, 1200), (100, 1300))):
            for subject, took, failed in ((NFTABLES, ours, 0), (METALLB, theirs, number)):
                made.add(SCENARIO, subject, CREATED, "ms", took, load=IDLE, repetition=number)
                made.add(SCENARIO, subject, GAP, "ms", took - 70, load=IDLE, repetition=number)
                made.add(SCENARIO, subject, CONNECTIONS, "", 20, load=IDLE, repetition=number)
                made.add(SCENARIO, subject, LONGEST, "ms", took, change=MOVE, repetition=number)
                made.add(SCENARIO, subject, MEANWHILE, "", 1000, change=MOVE, repetition=number)
                for how in FAILED:
                    of_how = failed if how == "timed out" else 0
                    made.add(SCENARIO, subject, FAILED[how], "", of_how, load=IDLE, repetition=number)
                    made.add(SCENARIO, subject, FAILED_MEANWHILE[how], "", of_how, change=MOVE, repetition=number)
                made.add(SCENARIO, subject, ANEW, "ms", took * 5, fault=POWER_OFF, repetition=number)
        for program, mb in (("kube-proxy", 60), ("metallb-speaker", 50), ("metallb-controller", 40)):
            made.add(many.SCENARIO, METALLB, PEAK, "MB", mb, addresses=100, load=IDLE, process=program)
        made.add(many.SCENARIO, NFTABLES, PEAK, "MB", 90, addresses=100, load=IDLE, process="agent")
        made.add(many.SCENARIO, METALLB, many.ANSWER, "ms", 5.5, services=2000, quantile=many.TAIL)
        made.add(many.SCENARIO, METALLB, many.ANSWERED, "", 12_000, services=2000)
    return tmp_path


def test_the_table_has_medians_counts_and_what_is_missing(run: Path) -> None:
    lines = list(address_table.lines(series.grouped(records.read(run))))
    none = "not measured"
    assert lines[0].count("|") == lines[1].count("|") == 1 + 1 + len(ANNOUNCING) + 1
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    created = rows["a Service with ready pods is created: a client is served at its new address"]
    failed = rows["connections to a new address from the first answer on that fail"]
    moved = rows["connections that fail as the only endpoint moves"]
    memory = lines[-1]
    answered = rows["the same: 99 of 100 questions"]
    assert created.endswith(f"| {none} | 90 (80 to 100) ms | 1,200 (1,100 to 1,300) ms | {none} | 3 |")
    assert failed.endswith(f"| {none} | 0 of 60 | 3 of 60 (3 timed out) | {none} | 3 |")
    assert moved.endswith(f"| {none} | 0 of 3,000 | 3 of 3,000 (3 timed out) | {none} | 3 |")
    assert answered.endswith(f"| {none} | {none} | 5.5 ms | {none} | 12,000 |")
    assert memory.endswith(f"| {none} | {none} | 150 MB | {none} | 1 |"), "a subject lacks one of its programs"


def test_all_samples_are_drawn(run: Path, tmp_path: Path) -> None:
    (run / "machine.json").write_text("[]")
    report.write(run, tmp_path / "docs")
    drawn = {path.stem for path in (tmp_path / "docs/performance").iterdir()}
    assert drawn == {"addresses-new", "addresses-moves", "addresses-failover"}
    page = (tmp_path / "docs/performance.md").read_text()
    assert all(f"](performance/{name}.png)" in page for name in drawn)


def test_failures_of_other_kinds_are_not_lost() -> None:
    assert counted({"refused": 2, "timeout": 1, "reset": 3, "unreachable": 4}) == {
        "refused": 2,
        "timed out": 1,
        "cut or unreachable": 7,
    }
    assert counted({}) == dict.fromkeys(FAILED, 0) == dict.fromkeys(FAILED_MEANWHILE, 0)


def test_a_lost_measurement_is_noticed() -> None:
    lost = expected.lacking(SCENARIO, [])
    assert lost.keys() == {subject.name for subject in SUBJECTS}
    assert ANEW in lost[METALLB]
    assert ANEW not in lost[METALLB_EAGER], "its failover is not measured: kube-proxy's pace makes no difference there"
