"""The options of the benchmarks."""

import json
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.__main__ import _blocker
from benchmarks.publish import PUBLISHED
from benchmarks.scope import Scope


def of(*services: int, full: bool = True) -> Scope:
    return Scope(full, frozenset(services))


@pytest.mark.parametrize(
    ("scenario", "scope", "expected"),
    [
        ("scale", of(8000), None),
        ("scale", of(), None),
        ("latency", of(), None),
        ("scale", of(7), "--services: scale supports 1000, 2000, 8000, 20000"),
        ("scale", of(8000, full=False), "--services: scale supports 1000"),
        ("latency", of(1000), "--services: latency has only one number of Services"),
    ],
)
def test_only_sizes_of_a_scenario_can_be_selected(
    tmp_path: Path, scenario: str, scope: Scope, expected: str | None
) -> None:
    assert _blocker(tmp_path, [scenario], scope) == expected


def test_published_records_are_not_written_by_a_measurement() -> None:
    assert "benchmarks.publish" in (_blocker(PUBLISHED, ["latency"], of()) or "")


@pytest.mark.parametrize(
    ("scenario", "scope", "fits"),
    [
        ("latency", of(), True),
        ("scale", of(8000), True),
        ("scale", of(1000, 8000), False),
        ("scale", of(), False),
        ("intake", of(1000), False),
    ],
)
def test_a_folder_has_each_measurement_once(tmp_path: Path, scenario: str, scope: Scope, fits: bool) -> None:
    runs = [{"scenarios": ["scale"], "services": [1000]}, {"scenarios": ["intake"]}]
    (tmp_path / machine.FILE).write_text(json.dumps(runs))
    assert (_blocker(tmp_path, [scenario], scope) is None) == fits
