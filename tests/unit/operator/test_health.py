from datetime import UTC, datetime

import pytest

from kube_nftlb.operator.health import STALLED_S, answer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stalled_s", "listed", "live", "ready"),
    [(0, False, 200, 503), (0, True, 200, 200), (STALLED_S + 1, True, 503, 503)],
)
def test_it_lives_while_workers_get_on_and_is_ready_after_the_first_lists(
    stalled_s: float, listed: bool, live: int, ready: int
) -> None:
    def status(path: str) -> int:
        return answer(path, now=NOW, stalled_s=stalled_s, listed=listed).status

    assert (status("/livez"), status("/healthz"), status("/readyz")) == (live, live, ready)


def test_the_body_tells_why() -> None:
    body = answer("/readyz", now=NOW, stalled_s=0, listed=False).body
    time = {"currentTime": "2026-01-01T00:00:00.000000Z"}
    assert body == {**time, "healthy": True, "listed": False, "leader": True, "ready": False}


def test_nothing_else_is_there() -> None:
    assert answer("/metrics", now=NOW, stalled_s=0, listed=True).status == 404
