"""The measurement beside Envoy Gateway."""

import re
from pathlib import Path

import pytest

from benchmarks.envoy_gateway import build
from benchmarks.envoy_gateway.testbed import Asked
from benchmarks.gateways import over


def test_the_versions_of_envoy_gateway_and_envoy_are_pinned() -> None:
    pinned = Path(build.__file__).with_name("go.sum").read_text()
    assert re.search(rf"^github.com/envoyproxy/gateway {re.escape(build.version())} h1:", pinned, re.MULTILINE)
    assert re.fullmatch(r"\d+\.\d+\.\d+", build.envoy_version())


@pytest.mark.parametrize(
    ("pods", "since", "expected"),
    [
        (["gone", *["stays"] * 20], 0, True),
        (["gone", *["stays"] * 20], 1, False),
        (["gone", *["stays"] * 19], -1, False),
        (["stays"] * 19, -1, False),
        ([*["stays"] * 20, "gone"], -1, False),
        ([""] * 20, -1, True),
    ],
)
def test_a_change_is_over_once_twenty_later_requests_in_a_row_have_no_answer_of_what_is_gone(
    pods: list[str], since: int, expected: bool
) -> None:
    asked = [Asked(began, began, pod) for began, pod in enumerate(pods)]
    assert over(asked, since, {"gone"}) == expected
