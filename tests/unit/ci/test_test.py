"""``.ci/test``: which tests it runs once more, and what makes it fail."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.distribution import ROOT
from tests.unit.ci.scripts import load

TESTS = ROOT / "tests"
FLAKY = "tests/unit/test_a.py::test_b"
NONE_SELECTED = 5


def test_the_text_of_a_file_has_the_markers_of_its_tests() -> None:
    """That is where ``.ci/test`` looks for them: tests in files without any run in none of its parts."""
    files = set(TESTS.rglob("*.py")) - {TESTS / "conftest.py", Path(__file__)}
    assert [
        file
        for file in files
        if re.search(r"add_marker\((?!pytest\.mark\.skip\()|import mark\b|getattr\(pytest", file.read_text())
    ] == []


class Run(dict[str, Any]):
    """The outcome of a run of pytest: its exit status, which tests failed, and what was left in labs."""


PASSED = Run(status=0)
FAILED = Run(status=1, failed=[FLAKY])
LEFT = Run(status=1, left=["a farm"])
NO_TESTS = Run(status=NONE_SELECTED)


@pytest.fixture
def script() -> ModuleType:
    return load("test")


def test_a_run_that_is_killed_has_failed(monkeypatch: pytest.MonkeyPatch, script: ModuleType) -> None:
    monkeypatch.setattr(script.subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, -9))
    assert script.run("not long")[0] == 137


@pytest.mark.parametrize(
    ("runs", "status", "flaky"),
    [
        ((PASSED, NO_TESTS), 0, []),
        ((FAILED, PASSED, NO_TESTS), 0, [FLAKY]),
        ((FAILED, FAILED, NO_TESTS), 1, []),
        ((LEFT, NO_TESTS), 1, []),
        ((Run(FAILED | LEFT), PASSED, NO_TESTS), 1, [FLAKY]),
        ((PASSED, FAILED, PASSED), 0, [FLAKY]),
        ((PASSED, FAILED, FAILED), 1, []),
        ((PASSED, Run(FAILED | LEFT), PASSED), 1, [FLAKY]),
    ],
)
def test_a_test_that_passes_alone_is_flaky_and_what_is_left_in_labs_fails_the_run(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: ModuleType,
    runs: Sequence[Run],
    status: int,
    flaky: list[str],
) -> None:
    for constant in ("FAILED", "FAILURES", "LEFTOVERS"):
        monkeypatch.setattr(script, constant, tmp_path / constant)
    todo = iter(runs)

    def pytest_runs(*_: str) -> int:
        run = next(todo)
        failed = dict.fromkeys(run.get("failed", []), "what it said")
        (tmp_path / "FAILED").write_text(json.dumps(dict.fromkeys(failed, True)))
        (tmp_path / "FAILURES").write_text(json.dumps(failed))
        (tmp_path / "LEFTOVERS").write_text(json.dumps(run.get("left", [])))
        return int(run["status"])

    monkeypatch.setattr(script, "pytest", pytest_runs)
    assert script.run("not long") == (status, dict.fromkeys(flaky, "what it said"))
    assert next(todo, None) is None
