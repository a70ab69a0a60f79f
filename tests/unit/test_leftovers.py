import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.functional.leftovers import beginnings, found, refused


def test_nothing_is_looked_for_in_a_lab_with_another_proxy(tmp_path: Path) -> None:
    lab: Any = SimpleNamespace(log_path=lambda component: tmp_path / f"{component}.log")
    assert list(found([lab])) == []


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
