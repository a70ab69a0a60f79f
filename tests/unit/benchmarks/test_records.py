import math
from pathlib import Path

import pytest

from benchmarks import records
from benchmarks.records import FILE, Records


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


def test_a_record_is_written_at_once(tmp_path: Path) -> None:
    run = Records(tmp_path)
    run.add("latency", "kube-nftlb", "time", "ms", 1)
    assert len((tmp_path / FILE).read_text().splitlines()) == 1
    run.close()


def test_a_run_appends_to_an_existing_file(tmp_path: Path) -> None:
    for value in (1, 2):
        with Records(tmp_path) as run:
            run.add("latency", "kube-nftlb", "time", "ms", value)
    assert [record.value for record in records.read(tmp_path)] == [1, 2]


def test_published_records_have_a_line_for_all_repetitions(tmp_path: Path) -> None:
    with Records(tmp_path) as run:
        for number in (0, 1, 3):
            for subject in ("kube-nftlb", "kube-proxy-nftables"):
                run.add("latency", subject, "time", "ms", number + 0.123456789, size=10, repetition=number)
        run.add("latency", "kube-nftlb", "rules", "", 7, services=1)
        run.skip("latency", "kube-nftlb", "no answer", size=10)
        was = run.added
    text = records.compact(was)
    assert len(text.splitlines()) == 4
    (tmp_path / FILE).write_text(text)
    back = records.read(tmp_path)
    assert sorted(map(repr, back)) == sorted(repr(each._replace(value=float(f"{each.value:.6g}"))) for each in was)


def test_skipped_measurements_have_a_reason(tmp_path: Path) -> None:
    with Records(tmp_path) as run:
        run.skip("datapath", "kube-proxy-ipvs", "the kernel has no ip_vs")
    (record,) = records.read(tmp_path)
    assert math.isnan(record.value)
    assert record.missing == "the kernel has no ip_vs"


def test_a_truncated_line_is_ignored(tmp_path: Path) -> None:
    with Records(tmp_path) as run:
        run.add("latency", "kube-nftlb", "time", "ms", 1)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"scenario": "late')
    assert [record.value for record in records.read(tmp_path)] == [1]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    with Records(tmp_path) as run, pytest.raises(ValueError, match="not a measurement"):
        run.add("latency", "kube-nftlb", "time", "ms", value)
