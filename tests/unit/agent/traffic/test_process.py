"""The process that counts: what becomes of the agent without it."""

import asyncio
import errno

import pytest
from structlog.testing import capture_logs

from kube_nftlb.agent.traffic import series


async def test_a_node_that_cannot_start_a_process_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), asyncio.CancelledError()])

    async def start(*_args: object, **_options: object) -> None:
        raise next(outcomes)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(series, "_RETRY_S", 0)
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await series.count_traffic(lambda _: None)
    assert [entry["event"] for entry in logs] == ["cannot count traffic, starting again"]
