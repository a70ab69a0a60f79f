"""What may be published, and that nothing of it gets lost."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import expected, machine, publish, records
from benchmarks.records import Records

COMPLETE = {"scenarios": ["scale"], "services": [1000], "began": "2026-01-01", "commit": "abc", "seconds": {"scale": 7}}


def of_run(folder: Path, value: float = 1, services: int = 1000, leave_out: str = "", **changes: Any) -> Path:
    """Write a run of ``scale`` with a value of each metric."""
    with Records(folder) as run:
        for subject, metric in expected.of("scale"):
            if metric != leave_out:
                run.add("scale", subject, metric, "s", value, services=services)
    (folder / machine.FILE).write_text(json.dumps([{**COMPLETE, "services": [services], **changes}]))
    return folder


def published(monkeypatch: pytest.MonkeyPatch, to: Path, *runs: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["publish", *map(str, runs), "--to", str(to)])
    return publish.main()


def test_a_run_replaces_the_earlier_one_of_its_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of_run(tmp_path / "1", 1)
    other = of_run(tmp_path / "2", 2, 8000, began="2026-01-02")
    again = of_run(tmp_path / "3", 3, began="2026-01-03")
    assert published(monkeypatch, tmp_path / "to", first, other, again) == 0
    values = {record.parameters["services"]: record.value for record in records.read(tmp_path / "to")}
    assert values == {1000: 3, 8000: 2}
    number = len(list(expected.of("scale")))
    assert [(run["began"], run["records"]) for run in machine.read(tmp_path / "to")] == [
        ("2026-01-02", {"scale": number}),
        ("2026-01-03", {"scale": number}),
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"commit": "abc-dirty"}, "it measured abc-dirty"),
        ({"commit": ""}, "it measured no commit"),
        ({"seconds": {}}, "it did not finish scale"),
        ({"leave_out": "memory at most"}, "scale of kube-nftlb has no memory at most"),
    ],
)
def test_no_other_run_is_published(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    reason: str,
) -> None:
    assert published(monkeypatch, tmp_path / "to", of_run(tmp_path / "1", **changes)) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def test_a_stated_reason_stands_for_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = of_run(tmp_path / "1", leave_out="memory at most")
    with Records(folder) as run:
        for subject, _ in expected.of("scale"):
            run.skip("scale", subject, "not tried", services=1000)
    assert published(monkeypatch, tmp_path / "to", folder) == 0
