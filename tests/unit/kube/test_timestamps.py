"""Times as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kube_nftlb.kube import timestamps

TIME = datetime(2026, 1, 2, 5, 4, 5, 678, timezone(timedelta(hours=2)))


def test_times_are_written_in_utc() -> None:
    assert timestamps.seconds(TIME) == "2026-01-02T03:04:05Z"
    assert timestamps.micros(TIME) == "2026-01-02T03:04:05.000678Z"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.000678Z", TIME),
        ("2026-01-02T03:04:05.000678999Z", TIME),
        ("2026-01-02T03:04:05", None),
        ("yesterday", None),
        (None, None),
        (5, None),
    ],
)
def test_only_rfc_3339_is_read(text: object, time: datetime | None) -> None:
    assert timestamps.parse(text) == time
