import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.state import LabFiles
from tests.functional.leftovers import beginnings, found, refused

LAB: Any = SimpleNamespace(name="a-lab")


def test_nothing_is_looked_for_in_a_lab_with_another_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(LabFiles, "of", lambda _: SimpleNamespace(log=lambda *_: tmp_path / "none"))
    assert list(found([LAB])) == []


def test_a_lab_that_cannot_be_looked_at_is_told_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LabFiles, "of", lambda _: SimpleNamespace(log=lambda *_: tmp_path))
    told = list(found([LAB, LAB]))
    assert len(told) == 2
    assert all(each.startswith("cannot look at what tests left in the lab a-lab: ") for each in told)


def test_a_right_that_is_missing_is_told_from_an_api_server_that_starts() -> None:
    def line(second: int, error: str) -> str:
        return json.dumps({"error": error, "timestamp": f"2026-01-01T00:00:{second:02}.000000Z"})

    away, forbidden = "the watch of pods broke: ClientPayloadError()", "403 Forbidden: pods is forbidden"
    assert refused("\n".join((line(1, away), line(4, forbidden)))) == []
    assert refused("\n".join((line(1, away), line(20, forbidden), "-- operator ended"))) == [line(20, forbidden)]
    assert refused(line(1, forbidden)) == [line(1, forbidden)]
    missing = f'{forbidden}: RBAC: [clusterrole.rbac.authorization.k8s.io "{{}}" not found]'
    assert refused(line(1, missing.format("system:discovery"))) == []
    assert refused(line(1, missing.format("kube-nftlb-agent"))) != []


def test_an_api_server_reads_roles_for_a_while_after_it_has_begun() -> None:
    (began,) = beginnings("I0101 00:00:10.063937       4 secure_serving.go:216] Serving securely on [::]:6443\n", 2026)

    def line(second: float) -> str:
        at = began + timedelta(seconds=second)
        return json.dumps({"error": "403 Forbidden: nodes is forbidden", "timestamp": at.isoformat()})

    early, soon, late = line(-1), line(3), line(16)
    assert refused(f"{early}\n{soon}\n{late}", [began]) == [early, late]


def test_a_log_may_be_text() -> None:
    line = "2026-01-01T00:00:03.000000Z [warning  ] cannot write status error='403 Forbidden: pods is forbidden'"
    assert refused(line) == [line]
