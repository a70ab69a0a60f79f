"""The outcomes of the Gateway API's tests, and the page that is made of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.upstream.gateway import outcomes, report, selection
from tests.upstream.records import FAILED, PASSED, SKIPPED, Outcome, Run

ROOT = Path(__file__).parents[3]
PUBLISHED = Path("tests/upstream/gateway/published")
LOG = """\
=== RUN   TestConformance
=== RUN   TestConformance/UDPRoute
    helpers.go:312:
                Error Trace:    /somewhere/helpers.go:312
                                                        /somewhere/else.go:1
                Error:          Received unexpected error:
                                context deadline exceeded
                Test:           TestConformance/UDPRoute/Simple_request
                Messages:       error waiting for one
    helpers.go:313:
                Error Trace:    /somewhere/helpers.go:313
                Error:          Not equal
                Test:           TestConformance/UDPRoute
=== RUN   TestConformance/TCPRouteReferenceGrant
                Error Trace:    /somewhere/helpers.go:1
                Error:          "2" is not 1
                Test:           TestConformance/TCPRouteReferenceGrant
--- FAIL: TestConformance (3.10s)
    --- FAIL: TestConformance/UDPRoute (2.50s)
        --- FAIL: TestConformance/UDPRoute/Simple_request (2.50s)
    --- FAIL: TestConformance/TCPRouteReferenceGrant (1.00s)
    --- PASS: TestConformance/TCPRouteWeightedRouting (12.00s)
    --- SKIP: TestConformance/GatewayModifyListeners (0.00s)
    --- SKIP: TestConformance/HTTPRouteCORS (0.00s)
"""


def made(*found: Outcome) -> tuple[Run, dict[str, Any]]:
    facts = {"began": "2026-01-01T00:00:00Z", "commit": "abc", "kernel": "6.18", "cores": 2, "minutes": 3}
    status = {"result": "partial", "statistics": {"Passed": 1, "Failed": 0, "Skipped": 9}}
    return Run("nftables", "v1.35.4", [{**facts, "load_average": [0.4]}], list(found)), {
        "gatewayAPIVersion": "v1.6.3",
        "gatewayAPIChannel": "standard",
        "profiles": [{"name": "GATEWAY-UDP", "core": status}, {"name": "GATEWAY-TCP", "core": status}],
    }


def test_outcomes_are_those_of_tests_that_are_run_or_left_out() -> None:
    assert outcomes.parse(LOG, {"GatewayModifyListeners": "HTTP"}) == [
        Outcome("GatewayModifyListeners", SKIPPED, 0, "HTTP"),
        Outcome("TCPRouteReferenceGrant", FAILED, 1, '"2" is not 1'),
        Outcome("TCPRouteWeightedRouting", PASSED, 12),
        Outcome("UDPRoute", FAILED, 2.5, "error waiting for one"),
    ]


def test_the_page_has_what_passed_what_failed_and_what_was_left_out() -> None:
    page = report.page(
        [made(Outcome("A", PASSED, 1), Outcome("B", FAILED, 1, "x | y"), Outcome("C", SKIPPED, 0, "HTTP"))], "reports"
    )
    assert "| A | passed |\n| B | failed |\n" in page
    assert "| B | nftables | x \\| y |" in page
    assert "| C | HTTP |" in page
    assert "| GATEWAY-TCP | nftables | 1 passed, 9 left out | - | v1.6.3, standard | [partial](reports/" in page


def test_the_published_runs_are_of_commits_and_the_page_matches_them() -> None:
    runs = report.read(ROOT / PUBLISHED)
    assert [run.subject for run, _ in runs] == list(report.ENGINES)
    assert not any(each["commit"].endswith("-dirty") for run, _ in runs for each in run.runs)
    assert report.page(runs, f"../{PUBLISHED}") == (ROOT / "docs" / report.PAGE).read_text(), (
        f"python -m {report.__name__} {PUBLISHED} --docs docs makes it"
    )


@pytest.mark.parametrize("engine", report.ENGINES)
def test_reports_are_named_as_upstream_wants_them(engine: str) -> None:
    assert selection.report_name(engine).split("-", 2)[::2] == ["standard", f"{engine}-report.yaml"]
