"""Builds that several processes may want at once: one works, the others wait and show how far it is."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lab import progress
from lab.progress import Count, Report

_LOOK_EVERY_S = 0.3
_WRITE_EVERY_S = 0.5


@contextmanager
def locked(path: Path, report: Report) -> Iterator[Count]:
    """Hold the lock of a file, which concurrent builds of the same programs wait for.

    Yields where to count: it is shown here, and to those who wait.
    """
    counted = path.with_suffix(".progress")
    count = progress.counting(report)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if not _taken(file):
            report("waiting for another build of the same programs")
            while not _taken(file):
                _show(counted, count)
                time.sleep(_LOOK_EVERY_S)
        try:
            yield _shared(counted, count)
        finally:
            counted.unlink(missing_ok=True)


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _shared(path: Path, count: Count) -> Count:
    written = float("-inf")

    def both(what: str, done: int, total: int | None) -> None:
        nonlocal written
        count(what, done, total)
        if time.monotonic() - written >= _WRITE_EVERY_S:
            written = time.monotonic()
            unfinished = path.with_suffix(".new")
            unfinished.write_text(json.dumps([what, done, total]))
            unfinished.rename(path)

    return both


def _show(path: Path, count: Count) -> None:
    try:
        what, done, total = json.loads(path.read_text())
    except FileNotFoundError:
        return
    count(what, done, total)
