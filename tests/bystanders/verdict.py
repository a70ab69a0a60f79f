"""The effects of edits by others on the attempts at bystanders. Pure: no I/O.

A delay is ours as far as the machine did not stall at the same time: attempts of the same process at a pod, without any
Service, and its own loop tell when that was. A failure always counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

CONTROL = "control"
"""The first word of the names of streams that lead to a pod without a Service."""
LONGEST_DELAY_NS = 100_000_000

Window = tuple[int, int]
"""From and until, in ns of CLOCK_MONOTONIC."""


class Edit(NamedTuple):
    """A change of something else, from its request until all nodes had it, or nobody waited for it any more."""

    name: str
    began: int
    ended: int
    problem: str = ""
    """Reason nobody waited."""


class Disturbance(NamedTuple):
    """An attempt that was felt, and the last edit that had begun before it ended."""

    edit: str
    stream: str
    what: str
    after_ns: int
    """From the edit's beginning to the attempt's; negative for an attempt that was under way."""


def judge(results: Mapping[str, Mapping[str, Any]], edits: Sequence[Edit]) -> list[Disturbance]:
    """Return what was felt, in its order. ``results`` are those of ``lab.traffic steady``, by the client's place."""
    found: list[tuple[int, Disturbance]] = []
    for place, result in results.items():
        stalls = merged(_stalls(result))
        for name, record in result["streams"].items():
            if name.startswith(CONTROL):
                continue
            felt = [(began, ended, how) for began, ended, how in record["failed"]]
            for began, ended in record["slow"]:
                ours = ended - began - overlap((began, ended), stalls)
                if ours >= LONGEST_DELAY_NS:
                    felt.append((began, ended, "delayed"))
            for began, ended, what in felt:
                edit = max((each for each in edits if each.began <= ended), key=lambda each: each.began, default=None)
                after = began - edit.began if edit else 0
                took = f"{what} after {(ended - began) / 1e6:.0f} ms"
                found.append((began, Disturbance(edit.name if edit else "nothing", f"{place}: {name}", took, after)))
    return [disturbance for _, disturbance in sorted(found)]


def attempts(results: Mapping[str, Mapping[str, Any]]) -> int:
    """Return how many attempts at bystanders and pods there were."""
    return sum(record["attempts"] for result in results.values() for record in result["streams"].values())


def summary(results: Mapping[str, Mapping[str, Any]], edits: Sequence[Edit]) -> str:
    """Return what was tried, how long the edits took, and what the machine itself did."""
    stalled = {place: sum(ended - began for began, ended in merged(_stalls(each))) for place, each in results.items()}
    longest = max(stalled.values()) / 1e6
    slowest = sorted(edits, key=lambda edit: edit.began - edit.ended)[:3]
    took = ", ".join(f"{edit.name} {(edit.ended - edit.began) / 1e9:.1f} s" for edit in slowest)
    return (
        f"{attempts(results)} attempts at bystanders and pods, {len(edits)} edits, the longest {took}; "
        f"the machine stalled for {longest:.0f} ms"
    )


def told(disturbances: Iterable[Disturbance]) -> list[str]:
    """Return a sentence for each edit and stream."""

    def key(each: Disturbance) -> tuple[str, str]:
        return each.edit, each.stream

    sentences = []
    for (edit, stream), group in groupby(sorted(disturbances, key=key), key):
        first, *others = group
        more = f", and {len(others)} more" if others else ""
        sentences.append(
            f"{edit!r} was felt by {stream}: {first.what}, {first.after_ns / 1e6:.0f} ms after it began{more}"
        )
    return sentences


def _stalls(result: Mapping[str, Any]) -> list[Window]:
    windows = [(began, ended) for began, ended in result["stalls"]]
    for name, record in result["streams"].items():
        if name.startswith(CONTROL):
            windows += [(began, ended) for began, ended, *_ in (*record["slow"], *record["failed"])]
    return windows


def merged(windows: Iterable[Window]) -> list[Window]:
    """Return the same time in windows that do not overlap, in order."""
    result: list[Window] = []
    for began, ended in sorted(windows):
        if result and began <= result[-1][1]:
            result[-1] = (result[-1][0], max(ended, result[-1][1]))
        else:
            result.append((began, ended))
    return result


def overlap(window: Window, others: Iterable[Window]) -> int:
    """Return how long a window overlaps with others, which do not overlap with one another."""
    return sum(max(0, min(window[1], ended) - max(window[0], began)) for began, ended in others)
