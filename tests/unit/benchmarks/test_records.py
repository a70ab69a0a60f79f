import csv
import math
from pathlib import Path

import pytest

from benchmarks import records
from benchmarks.records import CSV_FILE, JSON_FILE, Records


def test_added_records_are_read_back(tmp_path: Path) -> None:
    with Records(tmp_path) as run:
        run.add("latency", "kube-nftlb", "created until answered", "ms", 12.5, size=10, load="idle")
    (record,) = records.read(tmp_path)
    assert record.value == 12.5
    assert record.parameters == {"size": 10, "load": "idle"}
    assert (record.scenario, record.subject, record.metric, record.unit) == (
        "latency",
        "kube-nftlb",
        "created until answered",
        "ms",
    )


def test_a_record_is_written_to_both_files_at_once(tmp_path: Path) -> None:
    run = Records(tmp_path)
    run.add("latency", "kube-nftlb", "time", "ms", 1)
    assert len((tmp_path / JSON_FILE).read_text().splitlines()) == 1
    header, row = csv.reader((tmp_path / CSV_FILE).read_text().splitlines())
    assert dict(zip(header, row, strict=True))["value"] == "1.0"
    run.close()


def test_a_run_appends_to_existing_files(tmp_path: Path) -> None:
    for value in (1, 2):
        with Records(tmp_path) as run:
            run.add("latency", "kube-nftlb", "time", "ms", value)
    assert [record.value for record in records.read(tmp_path)] == [1, 2]
    assert len((tmp_path / CSV_FILE).read_text().splitlines()) == 3


def test_skipped_measurements_have_a_reason(tmp_path: Path) -> None:
    with Records(tmp_path) as run:
        run.skip("datapath", "kube-proxy-ipvs", "the kernel has no ip_vs")
    (record,) = records.read(tmp_path)
    assert math.isnan(record.value)
    assert record.missing == "the kernel has no ip_vs"


def test_a_truncated_line_is_ignored(tmp_path: Path) -> None:
    with Records(tmp_path) as run:
        run.add("latency", "kube-nftlb", "time", "ms", 1)
    with (tmp_path / JSON_FILE).open("a") as file:
        file.write('{"scenario": "late')
    assert [record.value for record in records.read(tmp_path)] == [1]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    with Records(tmp_path) as run, pytest.raises(ValueError, match="not a measurement"):
        run.add("latency", "kube-nftlb", "time", "ms", value)
