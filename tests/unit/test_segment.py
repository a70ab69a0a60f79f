"""What functional tests let pass as an address moves, and what they do not."""

from pathlib import Path

import pytest

from benchmarks import records
from tests.functional import segment
from tests.functional.faults import suite

MET = {
    "attempts": 100,
    "failed": {"reset": 3, "timeout": 5, "refused": 1, "unreachable": 2},
    "failed_to_open": {"timeout": 4, "refused": 1, "unreachable": 2},
}


def test_only_connections_that_were_open_count_as_cut() -> None:
    met = {**MET}
    assert segment.cut(met) == 4
    assert met["failed"] == {"timeout": 4, "refused": 1, "unreachable": 2}
    open_ones = {"failed": {"reset": 1, "timeout": 1}, "failed_to_open": {}}
    assert segment.cut(open_ones) == 2
    assert open_ones["failed"] == {}


def test_records_tell_new_connections_that_fail_from_those_that_were_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "FOLDER", str(tmp_path))
    segment.note(MET, "it moves")
    noted = {record.metric: record.value for record in records.read(tmp_path)}
    assert noted == {"connections": 100, "reset": 3, "not answered": 1, "new and failed": 7}
