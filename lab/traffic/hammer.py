"""``hammer``: open one connection after another in each thread, and measure the longest gap without a reply."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from lab.traffic.ask import Target, ask_over, connect, kind_of

_LISTED_FAILURES = 1000
_NS_PER_MS = 1_000_000
_PAUSE_S = 0.002
"""Between connections: the system under test needs CPU time too, and refusals come at once."""


class Failure(NamedTuple):
    """A connection that failed."""

    realtime_ns: int
    kind: str
    error: str
    established: bool = False
    """It failed later: by then the client could send its request."""


@dataclass
class Record:
    """Results of one thread; times are CLOCK_MONOTONIC in ns, except CLOCK_REALTIME for failures."""

    successes: list[tuple[int, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def hammer(target: Target, seconds: float | None, threads: int, stop: threading.Event) -> dict[str, Any]:
    """Open connections until the time is up or ``stop`` is set, and return the summary."""
    records = [Record() for _ in range(threads)]
    workers = [threading.Thread(target=_work, args=(target, record, stop)) for record in records]
    begin = time.monotonic_ns()
    for worker in workers:
        worker.start()
    stop.wait(seconds)
    end = time.monotonic_ns()
    stop.set()
    for worker in workers:
        worker.join()
    return summarize(records, begin, end)


def summarize(records: list[Record], begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Combine the results of all threads between two points in time."""
    successes = sorted(success for record in records for success in record.successes)
    failures = sorted(failure for record in records for failure in record.failures)
    times = [begin_ns, *(time_ns for time_ns, _ in successes), end_ns]
    longest = max(after - before for before, after in pairwise(times))
    return {
        "attempts": len(successes) + len(failures),
        "seconds": round((end_ns - begin_ns) / 1e9, 3),
        "answers": dict(Counter(pod for _, pod in successes)),
        "failed": dict(Counter(failure.kind for failure in failures)),
        # Those of them that were never established.
        "failed_to_open": dict(Counter(failure.kind for failure in failures if not failure.established)),
        "failures": [failure._asdict() for failure in failures[:_LISTED_FAILURES]],
        "longest_gap_ms": round(max(0, longest) / _NS_PER_MS, 3),
    }


def _work(target: Target, record: Record, stop: threading.Event) -> None:
    while not stop.is_set():
        established = False
        try:
            with connect(target) as connection:
                established = True
                answer = ask_over(connection)
        except (OSError, ValueError) as error:
            # The kernel calls it refused if the server has not answered yet (tcp_reset in net/ipv4/tcp_input.c).
            established |= isinstance(error, ConnectionResetError)
            record.failures.append(Failure(time.time_ns(), kind_of(error), str(error), established))
        else:
            record.successes.append((time.monotonic_ns(), answer.pod))
        time.sleep(_PAUSE_S)
