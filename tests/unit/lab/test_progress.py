"""What is shown of a build, here and to others who wait for it."""

import threading
import time
from pathlib import Path

import pytest

from lab import locks, progress


def test_counts_are_lines_now_and_then_where_there_is_no_terminal() -> None:
    lines: list[str] = []
    now = 0.0
    count = progress.Lines(lines.append, every_s=10, clock=lambda: now)
    for second in range(31):
        now = float(second)
        count("Go packages compiled", second, 400)
    assert lines == [
        "Go packages compiled: 10 of 400",
        "Go packages compiled: 20 of 400",
        "Go packages compiled: 30 of 400",
    ]
    now = 50.0
    count("Go modules fetched", 7, None)
    assert lines[-1] == "Go modules fetched: 7"


def test_steps_are_lines_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.shown() as report:
        report("installing [nftables]")
        assert not isinstance(report, progress.Display)
    assert capfd.readouterr().err == "   0.0 s  installing [nftables]\n"


def test_who_waits_for_a_build_sees_how_far_it_is(tmp_path: Path) -> None:
    lock, steps = tmp_path / "build.lock", list[str]()
    seen: list[tuple[str, int, int | None]] = []
    waited = threading.Event()

    def wait() -> None:
        shown = progress.Display(steps.append, lambda *count: seen.append(count))
        with locks.locked(lock, shown):
            waited.set()

    with locks.locked(lock, lambda _: None) as count:
        count("Go packages compiled", 812, 1900)
        waiter = threading.Thread(target=wait)
        waiter.start()
        deadline = time.monotonic() + 5
        while not seen and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not waited.is_set()
    waiter.join(5)
    assert waited.is_set()
    assert steps == ["waiting for another build of the same programs"]
    assert set(seen) == {("Go packages compiled", 812, 1900)}
    assert not lock.with_suffix(".progress").exists()
